"""Why a pod waits: each of its constraints asked of each NodePool by itself, then all together.

What a pool can't meet alone is the reason; the pool that fails least is the nearest, and what the pod would get there
without its failing constraints is the nearest miss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cli import terminal
from cli.errors import UsageError
from cli.explain import existing_nodes, pod_constraints
from cli.explain.explanation import Explanation, Section
from cli.explain.node_pool_checks import Asked, Tried, interview
from cli.explain.pod_constraints import CAPACITY, LIMITS, TOGETHER
from cli.plan.planning import plan_launches
from shared.api.pods import is_daemon, is_pending, is_terminal, is_terminating
from shared.api.quantity import QuantityError, format_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.explain.pod_constraints import Constraint
    from shared.api.kubernetes import Pod
    from shared.launch.resolved_node_pools import ResolvedNodePools
    from shared.scheduling.decision import Decision, PlannedNodeClaim, UnschedulableReason

_NEAR = 3


def explain(observed: ObservedCluster, key: str) -> Explanation:
    """Why the pod (namespace/name) is where it is, or nowhere.

    Raises:
        UsageError: there is no such pod.
    """
    if key in observed.unreadable_pods:
        return Explanation(
            subject=f"Pod {key}",
            state="can't be read",
            reason=observed.unreadable_pods[key].message,
            criterion="unreadable",
        )
    pod = next((p for p in observed.snapshot.pods if p.key == key), None)
    if pod is None:
        raise UsageError(f"there is no pod {key}{_near(observed, key)}")
    settled = _not_waiting(pod)
    if settled is not None:
        return replace(settled, said=observed.history.events(pod.ref))
    resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
    decision = plan_launches(observed, resolved_pools)
    refusal = decision.pod_errors.get(key)
    answer = _placed(observed, pod, decision) if refusal is None else _refused(observed, resolved_pools, pod, refusal)
    return answer.with_words(observed.history.events(pod.ref))


def _near(observed: ObservedCluster, key: str) -> str:
    space, _, name = key.partition("/")
    like = [p.key for p in observed.snapshot.pods if p.metadata.name == name and p.key != key]
    like += sorted(p.key for p in observed.snapshot.pods if is_pending(p) and p.key.startswith(f"{space}/"))
    return f"; there is {', '.join(like[:_NEAR])}" if like else ""


def _not_waiting(pod: Pod) -> Explanation | None:  # noqa: PLR0911 (one question after the other)
    subject = f"Pod {pod.key}"
    if is_terminal(pod):
        return Explanation(subject=subject, state="has ended", reason=f"its phase is {pod.status.phase}")
    if is_terminating(pod):
        return Explanation(subject=subject, state="is being deleted", reason="it takes no new place")
    if pod.spec.node_name:
        node = pod.spec.node_name
        return Explanation(
            subject=subject,
            state=f"is on {node}",
            reason=f"it has its place; `tenon explain node {node}` says why the node is kept",
        )
    if pod.spec.scheduling_gates:
        gates = ", ".join(g.name for g in pod.spec.scheduling_gates)
        reason = f"its scheduling gates hold it back: {gates}; whoever set them has to remove them"
        return Explanation(subject=subject, state="waits", reason=reason, criterion="gates")
    if is_daemon(pod):
        return Explanation(
            subject=subject,
            state="waits",
            reason="a DaemonSet owns it: it goes to the node that it was made for, and no node is bought for it",
            criterion="daemon",
        )
    if pod.status.nominated_node_name:
        reason = f"it preempts others on {pod.status.nominated_node_name} and gets their place"
        return Explanation(subject=subject, state="waits", reason=reason, criterion="nominated")
    return None


def _placed(observed: ObservedCluster, pod: Pod, decision: Decision) -> Explanation:
    subject = f"Pod {pod.key}"
    place = next((name for name, pods in decision.existing_nodes.items() if pod.key in pods), None)
    if place is not None:
        ready = {n.metadata.name for n in observed.snapshot.nodes}
        what = f"node {place} has room for it" if place in ready else f"{place} is on its way for it"
        return Explanation(subject=subject, state="waits for the scheduler", reason=what, criterion="room")
    claim = next(c for c in decision.new_node_claims if pod.key in c.pods)
    reason = f"nothing is in its way: the next decision asks for {_machine(claim)} for it"
    others = len(claim.pods) - 1
    more = f" and {terminal.plural(others, 'other pod')}" if others else ""
    return Explanation(subject=subject, state="waits for a new node", reason=reason + more, criterion="launch")


def _machine(claim: PlannedNodeClaim) -> str:
    c = claim.cheapest
    price = f"{terminal.usd(c.price)}/h"
    return f"a new {c.instance_type} ({c.capacity_type}, {c.zone}, {price}) of NodePool {claim.node_pool}"


def _refused(
    observed: ObservedCluster, resolved_pools: ResolvedNodePools, pod: Pod, refusal: UnschedulableReason
) -> Explanation:
    subject = f"Pod {pod.key}"
    try:
        wants = pod_constraints.of(pod)
    except QuantityError:
        return Explanation(subject=subject, state="has no place", reason=refusal.message, criterion="unreadable")
    there = existing_nodes.survey(observed, resolved_pools, pod)
    if not observed.snapshot.node_pools:
        return Explanation(
            subject=subject,
            state="has no place",
            reason=f"there is no NodePool that could launch a node for it; {there.summary}",
            criterion="no pool",
            sections=there.sections,
        )
    tried = sorted(
        (interview(observed, resolved_pools, pod, pool, wants) for pool in observed.snapshot.node_pools), key=_farness
    )
    nearest = tried[0]
    if nearest.blocked:
        criterion, reason = "pool", f"NodePool {nearest.pool} can't launch: {nearest.blocked}"
    elif nearest.failed:
        criterion, reason = nearest.failed[0]
        among = f" (the nearest of {len(tried)})" if len(tried) > 1 else ""
        reason = f"NodePool {nearest.pool}{among}: {reason}"
    else:
        criterion, reason = "rule", refusal.message
    return Explanation(
        subject=subject,
        state="has no place",
        reason=reason,
        criterion=criterion,
        nearest=_nearest(observed, resolved_pools, pod, wants, nearest, there),
        sections=(*(Section(title=f"NodePool {t.pool}", checks=t.checks) for t in tried), *there.sections),
    )


def _farness(tried: Tried) -> tuple[bool, int, str]:
    return bool(tried.blocked), len(tried.failed), tried.pool


def _nearest(
    observed: ObservedCluster,
    resolved_pools: ResolvedNodePools,
    pod: Pod,
    wants: Sequence[Constraint],
    nearest: Tried,
    there: existing_nodes.Rooms,
) -> tuple[str, ...]:
    """What would give it a place: each single change that does, or all that are needed; and the nearest node."""
    lines: list[str] = []
    pool = next(p for p in observed.snapshot.node_pools if p.name == nearest.pool)
    if not nearest.blocked:
        ask = Asked(observed, resolved_pools, pool)
        criteria = {c for c, _ in nearest.failed}
        for want in wants:
            if criteria and want.criterion not in criteria and TOGETHER not in criteria:
                continue
            lines += _way(ask, pod, want)
        if LIMITS in criteria:
            claim = _first(ask.decide(pod, among=True, available=False))
            if claim is not None:
                lines.append(f"with higher limits it would get {_machine(claim)}")
        if CAPACITY in criteria:
            claim = _first(ask.decide(pod, among=True, limits=True))
            if claim is not None:
                lines.append(f"with capacity it would get {_machine(claim)}")
    lines += there.nearest
    return tuple(lines)


def _way(ask: Asked, pod: Pod, want: Constraint) -> list[str]:
    """What the pod would get if it asked for less of that: of a resource as much as there is, else none at all."""
    most = ask.most(want.criterion if "/" in want.criterion else want.what.split(" ")[0])
    amounts = pod_constraints.amounts(pod)
    name = next((n for n in amounts if want.what == f"{n} {format_quantity(n, amounts[n])}"), "")
    if name and 0 < most < amounts[name]:
        less = pod_constraints.asking(pod, {**amounts, name: most})
        claim = _first(ask.decide(less, among=True, limits=True, available=False))
        if claim is not None:
            return [f"with {name} {format_quantity(name, most)} it would get {_machine(claim)}"]
    claim = _first(ask.decide(want.without, among=True, limits=True, available=False))
    return [] if claim is None else [f"{want.relief} it would get {_machine(claim)}"]


def _first(decision: Decision) -> PlannedNodeClaim | None:
    return decision.new_node_claims[0] if decision.new_node_claims else None
