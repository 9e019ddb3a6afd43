"""Why a pod is pending: each of its constraints is checked against each NodePool alone, then all together.

The reason is that of the nearest NodePool: the one with the fewest failed checks, and of those the latest. The
explanation also says which single changes to the pod, the limits or the capacity would get it a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.errors import UsageError
from cli.explain.existing_nodes import check_existing_nodes
from cli.explain.explanation import Check, Explanation, Section
from cli.explain.node_pool_checks import SchedulingTrial, check_node_pool
from cli.explain.pod_constraints import CAPACITY, LIMITS, TOGETHER, constraints_of, requested, with_requests
from cli.plan.planning import plan_launches
from shared.api import labels as names
from shared.api.nodepool import pool_title
from shared.api.pods import is_daemon, is_pending, is_terminal, is_terminating
from shared.api.quantity import QuantityError, format_quantity
from shared.api.spot_share import spot_share_problem
from shared.base.plurals import plural
from shared.base.struct import with_fields
from shared.scheduling.spot_shares import spot_use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.explain.node_pool_checks import NodePoolResult
    from cli.explain.pod_constraints import Constraint
    from shared.api.kubernetes import Pod
    from shared.cloud_provider import ResolvedNodePools
    from shared.scheduling.decision import Decision, PlannedNodeClaim, UnschedulableReason

_MAX_SIMILAR = 3


def explain(observed: ObservedCluster, key: str) -> Explanation:
    """Why the pod (namespace/name) is on its node, or pending.

    Raises:
        UsageError: the pod doesn't exist.
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
        raise UsageError(f"there is no pod {key}{_similar(observed, key)}")
    explanation = _explained(observed, pod)
    if names.SPOT_SHARE in pod.metadata.annotations:
        explanation = with_fields(explanation, sections=(*explanation.sections, _spot_share(observed, pod)))
    return explanation


def _explained(observed: ObservedCluster, pod: Pod) -> Explanation:
    not_pending = _not_pending(pod)
    if not_pending is not None:
        return with_fields(not_pending, history=observed.history.events(pod.ref))
    resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
    decision = plan_launches(observed, resolved_pools)
    error = decision.pod_errors.get(pod.key)
    explanation = (
        _schedulable(observed, pod, decision) if error is None else _unschedulable(observed, resolved_pools, pod, error)
    )
    return explanation.with_history(observed.history.events(pod.ref))


def _spot_share(observed: ObservedCluster, pod: Pod) -> Section:
    """How many of the pod's workload run on spot, and how many may."""
    use = spot_use(observed.snapshot, pod)
    if use is None:
        check = Check(name="spot", ok=False, detail=spot_share_problem(pod))
    else:
        share = pod.metadata.annotations[names.SPOT_SHARE]
        detail = f"{use.spot} of {plural(use.pods, 'pod')} of its workload, at most {use.most} ({share})"
        check = Check(name="spot", ok=use.spot <= use.most, detail=detail)
    return Section(title="Spot share", checks=(check,))


def _similar(observed: ObservedCluster, key: str) -> str:
    namespace, _, name = key.partition("/")
    pods = observed.snapshot.pods
    similar = [p.key for p in pods if p.metadata.name == name and p.key != key]
    similar += sorted(p.key for p in pods if is_pending(p) and p.key.startswith(f"{namespace}/"))
    return f"; there is {', '.join(similar[:_MAX_SIMILAR])}" if similar else ""


def _not_pending(pod: Pod) -> Explanation | None:  # noqa: PLR0911 (one state after the other)
    """The explanation if the scheduler has nothing to decide about the pod."""
    subject = f"Pod {pod.key}"
    if is_terminal(pod):
        return Explanation(subject=subject, state="has terminated", reason=f"its phase is {pod.status.phase}")
    if is_terminating(pod):
        return Explanation(subject=subject, state="is being deleted", reason="terminating pods are not scheduled")
    if pod.spec.node_name:
        node = pod.spec.node_name
        return Explanation(
            subject=subject,
            state=f"is on {node}",
            reason=f"it is scheduled; `tenon explain node {node}` says why the node is kept",
        )
    if pod.spec.scheduling_gates:
        gates = ", ".join(g.name for g in pod.spec.scheduling_gates)
        reason = f"it has scheduling gates: {gates}; the controllers that set them have to remove them"
        return Explanation(subject=subject, state="is pending", reason=reason, criterion="gates")
    if is_daemon(pod):
        return Explanation(
            subject=subject,
            state="is pending",
            reason="it belongs to a DaemonSet: it runs on the node it was created for, and no node is launched for it",
            criterion="daemon",
        )
    if pod.status.nominated_node_name:
        reason = (
            f"it is nominated for {pod.status.nominated_node_name}, which was launched for it or where kube-scheduler "
            "preempts other pods"
        )
        return Explanation(subject=subject, state="is pending", reason=reason, criterion="nominated")
    return None


def _schedulable(observed: ObservedCluster, pod: Pod, decision: Decision) -> Explanation:
    subject = f"Pod {pod.key}"
    name = next((name for name, pods in decision.existing_nodes.items() if pod.key in pods), None)
    if name is not None:
        has_joined = name in {n.metadata.name for n in observed.snapshot.nodes}
        reason = f"node {name} has enough resources" if has_joined else f"{name} is being launched for it"
        return Explanation(subject=subject, state="waits for kube-scheduler", reason=reason, criterion="room")
    claim = next(c for c in decision.new_node_claims if pod.key in c.pods)
    reason = f"it is schedulable: the next decision launches {_new_node(claim)}"
    other_pods = len(claim.pods) - 1
    for_others = f" for it and {plural(other_pods, 'other pod')}" if other_pods else ""
    return Explanation(subject=subject, state="waits for a new node", reason=reason + for_others, criterion="launch")


