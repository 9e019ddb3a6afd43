"""Computes a plan: launches for pending pods, then disruption, with the cost before and after.

The functions' own scheduling and disruption code decides. Disruption is computed for the cluster after the launches:
pods that fit on existing nodes are bound there.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from cli.cluster.observed_cluster import disruption_view, with_snapshot
from cli.cluster.pricing import cluster_cost, nodes_cost, offering_prices
from cli.plan.traffic import PlannedTraffic
from shared.api import nodeclaim
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import condition
from shared.api.pods import is_pending, is_reschedulable
from shared.base.struct import Struct, with_fields
from shared.disruption import emptiness
from shared.disruption.budgets import BudgetTracker
from shared.disruption.command import EMPTY
from shared.disruption.disruption_queue import replaced_claims
from shared.disruption.methods import METHODS
from shared.provisioning.nodeclaim_creation import new_node_claims
from shared.scheduling.buffers.chunks import buffer_of, resolved_buffers
from shared.scheduling.decision import Decision, Problem
from shared.scheduling.scheduler import schedule
from shared.scheduling.state.ignored_daemonsets import ignored_daemon_sets
from shared.scheduling.static_pools import missing_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.cluster.pricing import Prices
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import ResolvedNodePools
    from shared.disruption.command import BlockedCandidate, Command
    from shared.disruption.disruption_state import DisruptionState
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.snapshot import BufferObjects, Snapshot

_STATIC = "plan/static"
"""The decision that the names of static pools' planned nodes follow from."""


class PendingDisruption(Struct, kw_only=True):
    """A node that is disrupted at ``due`` if nothing changes until then."""

    node: str
    reason: str
    due: datetime


class DisruptionPlan(Struct, kw_only=True):
    """Actions in their order, nodes that are blocked and why, and nodes that are disrupted later.

    ``search_completed`` is False if the consolidation search was stopped.
    """

    actions: tuple[Command, ...] = ()
    blocked: tuple[BlockedCandidate, ...] = ()
    pending: tuple[PendingDisruption, ...] = ()
    search_completed: bool = True

    @property
    def decided_savings(self) -> float:
        """USD per hour of all actions as decisions count them: with volumes, and what commitments pay."""
        return sum(a.savings for a in self.actions)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all disrupted nodes."""
        return tuple(node for a in self.actions for node in a.nodes)


class Plan(Struct, kw_only=True, dict=True):
    """``cost_before`` is USD per hour, without the ``unpriced`` nodes. ``lost`` nodes are removed by assumption.

    ``launches`` holds new NodeClaims, pods that fit on existing nodes, and pods that can't be scheduled.
    ``after_launches`` is the cluster that disruption was decided for. ``missing_replicas`` says by static NodePool why
    not all of its replicas can be launched.
    """

    cost_before: float
    unpriced: int
    lost: tuple[str, ...] = ()
    launches: Decision = Decision()
    disruption: DisruptionPlan = DisruptionPlan()
    snapshot: Snapshot
    after_launches: Snapshot
    resolved_pools: ResolvedNodePools
    missing_replicas: Mapping[str, str] = {}
    traffic: PlannedTraffic = PlannedTraffic()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the plan leaves out.

        NodeOverlays that aren't applied, replicas of static NodePools, and DaemonSets that new nodes keep no room for.
        """
        conflicts = sorted(self.resolved_pools.overlay_conflicts.items())
        missing = sorted(self.missing_replicas.items())
        ignored = (
            ignored_daemon_sets(self.snapshot, self.resolved_pools.instance_types)
            if self.launches.new_node_claims
            else ()
        )
        return (
            *(f"NodeOverlay {name}: {conflict}" for name, conflict in conflicts),
            *(f"NodePool {name}: {why}" for name, why in missing),
            *(f"{ref}: {why}" for ref, why in ignored),
        )

    @property
    def launch_cost(self) -> float:
        """USD per hour of the new NodeClaims."""
        return sum(c.cheapest.price for c in self.launches.new_node_claims)

    @cached_property
    def prices(self) -> Prices:
        """The prices of all offerings: each amount of the plan is made with them."""
        return offering_prices(self.resolved_pools)

    @property
    def lost_cost(self) -> float:
        """USD per hour of the lost nodes."""
        return self._cost_of(self.lost)

    @property
    def savings(self) -> float:
        """USD per hour by which disruption lowers the price of nodes; volumes and commitments don't count here."""
        return sum(self.savings_of(action) for action in self.disruption.actions)

    def savings_of(self, action: Command) -> float:
        """The part of one action."""
        return self._cost_of(action.nodes) - sum(c.cheapest.price for c in action.replacements)

    @property
    def cost_after(self) -> float:
        """USD per hour of nodes after launches and disruption: the sum of the other amounts."""
        return self.cost_before - self.lost_cost + self.launch_cost - self.savings

    def _cost_of(self, nodes: Collection[str]) -> float:
        cost, _ = nodes_cost((n for n in self.snapshot.nodes if n.metadata.name in nodes), self.prices)
        return cost


