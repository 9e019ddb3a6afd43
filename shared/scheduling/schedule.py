"""Where every pending pod goes, at the least price: the one entry to the scheduling core.

Pods become classes, classes are dealt out to domains and onto what is there already, and machines are bought for the
rest, pools of the greatest weight first. What finds no place gives up one preference and is tried again; what has none
left to give up is told why. Pure: the same problem gives the same decision, whatever the order of its objects.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shared.api.pods import is_pending, is_provisionable, is_reschedulable
from shared.scheduling.claims import claim_of, near_limits
from shared.scheduling.classes import read_pods
from shared.scheduling.decision import Decision, PlannedClaim, Problem, Refusal
from shared.scheduling.explanation import Circumstances, explain
from shared.scheduling.kinds import Judge
from shared.scheduling.nodes import take_inventory
from shared.scheduling.planner import best_plan
from shared.scheduling.pools import build_market, daemons_of
from shared.scheduling.terms import Namespaces
from shared.scheduling.volumes import Storage

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
    daemons = daemons_of(snapshot.daemon_sets)
    inventory = take_inventory(snapshot, problem.instance_types, daemons, problem.leaving)
    wanted = list(_wanted(problem, inventory.leaving | problem.leaving))
    spaces = Namespaces(snapshot.namespaces, {p.metadata.namespace or "default" for p in snapshot.pods})
    reading = read_pods(wanted, spaces, Storage.of(snapshot))
    asked = {r for _, sizes in reading.classes for s in sizes for r in s.requests} | {"pods"}
    market = build_market(snapshot.node_pools, problem.instance_types, daemons, problem.not_ready, asked)
    judge = Judge(market, inventory)
    planner = best_plan(judge, spaces, reading.classes, problem.options)
    trimmed = near_limits(planner.packer)
    claims = sorted((claim_of(b, judge, planner.expand, trimmed) for b in planner.packer.bins), key=_claim_order)
    existing = {
        inventory.places[i].name: tuple(sorted(planner.expand(pods)))
        for i, pods in sorted(planner.ground.placed.items())
    }
    errors: dict[str, Refusal] = dict(reading.refused)
    known = Circumstances(planner.limits.left, planner.topology)
    for group in planner.unplaced:
        reasons: dict[tuple[int, ...], Refusal] = {}
        for requests, pods in group.sizes:
            key = tuple(requests.tolist())
            if key not in reasons:
                reasons[key] = explain(group, requests, judge, known)
            errors.update(dict.fromkeys(planner.expand(pods), reasons[key]))
    stats = {
        "pods": float(len(wanted)),
        "claims": float(len(claims)),
        "price": sum(c.cheapest.price for c in claims),
        "seconds": time.perf_counter() - started,
    }
    return Decision(claims=tuple(claims), existing=existing, errors=dict(sorted(errors.items())), stats=stats)


def _claim_order(claim: PlannedClaim) -> tuple[str, tuple[str, ...]]:
    return claim.node_pool, claim.pods


def _wanted(problem: Problem, leaving: frozenset[str]) -> Iterable[Pod]:
    for pod in problem.snapshot.pods:
        if problem.pods is not None and pod.key not in problem.pods:
            continue
        if pod.spec.node_name:
            if pod.spec.node_name in leaving and is_reschedulable(pod):
                yield pod
        elif is_provisionable(pod) if problem.pods is None else is_pending(pod):
            yield pod
