"""Why a node is kept or disrupted: its state, the checks of disruption, and what its disruption would save."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from cli import terminal
from cli.cluster.observed_cluster import as_decided, disruption_view
from cli.cluster.pricing import offering_prices
from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section
from cli.explain.node_checks import SAVES, NodeChecks
from cli.explain.node_claims import STANDBY_REASONS
from cli.plan import planning
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.labels import offering_key
from shared.api.meta import is_true
from shared.api.nodeclaim import is_rebooting, rebooting_message
from shared.api.standby import standby_state
from shared.api.zonal_shift import format_shifts
from shared.base.plurals import plural
from shared.base.struct import Struct, with_fields
from shared.disruption import candidates, static_disruption
from shared.disruption.command import UNDERUTILIZED
from shared.disruption.disruption_queue import is_queued, queue_entry
from shared.disruption.disruption_state import workload_pods
from shared.node_groups.scale_down import is_being_removed
from shared.scheduling.buffers.chunks import buffer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.plan.planning import DisruptionPlan
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import ResolvedNodePools
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState

SEARCH_SECONDS = 2.0
"""Time limit of the consolidation search."""
_MAX_SIMILAR = 3


def explain(observed: ObservedCluster, name: str) -> Explanation:
    """Why the node is kept or disrupted. The name may be given without its domain.

    Raises:
        UsageError: the node doesn't exist.
    """
    node = next(
        (n for n in observed.snapshot.nodes if name in {n.metadata.name, n.metadata.name.partition(".")[0]}), None
    )
    if node is None:
        raise UsageError(f"there is no node {name}{_similar(observed, name)}")
    claim = _claim_of(observed, node)
    if claim is None or not standby_state(claim):
        observed = as_decided(observed)
    resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
    view = planning.with_empty_conditions(disruption_view(observed, resolved_pools))
    view = with_fields(view, nominated=view.nominated | _nominated(observed, resolved_pools))
    explanation = _NodeExplanation(
        observed=observed, resolved_pools=resolved_pools, view=view, node=node, claim=claim
    ).explain()
    history = observed.history
    return explanation.with_history(history.events(node.ref), history.decisions(node.metadata.name))


def _similar(observed: ObservedCluster, name: str) -> str:
    similar = sorted(n.metadata.name for n in observed.snapshot.nodes if name in n.metadata.name)[:_MAX_SIMILAR]
    claim = next((c for c in observed.snapshot.node_claims if c.name == name and c.status.node_name), None)
    if claim is not None:
        similar = [claim.status.node_name]
    return f"; there is {', '.join(similar)}" if similar else ""


def _nominated(observed: ObservedCluster, resolved_pools: ResolvedNodePools) -> frozenset[str]:
    """The nodes that pending pods will be bound to."""
    decision = planning.plan_launches(observed, resolved_pools)
    return frozenset(name for name, pods in decision.existing_nodes.items() if pods)


def _claim_of(observed: ObservedCluster, node: Node) -> NodeClaim | None:
    provider_id, name = node.spec.provider_id, node.metadata.name
    return next(
        (
            c
            for c in observed.snapshot.node_claims
            if c.status.node_name == name or (provider_id and c.status.provider_id == provider_id)
        ),
        None,
    )


class _NodeExplanation(Struct, kw_only=True):
    """One node, and the cluster that it is explained in."""

    observed: ObservedCluster
    resolved_pools: ResolvedNodePools
    view: DisruptionState
    node: Node
    claim: NodeClaim | None

    def explain(self) -> Explanation:
        about = self._about()
        not_candidate = self._not_candidate()
        if not_candidate is not None:
            return with_fields(not_candidate, sections=(about,))
        candidate = next(c for c in candidates.all_candidates(self.view) if c.name == self.node.metadata.name)
        checks = NodeChecks(view=self.view, candidate=candidate).all()
        sections = (about, Section(title="Disruption checks", checks=checks))
        return with_fields(self._outcome(candidate, checks), sections=sections)

    def _outcome(self, candidate: Candidate, checks: tuple[Check, ...]) -> Explanation:
        """What disruption would do with the candidate now, and why."""
        observed = with_fields(self.observed, snapshot=self.view.snapshot)
        plan = planning.plan_disruption(observed, self.resolved_pools, _time_limit())
        command = next((a for a in plan.actions if candidate.name in a.nodes), None)
        if command is not None:
            reason = f"{command.reason}: {command.message}"
            return self._explanation("is disrupted now", reason, command.reason)
        pending = next((p for p in plan.pending if p.node == candidate.name), None)
        if pending is not None:
            after = candidate.pool.spec.disruption.consolidate_after
            due = terminal.age(pending.due - self.observed.now)
            reason = f"it is empty and is disrupted in {due} (consolidateAfter {after})"
            return self._explanation("waits for consolidateAfter", reason, "consolidateAfter")
        failed = next((c for c in checks if c.ok is False), None)
        if failed is not None:
            return self._explanation("is kept", f"{failed.name}: {failed.detail}", failed.name)
        blocked = next((b for b in plan.blocked if b.node == candidate.name), None)
        if blocked is not None:
            return self._explanation("is kept", f"{blocked.reason}: {blocked.message}", blocked.reason)
        if not candidate.pods and self._buffers():
            reason = f"it has {self._buffers()}, and no other node has, nor is a replacement cheaper"
            return self._explanation("is kept", reason, "buffer")
        return self._explanation("is kept", self._why_later(plan, checks), "later")

    def _why_later(self, plan: DisruptionPlan, checks: tuple[Check, ...]) -> str:
        """Why a node whose removal would save money is kept now."""
        saves = next((f"its removal would save {c.detail.partition(':')[0]}" for c in checks if c.name == SAVES), "")
        best = next((a for a in plan.actions if a.reason == UNDERUTILIZED), None)
        if best is not None:
            first = ", ".join(best.nodes[:_MAX_SIMILAR]) + (", …" if len(best.nodes) > _MAX_SIMILAR else "")
            return f"{saves}; the best removal now is that of {first}, which saves {terminal.usd(best.savings)}/h"
        if not plan.search_completed:
            return f"{saves}; the search for the best removal was stopped after {SEARCH_SECONDS:g} s"
        return f"{saves}; disruption decides about it with its next search"

    def _explanation(self, state: str, reason: str, criterion: str) -> Explanation:
        return Explanation(subject=f"Node {self.node.metadata.name}", state=state, reason=reason, criterion=criterion)

    def _about(self) -> Section:
        labels = self.node.metadata.labels
        instance_type, zone, capacity_type = offering_key(labels)
        price = offering_prices(self.resolved_pools).of_node(labels)
        cost = f"{terminal.usd(price)}/h" if price is not None else "unknown price"
        created = self.node.metadata.creation_timestamp
        pods = self.view.pods.get(self.node.metadata.name, ())
        workload = workload_pods(pods)
        groups = self.observed.node_groups
        group = groups.group_by_node.get(self.node.metadata.name, "") if groups is not None else ""
        details = {
            "instance": f"{instance_type or '?'}, {capacity_type}, {zone}, {cost}",
            "in decisions": self._decided_price(price),
            "pool": labels.get(names.NODEPOOL) or ("" if group else "none"),
            "node group": group,
            "age": terminal.age(self.observed.now - created) if created else "?",
            "buffers": self._buffers(),
            "pods": f"{len(workload)} to reschedule, {len(pods) - len(workload)} of DaemonSets and others",
        }
        checks = tuple(Check(name=name, ok=None, detail=detail) for name, detail in details.items() if detail)
        return Section(title="Node", checks=checks)

    def _decided_price(self, price: float | None) -> str:
        """What decisions count for the node, and of what, if that isn't the price of its instance alone."""
        decided = self.view.price(self.claim) if self.claim is not None else None
        if decided is None or price is None or terminal.usd(decided) == terminal.usd(price):
            return ""
        volumes = self.resolved_pools.volume_prices.get(self.node.metadata.labels.get(names.NODEPOOL, ""), 0.0)
        parts = [f"{terminal.usd(volumes)}/h for its volumes"] if volumes else []
        if self.resolved_pools.coverage is not None:
            parts.append("less what commitments pay")
        return f"{terminal.usd(decided)}/h: with {', '.join(parts)}" if parts else f"{terminal.usd(decided)}/h"

    def _buffers(self) -> str:
        """The CapacityBuffers that the node has room for; empty if there are none."""
        chunks = Counter(buffer_of(chunk.key) for chunk in self.view.chunks.get(self.node.metadata.name, ()))
        return ", ".join(f"room for {plural(count, 'chunk')} of {key}" for key, count in sorted(chunks.items()))

    def _not_candidate(self) -> Explanation | None:
        """The explanation if no disruption method considers the node."""
        claim, node = self.claim, self.node
        if claim is None:
            return self._of_group() or self._explanation(
                "is kept", "it has no NodeClaim, so Tenon doesn't manage it", "unmanaged"
            )
        disrupting = self._disrupting(claim)
        if disrupting is not None:
            return disrupting
        if is_rebooting(claim):
            return self._explanation("reboots in place", rebooting_message(claim), "rebooting")
        if not is_true(claim.status.conditions, nodeclaim.INITIALIZED):
            standby = STANDBY_REASONS.get(standby_state(claim), "")
            reason = standby or f"it is not initialized; `tenon explain nodeclaim {claim.name}` says why"
            return self._explanation("is kept", reason, "standby" if standby else "not initialized")
        pool_name = node.metadata.labels.get(names.NODEPOOL, "")
        pool = self.view.pools.get(pool_name)
        if pool is None:
            reason = f'its NodePool "{pool_name}" doesn\'t exist or is invalid, so there are no rules to disrupt it'
            return self._explanation("is kept", reason, "no pool")
        return self._by_pool(pool)

    def _of_group(self) -> Explanation | None:
        """The explanation of a node of a node group that is scaled; None for all others."""
        groups, name = self.observed.node_groups, self.node.metadata.name
        if groups is None or name not in groups.group_by_node:
            return None
        group = groups.group_by_node[name]
        if is_being_removed(self.node):
            return self._explanation("is being removed", f"node group {group} doesn't need it", "leaving")
        why = groups.scale_down.reasons.get(name)
        if why is not None:
            return self._explanation("is kept", f"it is of node group {group}, and {why}", "needed")
        when = groups.removal_time(name, self.observed.now)
        return self._explanation("isn't needed", f"it is removed from node group {group} {when}", "unneeded")

    def _by_pool(self, pool: NodePool) -> Explanation | None:
        """The explanation if the NodePool is paused or static, or the zone shifted away."""
        zone, shifted = self.node.metadata.labels.get(names.ZONE, ""), self.observed.snapshot.shifted_zones
        if zone in shifted:
            reason = f"traffic is shifted away from its zone {format_shifts(shifted, [zone])}"
            return self._explanation("is kept", reason, "shifted")
        if pool.name in self.view.paused:
            return self._explanation("is kept", self.view.paused[pool.name].message, "paused")
        if pool.spec.replicas is not None and self.node.metadata.name not in {
            c.name for c in static_disruption.find_candidates(self.view)
        }:
            reason = f"its NodePool {pool.name} is static (replicas {pool.spec.replicas}) and is not consolidated"
            return self._explanation("is kept", reason, "static")
        return None

    def _disrupting(self, claim: NodeClaim) -> Explanation | None:
        """The explanation if the NodeClaim is being deleted or waits for its replacement."""
        entry = queue_entry(claim)
        reason = f"{entry.reason}: {entry.message}" if entry is not None else ""
        if claim.metadata.deletion_timestamp is not None:
            drain = self._drain_status()
            reason = (reason or "its NodeClaim was deleted") + (f"; {drain}" if drain else "")
            return self._explanation("is being deleted", reason, "leaving")
        if is_queued(claim):
            waits = f"; waits for {', '.join(entry.replacements)}" if entry is not None and entry.replacements else ""
            reason = (reason or "its NodeClaim is marked for disruption") + waits
            return self._explanation("waits for its replacement", reason, "under way")
        return None

    def _drain_status(self) -> str:
        """The first pod that can't be evicted now, or the number of pods left."""
        pods = workload_pods(self.view.pods.get(self.node.metadata.name, ()))
        for pod in pods:
            blocker = self.view.pod_disruption_budgets.eviction_blocker(pod)
            if blocker is not None:
                return f"the drain is blocked: {blocker.message}"
        return f"{plural(len(pods), 'pod')} left to evict" if pods else ""


def _time_limit() -> Callable[[], bool]:
    end = time.monotonic() + SEARCH_SECONDS
    return lambda: time.monotonic() >= end