def make_plan(
    observed: ObservedCluster,
    resolved_pools: ResolvedNodePools,
    *,
    lost: Collection[str] = (),
    should_stop: Callable[[], bool],
) -> Plan:
    """The plan for a cluster without the ``lost`` nodes. ``should_stop`` ends the consolidation search."""
    snapshot = observed.snapshot
    cost_before, unpriced = cluster_cost(snapshot, resolved_pools)
    launches = plan_launches(observed, resolved_pools, lost=lost)
    after_launches = _after_launches(snapshot, launches, lost)
    return Plan(
        cost_before=cost_before,
        unpriced=unpriced,
        lost=tuple(sorted(lost)),
        launches=launches,
        disruption=plan_disruption(with_snapshot(observed, after_launches), resolved_pools, should_stop),
        snapshot=snapshot,
        after_launches=after_launches,
        resolved_pools=resolved_pools,
        missing_replicas=_missing_replicas(snapshot, resolved_pools)[1],
    )


def plan_launches(
    observed: ObservedCluster, resolved_pools: ResolvedNodePools, *, lost: Collection[str] = ()
) -> Decision:
    """The scheduling decision for pending pods and those of lost nodes, whether or not kube-scheduler tried them."""
    view = disruption_view(observed, resolved_pools)
    replicas, _ = _missing_replicas(observed.snapshot, resolved_pools)
    claims = new_node_claims(replicas, observed.snapshot, resolved_pools, decision=_STATIC)
    snapshot = with_fields(observed.snapshot, node_claims=(*observed.snapshot.node_claims, *claims))
    leaving = frozenset(lost) | view.disrupting_nodes
    pods = frozenset(
        p.key
        for p in snapshot.pods
        if (is_pending(p) and not p.status.nominated_node_name) or (p.spec.node_name in leaving and is_reschedulable(p))
    )
    decision = schedule(
        Problem(
            snapshot=snapshot,
            instance_types=resolved_pools.instance_types,
            not_ready=resolved_pools.not_ready,
            leaving=leaving,
            pods=pods,
            policies=observed.policies,
            unused=resolved_pools.unused,
        )
    )
    return _with_replicas(
        with_fields(decision, pod_errors={**decision.pod_errors, **observed.unreadable_pods}),
        replicas,
        claims,
    )


def _missing_replicas(
    snapshot: Snapshot, resolved_pools: ResolvedNodePools
) -> tuple[tuple[PlannedNodeClaim, ...], Mapping[str, str]]:
    """The nodes that static pools lack, and by pool why not all of them can be launched.

    The provisioner launches them first, so that pods can be planned on them.
    """
    if all(pool.spec.replicas is None for pool in snapshot.node_pools):
        return (), {}
    replaced = replaced_claims(snapshot.node_claims)
    planned, errors = missing_replicas(snapshot, resolved_pools.instance_types, resolved_pools.not_ready, replaced)
    return tuple(claim for claim in planned if claim.node_pool in resolved_pools.node_classes), errors


def _with_replicas(decision: Decision, replicas: Sequence[PlannedNodeClaim], claims: Sequence[NodeClaim]) -> Decision:
    """The decision with the nodes of static pools, and the pods that are planned on them."""
    if not replicas:
        return decision
    existing = dict(decision.existing_nodes)
    with_pods = [
        with_fields(replica, pods=tuple(existing.pop(claim.name, ())))
        for replica, claim in zip(replicas, claims, strict=True)
    ]
    return with_fields(decision, existing_nodes=existing, new_node_claims=(*with_pods, *decision.new_node_claims))


def _after_launches(snapshot: Snapshot, launches: Decision, lost: Collection[str]) -> Snapshot:
    """The cluster after the launches: pods are bound to existing nodes, and those of new NodeClaims are left out."""
    lost_nodes = set(lost)
    node_names = {n.metadata.name for n in snapshot.nodes}
    node_by_pod = {key: node for node, keys in launches.existing_nodes.items() for key in keys}
    not_on_a_node = {key for claim in launches.new_node_claims for key in claim.pods} | set(launches.pod_errors)
    pods = []
    for pod in snapshot.pods:
        node = node_by_pod.get(pod.key)
        if node is None:
            if pod.key not in not_on_a_node and pod.spec.node_name not in lost_nodes:
                pods.append(pod)
        elif node in node_names:
            spec = with_fields(pod.spec, node_name=node)
            pods.append(with_fields(pod, spec=spec))
    return with_fields(
        snapshot,
        pods=tuple(pods),
        capacity_buffers=_without_launched(snapshot, launches),
        nodes=tuple(n for n in snapshot.nodes if n.metadata.name not in lost_nodes),
        node_claims=tuple(c for c in snapshot.node_claims if c.status.node_name not in lost_nodes),
    )


