"""Why a node stays: each question that disruption asks of it, with its answer, and what moving it would save."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cli import terminal
from cli.cluster.observed_cluster import disruption_view
from cli.cluster.pricing import offering_key, offering_prices
from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section
from cli.plan import planning
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition, is_true
from shared.api.pods import is_daemon, is_mirror
from shared.disruption import candidates, drift, expiration, savings, static_disruption
from shared.disruption.budgets import allowed_disruptions
from shared.disruption.cluster_state import workload_pods
from shared.disruption.command import DRIFTED, EMPTY, EXPIRED, UNDERUTILIZED
from shared.disruption.disruption_queue import is_queued, queue_entry
from shared.disruption.simulated_scheduling import simulate_scheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState
    from shared.launch.resolved_node_pools import ResolvedNodePools

SEARCH_SECONDS = 2.0
_SHOWN = 5


def explain(observed: ObservedCluster, name: str) -> Explanation:
    """Why the node is kept, or goes.

    Raises:
        UsageError: there is no such node.
    """
    node = next(
        (n for n in observed.snapshot.nodes if name in {n.metadata.name, n.metadata.name.partition(".")[0]}), None
    )
    if node is None:
        raise UsageError(f"there is no node {name}{_near(observed, name)}")
    resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
    view = planning.with_empty_conditions(disruption_view(observed, resolved_pools))
    view = replace(view, nominated=view.nominated | _awaited(observed, resolved_pools))
    claim = claim_of(observed, node)
    answer = _Asked(observed=observed, resolved_pools=resolved_pools, view=view, node=node, claim=claim).explain()
    return answer.with_words(observed.history.events(node.ref), observed.history.decisions(node.metadata.name))


def _near(observed: ObservedCluster, name: str) -> str:
    like = sorted(n.metadata.name for n in observed.snapshot.nodes if name in n.metadata.name)[:3]
    claim = next((c for c in observed.snapshot.node_claims if c.name == name and c.status.node_name), None)
    if claim is not None:
        like = [claim.status.node_name]
    return f"; there is {', '.join(like)}" if like else ""


def _awaited(observed: ObservedCluster, resolved_pools: ResolvedNodePools) -> frozenset[str]:
    return frozenset(
        name for name, pods in planning.plan_launches(observed, resolved_pools).existing_nodes.items() if pods
    )


def claim_of(observed: ObservedCluster, node: Node) -> NodeClaim | None:
    """The node's claim."""
    provider, name = node.spec.provider_id, node.metadata.name
    return next(
        (
            c
            for c in observed.snapshot.node_claims
            if c.status.node_name == name or (provider and c.status.provider_id == provider)
        ),
        None,
    )


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """One node, and everything to judge it by."""

    observed: ObservedCluster
    resolved_pools: ResolvedNodePools
    view: ClusterState
    node: Node
    claim: NodeClaim | None

    def explain(self) -> Explanation:
        subject, about = f"Node {self.node.metadata.name}", self._about()
        settled = self._not_up_for_it()
        if settled is not None:
            return replace(settled, subject=subject, sections=(about,))
        candidate = next(c for c in candidates.all_candidates(self.view) if c.name == self.node.metadata.name)
        checks = self._checks(candidate)
        rules = Section(title="What disruption asks", checks=checks)
        plan = planning.plan_disruption(
            replace(self.observed, snapshot=self.view.snapshot), self.resolved_pools, self._until()
        )
        going = next((a for a in plan.actions if candidate.name in a.nodes), None)
        if going is not None:
            reason = f"{going.reason}: {going.message}"
            return Explanation(
                subject=subject, state="goes now", reason=reason, criterion=going.reason, sections=(about, rules)
            )
        waits = next((w for w in plan.pending if w.node == candidate.name), None)
        if waits is not None:
            after = candidate.pool.spec.disruption.consolidate_after
            reason = (
                f"it is empty, and goes in {terminal.age(waits.due - self.observed.now)} (consolidateAfter {after})"
            )
            return Explanation(
                subject=subject,
                state="waits to go",
                reason=reason,
                criterion="consolidateAfter",
                sections=(about, rules),
            )
        first = next((c for c in checks if c.ok is False), None)
        refused = next((r for r in plan.blocked if r.node == candidate.name), None)
        if first is not None:
            reason, criterion = f"{first.what}: {first.detail}", first.what
        elif refused is not None:
            reason, criterion = f"{refused.reason}: {refused.message}", refused.reason
        else:
            reason, criterion = "its pods need it, and nothing cheaper would do", "used"
        return Explanation(
            subject=subject, state="is kept", reason=reason, criterion=criterion, sections=(about, rules)
        )

    def _until(self) -> Callable[[], bool]:
        end = time.monotonic() + SEARCH_SECONDS
        return lambda: time.monotonic() >= end

    def _about(self) -> Section:
        labels = self.node.metadata.labels
        kind, zone, capacity = offering_key(labels)
        price = offering_prices(self.resolved_pools).get((kind, zone, capacity))
        made = self.node.metadata.creation_timestamp
        pods = self.view.pods.get(self.node.metadata.name, ())
        working = workload_pods(pods)
        cost = f"{terminal.usd(price)}/h" if price is not None else "unknown price"
        return Section(
            title="The node",
            checks=(
                Check(
                    what="machine",
                    ok=None,
                    detail=f"{kind or '?'}, {capacity}, {zone}, {cost}",
                ),
                Check(what="pool", ok=None, detail=labels.get(names.NODEPOOL, "none")),
                Check(what="age", ok=None, detail=terminal.age(self.observed.now - made) if made else "?"),
                Check(
                    what="pods",
                    ok=None,
                    detail=f"{len(working)} that hold it, {len(pods) - len(working)} daemons and the like",
                ),
            ),
        )

    def _not_up_for_it(self) -> Explanation | None:  # noqa: PLR0911 (one question after the other)
        """The states in which no method looks at the node."""
        claim, node = self.claim, self.node
        pool = self.view.pools.get(node.metadata.labels.get(names.NODEPOOL, ""))
        if claim is None:
            reason = "no NodeClaim is behind it, so it isn't Tenon's: whoever made it takes it away"
            return Explanation(subject="", state="is kept", reason=reason, criterion="unmanaged")
        mark = queue_entry(claim)
        if claim.metadata.deletion_timestamp is not None:
            why = f"{mark.reason}: {mark.message}" if mark is not None else "its NodeClaim was deleted"
            held = self._held()
            return Explanation(
                subject="", state="is leaving", reason=why + (f"; {held}" if held else ""), criterion="leaving"
            )
        if is_queued(claim):
            why = f"{mark.reason}: {mark.message}" if mark is not None else "its claim is marked"
            waits = f"; waits for {', '.join(mark.replacements)}" if mark is not None and mark.replacements else ""
            return Explanation(
                subject="", state="goes as soon as it is replaced", reason=why + waits, criterion="under way"
            )
        if not is_true(claim.status.conditions, nodeclaim.INITIALIZED):
            reason = f"it isn't initialized yet; `tenon explain nodeclaim {claim.name}` says what it waits for"
            return Explanation(subject="", state="is kept", reason=reason, criterion="not initialized")
        if pool is None:
            name = node.metadata.labels.get(names.NODEPOOL, "")
            reason = f"its NodePool \"{name}\" isn't there, or isn't valid: nobody says when it may go"
            return Explanation(subject="", state="is kept", reason=reason, criterion="no pool")
        if pool.spec.replicas is not None and node.metadata.name not in {
            c.name for c in static_disruption.find_candidates(self.view)
        }:
            reason = f"its NodePool {pool.name} is static (replicas {pool.spec.replicas}): it isn't consolidated"
            return Explanation(subject="", state="is kept", reason=reason, criterion="static")
        return None

    def _held(self) -> str:
        """What a drain waits for."""
        for pod in workload_pods(self.view.pods.get(self.node.metadata.name, ())):
            held = self.view.pod_disruption_budgets.eviction_blocker(pod)
            if held is not None:
                return f"the drain waits: {held.message}"
        left = workload_pods(self.view.pods.get(self.node.metadata.name, ()))
        return f"{terminal.plural(len(left), 'pod')} still to go" if left else ""

    def _checks(self, candidate: Candidate) -> tuple[Check, ...]:
        view, disruption = self.view, candidate.pool.spec.disruption
        held = [p for p in view.pods.get(candidate.name, ()) if not (is_daemon(p) or is_mirror(p))]
        checks = [self._obstacle(candidate)]
        expires = expiration.expiration_time(candidate.claim)
        checks.append(Check(what="expires", ok=None, detail=_expiry(expires, self.observed.now)))
        drifted = drift.disruption_message(view, candidate)
        checks.append(Check(what="drifted", ok=None, detail=drifted or "no, it is as its pool and class say"))
        checks.append(Check(what="empty", ok=None, detail=f"no: {_some(held)}" if held else "yes"))
        reasons = [EXPIRED] if expires is not None and expires <= self.observed.now else []
        reasons += [DRIFTED] if drifted else []
        reasons.append(UNDERUTILIZED if held else EMPTY)
        for reason in reasons:
            left = allowed_disruptions(candidate.pool, view.snapshot, reason=reason, now=view.now)
            detail = f"{left} more of NodePool {candidate.pool.name} may go now"
            checks.append(Check(what=f"budgets for {reason}", ok=left > 0, detail=detail))
        if held:
            checks.append(self._policy(candidate))
            checks.append(self._savings(candidate))
        elif disruption.consolidate_after == "Never":
            checks.append(Check(what="consolidateAfter", ok=False, detail="Never: empty nodes stay"))
        return tuple(checks)

    def _obstacle(self, candidate: Candidate) -> Check:
        held = candidates.disruption_blocker(self.view, candidate)
        return Check(
            what="may be disrupted", ok=held is None, detail=held.message if held is not None else "nobody forbids it"
        )

    def _policy(self, candidate: Candidate) -> Check:
        disruption = candidate.pool.spec.disruption
        if disruption.consolidation_policy == "WhenEmpty":
            detail = f"WhenEmpty: NodePool {candidate.pool.name} lets only empty nodes go"
            return Check(what="consolidationPolicy", ok=False, detail=detail)
        if disruption.consolidate_after == "Never":
            return Check(what="consolidateAfter", ok=False, detail="Never: used nodes stay")
        up = condition(candidate.claim.status.conditions, nodeclaim.INITIALIZED)
        came = [p.status.start_time or p.metadata.creation_timestamp for p in candidate.pods]
        times = [t for t in (up.last_transition_time if up is not None else None, *came) if t is not None]
        quiet = terminal.age(self.observed.now - max(times)) if times else "?"
        detail = (
            f"{disruption.consolidation_policy}, after {disruption.consolidate_after} without new pods (now {quiet})"
        )
        return Check(what="consolidationPolicy", ok=True, detail=detail)

    def _savings(self, candidate: Candidate) -> Check:
        """What this node alone would save: the nearest miss of consolidation."""
        price = self.view.price(candidate.claim)
        if price is None:
            return Check(what="saves", ok=False, detail="its price isn't known, so nobody knows what would be saved")
        placing = simulate_scheduling(self.view, [candidate])
        if placing.unschedulable:
            pod, why = next(iter(placing.unschedulable.items()))
            return Check(what="its pods have places elsewhere", ok=False, detail=f"pod {pod} has none: {why}")
        moved = terminal.plural(len(candidate.pods), "pod")
        if not placing.node_claims:
            return Check(what="saves", ok=True, detail=f"{terminal.usd(price)}/h: its {moved} fit on other nodes")
        least = price * (1 - savings.MIN_PRICE_IMPROVEMENT)
        machines = ", ".join(
            f"{c.cheapest.instance_type} {c.cheapest.capacity_type}" for c in placing.node_claims[:_SHOWN]
        )
        detail = (
            f"its {moved} would need {machines} for {terminal.usd(placing.price)}/h; it costs {terminal.usd(price)}/h"
        )
        if placing.price > least:
            return Check(
                what="saves", ok=False, detail=f"{detail}, and {savings.MIN_PRICE_IMPROVEMENT:.0%} less is asked"
            )
        return Check(what="saves", ok=True, detail=detail)


def _expiry(expires: datetime | None, now: datetime) -> str:
    if expires is None:
        return "never"
    if expires > now:
        return f"in {terminal.age(expires - now)}"
    return f"{terminal.age(now - expires)} ago: it may be replaced"


def _some(pods: Sequence[Pod]) -> str:
    keys = sorted(p.key for p in pods)
    return f"{', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"  # noqa: PLR2004 (three fit)
