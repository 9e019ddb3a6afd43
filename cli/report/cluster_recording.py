"""A cluster's recent past as a recording: its nodes by what they say of themselves, decisions by the log.

What is gone left no trace but its row in the log, so the cost over time is that of the nodes that are still there;
the page says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.cluster.pricing import offering_key, offering_prices
from cli.report.lower_bound import bound
from cli.report.recording import Decided, Recording, Sample, Span
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition
from shared.api.pods import is_daemon, is_pending, is_terminal, requests
from shared.api.quantity import QuantityError, Resources, add

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.cluster.pricing import Prices
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import ResolvedNodePools


def recording(observed: ObservedCluster, *, back: timedelta) -> Recording:
    """The last so many days of the cluster."""
    start = observed.now - back
    resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
    prices = offering_prices(resolved_pools)

    def at(moment: datetime | None) -> float | None:
        return None if moment is None else round((moment - start).total_seconds(), 3)

    by_provider = {c.status.provider_id: c for c in observed.snapshot.node_claims if c.status.provider_id}
    spans = [_span(n, by_provider.get(n.spec.provider_id), prices, at) for n in observed.snapshot.nodes]
    there = {s.name for s in spans}
    decisions = [
        Decided(at=at(d.at) or 0.0, node=d.node, outcome=d.outcome, reason=d.reason, why=d.why, savings=d.savings)
        for d in observed.history.since(start)
    ]
    went = {d.node: d for d in decisions if d.outcome == "taken" and d.node not in there}
    spans += [Span(name=d.node, gone=d.at, why=f"{d.reason}: {d.why}") for d in went.values()]
    notes = []
    if went:
        notes.append("Of nodes that are gone only the decision is known: their cost is not in the chart.")
    return Recording(
        title=observed.name,
        start=start,
        end=back.total_seconds(),
        spans=sorted(spans, key=lambda s: (s.asked if s.asked is not None else s.gone or 0.0, s.name)),
        samples=_samples(observed, resolved_pools, spans, back.total_seconds()),
        decisions=decisions,
        notes=[*observed.notes, *notes],
    )


def _span(node: Node, claim: NodeClaim | None, prices: Prices, at: Callable[[datetime | None], float | None]) -> Span:
    kind = offering_key(node.metadata.labels)
    up = condition(claim.status.conditions, nodeclaim.INITIALIZED) if claim is not None else None
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED) if claim is not None else None
    asked = claim.metadata.creation_timestamp if claim is not None else node.metadata.creation_timestamp
    return Span(
        name=node.metadata.name,
        pool=node.metadata.labels.get(names.NODEPOOL, ""),
        instance_type=kind[0],
        zone=kind[1],
        capacity_type=kind[2],
        price=prices.get(kind),
        asked=at(asked),
        launched=at(launched.last_transition_time if launched is not None else asked),
        ready=at(up.last_transition_time if up is not None else node.metadata.creation_timestamp),
        leaving=at(claim.metadata.deletion_timestamp) if claim is not None else None,
    )


def _samples(
    observed: ObservedCluster, resolved_pools: ResolvedNodePools, spans: list[Span], end: float
) -> list[Sample]:
    """The cost as the nodes came; pods and the bound are known of this moment alone."""
    placed: list[Resources] = []
    for pod in observed.snapshot.pods:
        if pod.spec.node_name and not is_terminal(pod) and not is_daemon(pod):
            try:
                placed.append(requests(pod))
            except QuantityError:
                continue
    total = add(*placed) if placed else {}
    least = bound(observed.snapshot, resolved_pools, set(total)).of(total)
    pending = sum(is_pending(p) for p in observed.snapshot.pods)
    came = sorted((max(0.0, s.launched), s.price) for s in spans if s.launched is not None and s.price is not None)
    found: list[Sample] = []
    cost = 0.0
    for moment, price in came:
        cost += price
        sample = Sample(moment, round(cost, 6))
        if found and found[-1].at == moment:
            found[-1] = sample
        else:
            found.append(sample)
    return [*(s for s in found if s.at < end), Sample(end, round(cost, 6), round(least, 6), len(placed), pending)]