def _new_node(claim: PlannedNodeClaim) -> str:
    c = claim.cheapest
    price = f"{terminal.usd(c.price)}/h"
    node = f"a new {c.instance_type} ({c.capacity_type}, {c.zone}, {price}) of {pool_title(claim.node_pool)}"
    if claim.saved_resources:
        node += f", as cheaper types take more of the limit of {' and '.join(claim.saved_resources)}"
    return node


def _unschedulable(
    observed: ObservedCluster, resolved_pools: ResolvedNodePools, pod: Pod, error: UnschedulableReason
) -> Explanation:
    subject, state = f"Pod {pod.key}", "is unschedulable"
    try:
        constraints = constraints_of(pod)
    except QuantityError:
        return Explanation(subject=subject, state=state, reason=error.message, criterion="unreadable")
    existing = check_existing_nodes(observed, resolved_pools, pod)
    pools = observed.snapshot.node_pools
    if not pools:
        return Explanation(
            subject=subject,
            state=state,
            reason=f"there is no NodePool that could launch a node; {existing.summary}",
            criterion="no pool",
            sections=existing.sections,
        )
    results = sorted(
        (check_node_pool(observed, resolved_pools, pod, pool, constraints) for pool in pools),
        key=lambda result: result.distance,
    )
    nearest = results[0]
    if nearest.blocked:
        criterion, reason = "pool", f"{pool_title(nearest.pool)} can't launch nodes: {nearest.blocked}"
    elif nearest.failed:
        criterion, reason = nearest.failed[0]
        among = f" (the nearest of {len(results)})" if len(results) > 1 else ""
        reason = f"{pool_title(nearest.pool)}{among}: {reason}"
    else:
        criterion, reason = "rule", error.message
    return Explanation(
        subject=subject,
        state=state,
        reason=reason,
        criterion=criterion,
        nearest=(*_changes(observed, resolved_pools, pod, constraints, nearest), *existing.nearest),
        sections=(*(Section(title=pool_title(r.pool), checks=r.checks) for r in results), *existing.sections),
    )


def _changes(
    observed: ObservedCluster,
    resolved_pools: ResolvedNodePools,
    pod: Pod,
    constraints: Sequence[Constraint],
    nearest: NodePoolResult,
) -> list[str]:
    """The single changes that would get the pod a node of the nearest NodePool, one a line."""
    if nearest.blocked:
        return []
    pool = next(p for p in observed.snapshot.node_pools if p.name == nearest.pool)
    trial = SchedulingTrial(observed, resolved_pools, pool)
    failed = {criterion for criterion, _ in nearest.failed}
    lines: list[str] = []
    for constraint in constraints:
        if not failed or constraint.criterion in failed or TOGETHER in failed:
            lines += _relaxed(trial, pod, constraint)
    if LIMITS in failed:
        lines += _outcome("with higher limits", trial.decide(pod, other_pods=True, all_available=False))
    if CAPACITY in failed:
        lines += _outcome("with capacity", trial.decide(pod, other_pods=True, limits=True))
    return lines


def _relaxed(trial: SchedulingTrial, pod: Pod, constraint: Constraint) -> list[str]:
    """The outcome with the largest possible request of the resource, or without the constraint."""
    largest = trial.largest_amount(
        constraint.criterion if "/" in constraint.criterion else constraint.name.split(" ")[0]
    )
    amounts = requested(pod)
    name = next((n for n in amounts if constraint.name == f"{n} {format_quantity(n, amounts[n])}"), "")
    if name and 0 < largest < amounts[name]:
        smaller = with_requests(pod, {**amounts, name: largest})
        decision = trial.decide(smaller, other_pods=True, limits=True, all_available=False)
        lines = _outcome(f"with {name} {format_quantity(name, largest)}", decision)
        if lines:
            return lines
    decision = trial.decide(constraint.without, other_pods=True, limits=True, all_available=False)
    return [
        *(line + _label_there(constraint, decision, trial) for line in _outcome(constraint.relief, decision)),
        *_with_label_allowed(trial, pod, constraint),
    ]


def _label_there(constraint: Constraint, decision: Decision, trial: SchedulingTrial) -> str:
    """The value of the constraint's label on the new node, where its instance type or offering defines it."""
    cheapest = decision.new_node_claims[0].cheapest
    types = {t.name: t for t in trial.resolved_pools.instance_types[trial.pool.name]}
    offering = {names.ZONE: cheapest.zone, names.CAPACITY_TYPE: cheapest.capacity_type}
    value = {**types[cheapest.instance_type].labels, **offering}.get(constraint.label)
    return f", which has {constraint.label}={value}" if value else ""


def _with_label_allowed(trial: SchedulingTrial, pod: Pod, constraint: Constraint) -> list[str]:
    """The outcome if the NodePool's requirements on the constraint's label allowed its values too."""
    pool, label = trial.pool, constraint.label
    spec = pool.spec.template.spec
    remaining = [r for r in spec.requirements if names.normalize_key(r.key) != label]
    if label not in names.WELL_KNOWN or len(remaining) == len(spec.requirements):
        return []
    template = with_fields(pool.spec.template, spec=with_fields(spec, requirements=remaining))
    wider = with_fields(pool, spec=with_fields(pool.spec, template=template))
    decision = with_fields(trial, pool=wider).decide(pod, other_pods=True, limits=True, all_available=False)
    allowed = f"if {pool_title(pool.name)} allowed {label} {' or '.join(constraint.values)}"
    return _outcome(f"{allowed},", decision)


def _outcome(change: str, decision: Decision) -> list[str]:
    claims = decision.new_node_claims
    return [f"{change} it would get {_new_node(claims[0])}"] if claims else []
