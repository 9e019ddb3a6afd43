"""Schedules pending pods at the least price: the entry to scheduling.

1. Existing and coming nodes, less running, DaemonSets' and nominated pods, are the state nodes.
2. Pending pods that aren't nominated are grouped by their rules.
3. NodePools and their instance types are the launch options, greatest NodePool weight first.
4. The solver places the groups on existing capacity, then on the cheapest new nodes. Pods that find no capacity have
   their preferences relaxed one by one.
5. New nodes become NodeClaims; pods that are left are unschedulable, with a reason.
6. The chunks of CapacityBuffers follow the pods, or pods that are expected (``shared.scheduling.buffers``).

Pure: the same problem gives the same decision, whatever the order of its objects.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shared.api.labels import SPOT_SHARE
from shared.api.pods import is_pending, is_reschedulable, is_unschedulable
from shared.base.struct import Struct, with_fields
from shared.scheduling.buffers import chunk_placement
from shared.scheduling.decision import Decision, Placement, PlannedNodeClaim, Problem, UnschedulableReason
from shared.scheduling.nominations.nominated_pods import Nominations, nominate
from shared.scheduling.results.explanation import FinalState, explain
from shared.scheduling.results.nodeclaims import planned_node_claims
from shared.scheduling.rules.pod_affinity import Namespaces
from shared.scheduling.rules.volume_topology import Storage
from shared.scheduling.solver.bins import with_limit_prices
from shared.scheduling.solver.portfolio import best_plan
from shared.scheduling.state.cluster_usage import with_possible_capacity
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options
from shared.scheduling.state.state_nodes import build_state_nodes, mounted_volumes, pods_by_node
from shared.scheduling.topology.feasibility import FeasibilityChecker
from shared.scheduling.topology.pod_groups import count_volumes, group_pods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.api.kubernetes import Pod
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.solver.plan import Plan
    from shared.scheduling.state.daemonsets import DaemonSetPod
    from shared.scheduling.state.state_nodes import StateNodes
    from shared.scheduling.topology.pod_groups import GroupedPods
    from shared.snapshot import Snapshot

    TypesByPool = Mapping[str, tuple[InstanceType, ...]]


def schedule(problem: Problem) -> Decision:
    """The decision for all pods that need a node.

    ``problem.pods`` None: pods that kube-scheduler marked Unschedulable. Named pods only need to be pending. Pods of
    nodes that are leaving are scheduled too.
    """
    started = time.perf_counter()  # for stats only, which are no part of the decision
    snapshot = problem.snapshot
    daemons = daemon_set_pods(snapshot) if snapshot.daemon_sets else ()
    state_nodes = _state_nodes(problem)
    pods = {pod.key: pod for pod in _pods_without_node(problem, state_nodes.leaving | problem.leaving)}
    requested = {key for key in pods if problem.pods is None or key in problem.pods}

    has_nominations = snapshot.node_claims or any(pod.status.nominated_node_name for pod in pods.values())
    nominations = (
        nominate(state_nodes, snapshot, pods) if has_nominations else Nominations(state_nodes, {}, frozenset())
    )
    nominated = nominations.deferred.union(*nominations.pods_by_node.values())
    pending = [pod for key, pod in pods.items() if key in requested and key not in nominated]
    placer = _Placer(
        problem=problem,
        daemons=daemons,
        namespaces=Namespaces(snapshot.namespaces, snapshot.pods),
        storage=Storage(snapshot),
        not_on_spot=_not_on_spot(snapshot, pending, nominations),
    )
    place = _with_gangs(_planner(problem, placer), problem, pending, nominations.deferred)
    if snapshot.capacity_buffers or snapshot.growth:
        placement, buffers = chunk_placement.place(place, nominations.state_nodes, pending, snapshot)
    else:
        placement, buffers = place(nominations.state_nodes, pending), Placement()
    return Decision(
        new_node_claims=placement.node_claims,
        existing_nodes=_existing_nodes(nominations, requested, placement),
        pod_errors=placement.errors,
        deferred=nominations.deferred & requested,
        chunks=buffers.existing_nodes,
        chunk_errors=buffers.errors,
        stats={
            "pods": float(len(requested)),
            "claims": float(len(placement.node_claims)),
            "price": sum(claim.cheapest.price for claim in placement.node_claims),
            "seconds": time.perf_counter() - started,
        },
    )


def _state_nodes(problem: Problem) -> StateNodes:
    state_nodes = build_state_nodes(problem.snapshot, problem.instance_types, problem.leaving)
    if not problem.snapshot.cluster_limits:
        return state_nodes
    return with_possible_capacity(state_nodes, problem.snapshot, problem.instance_types)


def _not_on_spot(snapshot: Snapshot, pending: Iterable[Pod], nominations: Nominations) -> frozenset[str]:
    """The pods whose workload has as many on spot as its share allows."""
    pending = [pod for pod in pending if SPOT_SHARE in pod.metadata.annotations]
    if not pending:
        return frozenset()
    # Imported here: few clusters have such workloads.
    from shared.scheduling.spot_shares import pods_not_on_spot  # noqa: PLC0415

    return pods_not_on_spot(snapshot, pending, nominations.pods_by_node, nominations.state_nodes.nodes)


def _planner(problem: Problem, placer: _Placer) -> chunk_placement.Place:
    """Plans with what is left of commitments, if there is any."""
    if problem.unused is None or problem.unused.is_used_up:
        return placer.place
    # Imported here: most clusters have no commitments.
    from shared.scheduling.committed_nodes import CommittedPlanner  # noqa: PLC0415

    planner = CommittedPlanner(
        plan=placer.place,
        unused=problem.unused,
        instance_types=problem.instance_types,
        node_pools=problem.snapshot.node_pools,
    )
    return planner.place


def _with_gangs(
    place: chunk_placement.Place, problem: Problem, pending: Iterable[Pod], deferred: frozenset[str]
) -> chunk_placement.Place:
    """Plans gangs all or nothing, if there are any."""
    snapshot = problem.snapshot
    if not snapshot.pod_groups and all(pod.spec.scheduling_group is None for pod in pending):
        return place
    # Imported here: few clusters have gangs.
    from shared.scheduling.gangs import GangPlanner  # noqa: PLC0415

    planner = GangPlanner(
        plan=place,
        pod_groups=snapshot.pod_groups,
        instance_types=problem.instance_types,
        members_without_node=[p for p in snapshot.pods if p.key in deferred or p.status.phase == "Succeeded"],
    )
    return planner.place


class _Placer(Struct, kw_only=True, eq=False):
    """Plans pods on given nodes and on new ones."""

    problem: Problem
    daemons: tuple[DaemonSetPod, ...]
    namespaces: Namespaces
    storage: Storage
    not_on_spot: frozenset[str]

    def place(
        self, state_nodes: StateNodes, pods: Iterable[Pod], instance_types: TypesByPool | None = None
    ) -> Placement:
        """The best plan of the solver, with these instance types or the problem's."""
        pods = tuple(pods)
        if not pods:
            return Placement()
        problem = self.problem
        state_nodes = with_fields(state_nodes, mounted_volumes=mounted_volumes(state_nodes.nodes, self.storage))
        grouped = group_pods(pods, self.namespaces, self.storage, self.not_on_spot)
        count_volumes(grouped)
        launch_options = build_launch_options(
            problem.snapshot.node_pools,
            problem.instance_types if instance_types is None else instance_types,
            self.daemons,
            _unusable_pools(problem),
            _requested_resources(grouped),
            problem.snapshot.cluster_limits,
        )
        if problem.snapshot.shifted_zones:
            launch_options = with_fields(launch_options, shifted_zones=frozenset(problem.snapshot.shifted_zones))
        checker = FeasibilityChecker(launch_options, state_nodes)
        priced = launch_options if problem.leaving else with_limit_prices(checker, grouped.groups)
        if priced is not launch_options:
            checker = FeasibilityChecker(priced, state_nodes)
        plan = best_plan(checker, self.namespaces, grouped.groups, problem.policies)
        return Placement(
            node_claims=tuple(sorted(planned_node_claims(plan.bins, plan.pod_keys), key=_claim_order)),
            existing_nodes={
                state_nodes.nodes[i].name: tuple(plan.pod_keys(keys))
                for i, keys in plan.existing_capacity.placed.items()
            },
            errors=dict(sorted({**grouped.errors, **_unschedulable(plan, checker)}.items())),
        )


