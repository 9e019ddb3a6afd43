"""Where every pending pod goes, at the least price: the one entry to the scheduling core.

Pods become classes, classes are dealt out to domains and onto what is there already, and machines are bought for the
rest, pools of the greatest weight first. What finds no place gives up one preference and is tried again; what has none
left to give up is told why. Pure: the same problem gives the same decision, whatever the order of its objects.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.api.pods import is_pending, is_provisionable, is_reschedulable
from shared.scheduling.decision import Decision, PlannedNodeClaim, Problem, UnschedulableReason
from shared.scheduling.results.explanation import FinalState, explain
from shared.scheduling.results.nodeclaims import claims_of
from shared.scheduling.rules.pod_affinity import Namespaces
from shared.scheduling.rules.volume_topology import Storage
from shared.scheduling.solver.planner import best_plan
from shared.scheduling.state import nominations
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options
from shared.scheduling.state.state_nodes import build_cluster_state, mounted_volumes
from shared.scheduling.topology.feasibility import FeasibilityChecker
from shared.scheduling.topology.pod_groups import group_pods

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Pod


def schedule(problem: Problem) -> Decision:
    """The decision for every pod that waits for a place.

    ``problem.pods`` None asks for those that the scheduler has called Unschedulable; named pods need only be pending.
    Pods of nodes that are leaving are placed too.
    """
    started = time.perf_counter()  # for stats alone, which are no part of the decision
    snapshot = problem.snapshot
    daemons = daemon_set_pods(snapshot.daemon_sets)
    cluster_state = build_cluster_state(snapshot, problem.instance_types, daemons, problem.leaving)
    waiting = {p.key: p for p in _waiting(problem, cluster_state.leaving | problem.leaving)}
    nominated = nominations.nominate(cluster_state, snapshot, waiting)
    cluster_state = nominated.cluster_state
    promised = nominated.deferred.union(*nominated.nominated.values())
    asked_for = {key for key in waiting if problem.pods is None or key in problem.pods}
    wanted = [pod for key, pod in waiting.items() if key in asked_for and key not in promised]
    spaces = Namespaces(snapshot.namespaces, {p.metadata.namespace or "default" for p in snapshot.pods})
    storage = Storage.of(snapshot)
    cluster_state = replace(cluster_state, mounted_volumes=mounted_volumes(cluster_state.nodes, storage))
    reading = group_pods(wanted, spaces, storage)
    asked = {r for _, sizes in reading.classes for s in sizes for r in s.requests} | {"pods"}
    launch_options = build_launch_options(
        snapshot.node_pools, problem.instance_types, daemons, _not_usable(problem), asked
    )
    checker = FeasibilityChecker(launch_options, cluster_state)
    planner = best_plan(checker, spaces, reading.classes, problem.policies)
    claims = sorted(claims_of(planner.packer, checker, planner.expand), key=_claim_order)
    found = {name: [k for k in keys if k in asked_for] for name, keys in nominated.nominated.items()}
    for i, pods in planner.existing_capacity.placed.items():
        found.setdefault(cluster_state.nodes[i].name, []).extend(planner.expand(pods))
    order = [p.name for p in cluster_state.nodes]
    existing = {name: tuple(sorted(found[name])) for name in order if found.get(name)}
    errors: dict[str, UnschedulableReason] = dict(reading.refused)
    known = FinalState(planner.limits.left, planner.topology, planner.present())
    for group in planner.unplaced:
        reasons: dict[tuple[int, ...], UnschedulableReason] = {}
        for requests, pods in group.sizes:
            key = tuple(requests.tolist())
            if key not in reasons:
                reasons[key] = explain(group, requests, checker, known)
            errors.update(dict.fromkeys(planner.expand(pods), reasons[key]))
    stats = {
        "pods": float(len(asked_for)),
        "claims": float(len(claims)),
        "price": sum(c.cheapest.price for c in claims),
        "seconds": time.perf_counter() - started,
    }
    return Decision(
        new_node_claims=tuple(claims),
        existing_nodes=existing,
        pod_errors=dict(sorted(errors.items())),
        deferred=nominated.deferred & asked_for,
        stats=stats,
    )


def _not_usable(problem: Problem) -> dict[str, str]:
    """The pools that can't launch now, or can't be read, and why."""
    kinds = {"NodePool", "Provisioner"}
    unread = {i.ref.name: i.problems[0] for i in problem.snapshot.invalid if i.ref.kind in kinds and i.problems}
    return {**unread, **problem.not_ready}


def _claim_order(claim: PlannedNodeClaim) -> tuple[str, tuple[str, ...]]:
    return claim.node_pool, claim.pods


def _waiting(problem: Problem, leaving: frozenset[str]) -> Iterable[Pod]:
    """The pods that need a place: pending ones, and those of nodes that are leaving."""
    for pod in problem.snapshot.pods:
        if pod.spec.node_name:
            if pod.spec.node_name in leaving and is_reschedulable(pod):
                yield pod
        elif is_provisionable(pod) or (problem.pods is not None and pod.key in problem.pods and is_pending(pod)):
            yield pod