def _without_launched(snapshot: Snapshot, launches: Decision) -> tuple[BufferObjects, ...]:
    """The CapacityBuffers less the chunks that new NodeClaims have room for."""
    launched = Counter(buffer_of(chunk) for claim in launches.new_node_claims for chunk in claim.chunks)
    remaining = []
    for resolved in resolved_buffers(snapshot):
        objects, buffer = resolved.objects, resolved.objects.buffer
        if launched[objects.key]:
            chunks = resolved.chunks - launched[objects.key]
            spec = with_fields(buffer.spec, replicas=chunks, percentage=None, limits=None)
            objects = with_fields(objects, buffer=with_fields(buffer, spec=spec))
        remaining.append(objects)
    return tuple(remaining)


def plan_disruption(
    observed: ObservedCluster, resolved_pools: ResolvedNodePools, should_stop: Callable[[], bool]
) -> DisruptionPlan:
    """What disruption would do now: every method in its order, each on the nodes that the earlier ones leave."""
    view = with_empty_conditions(disruption_view(observed, resolved_pools))
    slots = BudgetTracker(view.snapshot, now=view.now)
    actions: list[Command] = []
    blocked: list[BlockedCandidate] = []
    stopped = False

    def stop() -> bool:
        nonlocal stopped
        stopped = should_stop()
        return stopped

    pending = _pending_disruptions(view)
    for method in METHODS:
        command = method.compute(view, slots, stop)
        actions += command.commands
        blocked += command.blocked
        if command.commands:
            view = _without(view, {node for a in command.commands for node in a.nodes})
    disrupted_nodes = {node for a in actions for node in a.nodes}
    return DisruptionPlan(
        actions=tuple(actions),
        blocked=tuple(b for b in blocked if b.node not in disrupted_nodes),
        pending=tuple(p for p in pending if p.node not in disrupted_nodes),
        search_completed=not stopped,
    )


def with_empty_conditions(view: DisruptionState) -> DisruptionState:
    """The view with ``Empty`` conditions as the disruption function would set them.

    They date from the last pod event where it is known, so that consolidateAfter counts from there.
    """
    changes = {o.claim.name: o for o in emptiness.empty_condition_changes(view)}
    if not changes:
        return view
    claims = []
    for claim in view.snapshot.node_claims:
        change = changes.get(claim.name)
        if change is not None:
            since = _last_pod_event(claim) or view.now
            claim = emptiness.with_empty_condition(claim, is_empty=change.is_empty, now=min(since, view.now))  # noqa: PLW2901 (the same claim, updated)
        claims.append(claim)
    return with_fields(view, snapshot=with_fields(view.snapshot, node_claims=tuple(claims)))


def _last_pod_event(claim: NodeClaim) -> datetime | None:
    initialized = condition(claim.status.conditions, nodeclaim.INITIALIZED)
    times = [claim.status.last_pod_event_time, initialized.last_transition_time if initialized is not None else None]
    return max((t for t in times if t is not None), default=None)


def _pending_disruptions(view: DisruptionState) -> tuple[PendingDisruption, ...]:
    """The empty nodes that have not been empty for consolidateAfter."""
    pending = []
    for candidate in emptiness.find_candidates(view):
        empty = condition(candidate.claim.status.conditions, nodeclaim.EMPTY)
        try:
            after = parse_duration(candidate.pool.spec.disruption.consolidate_after)
        except DurationError:
            continue
        if empty is None or empty.last_transition_time is None or after is None:
            continue
        due = empty.last_transition_time + after
        if due > view.now:
            pending.append(PendingDisruption(node=candidate.name, reason=EMPTY, due=due))
    return tuple(pending)


def _without(view: DisruptionState, nodes: Collection[str]) -> DisruptionState:
    """The view without these nodes and their pods, which are scheduled elsewhere already."""
    snapshot = view.snapshot
    return with_fields(
        view,
        snapshot=with_fields(
            snapshot,
            pods=tuple(p for p in snapshot.pods if p.spec.node_name not in nodes),
            nodes=tuple(n for n in snapshot.nodes if n.metadata.name not in nodes),
            node_claims=tuple(c for c in snapshot.node_claims if c.status.node_name not in nodes),
        ),
    )