def schedule_on_existing_nodes(snapshot: Snapshot, leaving: frozenset[str] = frozenset()) -> Decision:
    """The decision for pending pods and chunks of CapacityBuffers if nothing could be launched."""
    no_types: dict[str, tuple[()]] = {p.name: () for p in snapshot.node_pools}
    return schedule(Problem(snapshot=snapshot, instance_types=no_types, leaving=leaving))


def _pods_without_node(problem: Problem, leaving: frozenset[str]) -> Iterator[Pod]:
    """Pending pods, and pods that have to move as their node is leaving."""
    pods = pods_by_node(problem.snapshot)
    for name in leaving:
        yield from (pod for pod in pods.get(name, ()) if is_reschedulable(pod))
    for pod in pods.get("", ()):
        if is_unschedulable(pod) or (problem.pods is not None and pod.key in problem.pods and is_pending(pod)):
            yield pod


def _unusable_pools(problem: Problem) -> dict[str, str]:
    """The NodePools that can't launch now, are invalid, or another provisioner's, with the reason.

    A NodePool and a Provisioner may have the same name, of which one is used and the other is invalid.
    """
    kinds = {"NodePool", "Provisioner"}
    snapshot = problem.snapshot
    used = {pool.name for pool in snapshot.node_pools}
    invalid = {
        i.ref.name: i.problems[0]
        for i in snapshot.invalid
        if i.ref.kind in kinds and i.problems and i.ref.name not in used
    }
    return {**snapshot.foreign_pools, **invalid, **problem.not_ready}


