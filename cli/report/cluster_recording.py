"""A live cluster's past as a recording: nodes by their NodeClaims, decisions by the decision log.

A terminated node leaves only its row in the decision log, so the cost over time only covers nodes that still exist;
the page says so.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

from cli import terminal
from cli.cluster.commitments import commitment_bill
from cli.cluster.observed_cluster import chunks_by_node, with_snapshot
from cli.cluster.pricing import offering_prices
from cli.nodes.watch import read_rows
from cli.report.costs import recorded_costs
from cli.report.lower_bound import BoundedPod, lower_bound
from cli.report.recording import NodeSpan, RecordedDecision, RecordedLaunches, Recording, Sample
from cli.report.traffic import recorded_traffic
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.labels import offering_key
from shared.api.meta import condition
from shared.api.pods import is_daemon, is_pending, is_terminal
from shared.api.quantity import QuantityError
from shared.base.decision_log import DELETED_BY_HAND, TAKEN
from shared.base.plurals import plural
from shared.base.struct import with_fields
from shared.disruption.disruption_queue import queue_entry
from shared.standby.held_nodes import without_stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.cluster.pricing import Prices
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.base.decision_log import DecisionRecord, LaunchRecord
    from shared.cloud_provider import ResolvedNodePools


_OF_TERMINATED = "Of terminated nodes, only their ends and the reasons are known: the chart has no cost of them."


_SAME_END = timedelta(minutes=10)
"""Rows about one node within this time are about the same end of it."""


def recording(observed: ObservedCluster, *, period: timedelta, cost_label: str = "") -> Recording:
    """The recording of the period that ends now, or of the part of it from which on something is known.

    The cost of namespaces is split by the pods' label ``cost_label``, too, if it isn't "".
    """
    observed = with_snapshot(observed, without_stopped(observed.snapshot))
    taken = _without_explained(observed.history.since(observed.now - period))
    launched = observed.history.launches_since(observed.now - period)
    start = _start(observed, period, (*taken, *launched))
    resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
    spans = _node_spans(observed, offering_prices(resolved_pools), start)
    decisions = [RecordedDecision.of(d, _seconds(d.at, start) or 0.0) for d in taken]
    terminated = _terminated_spans(spans, decisions)
    spans = [*_with_reasons(spans, decisions), *terminated]
    notes = [_OF_TERMINATED] if launched or terminated else []
    end = (observed.now - start).total_seconds()
    return Recording(
        title=observed.name,
        is_live=True,
        start=start,
        end=end,
        spans=sorted(spans, key=lambda s: (s.created if s.created is not None else s.terminated or 0.0, s.name)),
        samples=[*_past_samples(spans, end), _current_sample(observed, resolved_pools, spans, end)],
        decisions=decisions,
        launches=[RecordedLaunches.of(r, _seconds(r.at, start) or 0.0) for r in launched],
        notes=[*observed.notes, *notes, *_buffer_notes(spans), *_commitment_notes(resolved_pools)],
        traffic=recorded_traffic(observed.services(), observed.snapshot),
        costs=recorded_costs(read_rows(observed), observed.snapshot, label=cost_label),
    )


def _without_explained(decisions: Sequence[DecisionRecord]) -> list[DecisionRecord]:
    """The decisions without deletions by hand that another decision explains.

    A deletion is recorded when the node is gone; where that took no longer than to write the row of the decision that
    removed it, both are in the log.
    """
    taken = [(d.node, d.at) for d in decisions if d.outcome == TAKEN and d.reason != DELETED_BY_HAND]

    def is_explained(record: DecisionRecord) -> bool:
        return any(node == record.node and abs(at - record.at) <= _SAME_END for node, at in taken)

    return [d for d in decisions if d.reason != DELETED_BY_HAND or not is_explained(d)]


def _terminated_spans(spans: Iterable[NodeSpan], decisions: Iterable[RecordedDecision]) -> list[NodeSpan]:
    """A span without its beginning for each node that is gone."""
    existing = {span.name for span in spans}
    ended = {d.node: d for d in decisions if d.outcome == TAKEN and d.node not in existing}
    return [NodeSpan(name=d.node, terminated=d.at, why=f"{d.reason}: {d.why}") for d in ended.values()]


def _with_reasons(spans: Iterable[NodeSpan], decisions: Iterable[RecordedDecision]) -> list[NodeSpan]:
    """The spans; those of nodes that are being removed say why: by queue entry or decision, or else by hand."""
    ended = {d.node: f"{d.reason}: {d.why}" for d in decisions if d.outcome == TAKEN}
    return [
        with_fields(span, why=span.why or ended.get(span.name, DELETED_BY_HAND)) if span.deleted is not None else span
        for span in spans
    ]


def _start(observed: ObservedCluster, period: timedelta, recorded: Iterable[DecisionRecord | LaunchRecord]) -> datetime:
    """The first whole minute of the period before which nothing is known."""
    snapshot = observed.snapshot
    created = [*(n.metadata for n in snapshot.nodes), *(c.metadata for c in snapshot.node_claims)]
    moments = [*(meta.creation_timestamp for meta in created), *(record.at for record in recorded)]
    first = min((moment for moment in moments if moment is not None), default=None)
    start = observed.now - period
    return start if first is None else max(start, first.replace(second=0, microsecond=0))


def _buffer_notes(spans: list[NodeSpan]) -> list[str]:
    with_room = [span.chunks for span in spans if span.chunks]
    if not with_room:
        return []
    return [f"CapacityBuffers have room for {plural(sum(with_room), 'pod')} on {plural(len(with_room), 'node')}."]


def _commitment_notes(resolved_pools: ResolvedNodePools) -> list[str]:
    bill = commitment_bill(resolved_pools)
    if bill is None:
        return []
    used, unused = terminal.usd(bill.committed - bill.unused), terminal.usd(bill.unused)
    covered, on_demand = sum(bill.covered.values()), terminal.usd(bill.uncovered)
    note = (
        f"Of commitments for {terminal.usd(bill.committed)} per hour, {used} are used now, {unused} wasted. They "
        f"cover {covered:.1f} of the account's on-demand instances, the rest of which costs {on_demand} per hour."
    )
    return [note]


def _seconds(moment: datetime | None, start: datetime) -> float | None:
    return None if moment is None else round((moment - start).total_seconds(), 3)


def _node_spans(observed: ObservedCluster, prices: Prices, start: datetime) -> list[NodeSpan]:
    claims = {c.status.provider_id: c for c in observed.snapshot.node_claims if c.status.provider_id}
    chunks = chunks_by_node(observed.snapshot)
    return [
        with_fields(_node_span(n, claims.get(n.spec.provider_id), prices, start), chunks=chunks.get(n.metadata.name, 0))
        for n in observed.snapshot.nodes
    ]


def _node_span(node: Node, claim: NodeClaim | None, prices: Prices, start: datetime) -> NodeSpan:
    instance_type, zone, capacity_type = offering_key(node.metadata.labels)
    entry = queue_entry(claim) if claim is not None else None
    created = claim.metadata.creation_timestamp if claim is not None else node.metadata.creation_timestamp
    launched, initialized = created, node.metadata.creation_timestamp
    if claim is not None:
        launched = _transition(claim, nodeclaim.LAUNCHED, launched)
        initialized = _transition(claim, nodeclaim.INITIALIZED, initialized)
    return NodeSpan(
        name=node.metadata.name,
        pool=node.metadata.labels.get(names.NODEPOOL, ""),
        instance_type=instance_type,
        zone=zone,
        capacity_type=capacity_type,
        price=prices.of_node(node.metadata.labels),
        created=_seconds(created, start),
        launched=_seconds(launched, start),
        ready=_seconds(initialized, start),
        deleted=_seconds(claim.metadata.deletion_timestamp, start) if claim is not None else None,
        why=f"{entry.reason}: {entry.message}" if entry is not None else "",
    )


def _transition(claim: NodeClaim, type_: str, default: datetime | None) -> datetime | None:
    """When the condition last changed, or the default if the NodeClaim doesn't have it."""
    current = condition(claim.status.conditions, type_)
    return current.last_transition_time if current is not None else default


def _past_samples(spans: list[NodeSpan], end: float) -> list[Sample]:
    """The cost after each launch, before the end; pods and the lower bound of the past are unknown."""
    launches = sorted((max(0.0, s.launched), s.price) for s in spans if s.launched is not None and s.price is not None)
    samples: dict[float, Sample] = {}
    cost = 0.0
    for at, price in launches:
        cost += price
        samples[at] = Sample(at, round(cost, 6))
    return [s for s in samples.values() if s.at < end]


def _current_sample(
    observed: ObservedCluster, resolved_pools: ResolvedNodePools, spans: list[NodeSpan], end: float
) -> Sample:
    """The totals now."""
    pods = []
    for pod in observed.snapshot.pods:
        if pod.spec.node_name and not is_terminal(pod) and not is_daemon(pod):
            with contextlib.suppress(QuantityError):
                pods.append(BoundedPod.of(pod))
    cost = sum(s.price for s in spans if s.launched is not None and s.price is not None)
    bound = lower_bound(observed.snapshot, resolved_pools, {r for pod in pods for r in pod.requests}).of(pods)
    pending = sum(is_pending(p) for p in observed.snapshot.pods)
    return Sample(end, round(cost, 6), round(bound, 6), len(pods), pending)