def _requested_resources(grouped: GroupedPods) -> set[str]:
    return {name for _, sizes in grouped.groups for sized in sizes for name in sized.requests} | {"pods"}


def _existing_nodes(
    nominations: Nominations, requested: Iterable[str], placement: Placement
) -> dict[str, tuple[str, ...]]:
    """The pods by existing node: nominated ones that were requested, and those that are placed there."""
    pods_by_node = {name: [key for key in keys if key in requested] for name, keys in nominations.pods_by_node.items()}
    for name, keys in placement.existing_nodes.items():
        pods_by_node.setdefault(name, []).extend(keys)
    return {
        node.name: tuple(sorted(pods_by_node[node.name]))
        for node in nominations.state_nodes.nodes
        if pods_by_node.get(node.name)
    }


def _unschedulable(plan: Plan, checker: FeasibilityChecker) -> dict[str, UnschedulableReason]:
    """The reason for each pod that the plan leaves out."""
    errors: dict[str, UnschedulableReason] = {}
    final_state = FinalState(plan.limits.left, plan.limits.cluster_left, plan.topology, plan.present_host_terms())
    for group in plan.unscheduled:
        reasons: dict[bytes, UnschedulableReason] = {}
        for requests, pods in group.sizes:
            size = requests.tobytes()
            if size not in reasons:
                reasons[size] = explain(group, requests, checker, final_state)
            errors.update(dict.fromkeys(plan.pod_keys(pods), reasons[size]))
    return errors


def _claim_order(claim: PlannedNodeClaim) -> tuple[str, tuple[str, ...]]:
    return claim.node_pool, claim.pods
