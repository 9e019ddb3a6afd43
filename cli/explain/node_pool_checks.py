"""Checks a pod against one NodePool: each constraint alone, then resources, then all of them together.

The scheduler decides each check, for a cluster that only holds what the check is about.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cli.explain.explanation import Check
from cli.explain.pod_constraints import (
    AFFINITY,
    ANTI_AFFINITY,
    ARCH,
    CAPACITY,
    INTER_POD,
    LIMITS,
    OTHER_PODS,
    PORTS,
    RESOURCES,
    SPREAD,
    TAINTS,
    TOGETHER,
    VOLUMES,
    constraints_of,
    requested,
    unconstrained,
    with_requests,
)
from shared.api import labels as names
from shared.api.taints import tolerated_by
from shared.base.plurals import plural
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.explain.pod_constraints import Constraint
    from shared.api.kubernetes import Pod
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import Decision

_SELF_EXPLANATORY = frozenset({TAINTS, LIMITS, CAPACITY, TOGETHER, RESOURCES, OTHER_PODS}) | INTER_POD
"""Criteria whose reasons name the constraint."""
_LATER_STAGES = (RESOURCES, TOGETHER, LIMITS, CAPACITY, PORTS, SPREAD, ANTI_AFFINITY, AFFINITY, OTHER_PODS)
"""Criteria after taints and labels, in the order of the checks."""


class NodePoolResult(Struct, kw_only=True):
    """The checks against one NodePool, and the failed criteria with their reasons.

    ``blocked`` is why the NodePool launches no nodes at all; empty if it can. ``shortfall`` is how much more the pod
    requests than the largest node has, as a share of that; the sum over resources, infinite if no node has one.
    ``asked_for`` is how much of the pod asks for this NodePool.
    """

    pool: str
    checks: tuple[Check, ...]
    failed: tuple[tuple[str, str], ...] = ()
    blocked: str = ""
    shortfall: float = 0.0
    asked_for: int = 0

    @property
    def distance(self) -> tuple[int, bool, bool, int, int, float, str]:
        """How far the NodePool is from a node for the pod; the smallest is the nearest.

        A NodePool that the pod asks for is the nearest, whatever is in the way. Then one with nodes of the pod's
        architecture, which its image has. Fewer failed checks are nearer. Among as many, the later criterion is: after
        taints and labels, a missing resource, and then limits and capacity, which need no change of the pod. Then the
        smaller shortfall.
        """
        criteria = {criterion for criterion, _ in self.failed}
        reached = min((_stage(criterion) for criterion in criteria), default=0)
        blocked, other_architecture = bool(self.blocked), ARCH in criteria
        return -self.asked_for, blocked, other_architecture, len(self.failed), -reached, self.shortfall, self.pool


def _stage(criterion: str) -> int:
    """The position of the criterion among those that the scheduler checks; resources are named by themselves."""
    if "/" in criterion:
        return _LATER_STAGES.index(RESOURCES) + 2
    return _LATER_STAGES.index(criterion) + 2 if criterion in _LATER_STAGES else int(criterion != TAINTS)


def check_node_pool(
    observed: ObservedCluster,
    resolved_pools: ResolvedNodePools,
    pod: Pod,
    pool: NodePool,
    constraints: Sequence[Constraint],
) -> NodePoolResult:
    """Check the pod, whose constraints are given, against the NodePool."""
    blocked = ""
    if pool.name in resolved_pools.not_ready or not resolved_pools.instance_types.get(pool.name):
        blocked = resolved_pools.not_ready.get(pool.name) or "it has no instance types"
    trial = SchedulingTrial(observed, resolved_pools, pool)
    asked_for = _asked_for(pod, trial, constraints)
    blocked = blocked or trial.unschedulable_reason(unconstrained(pod)) or ""
    if blocked:
        checks = (Check(name="can launch nodes", ok=False, detail=blocked),)
        return NodePoolResult(pool=pool.name, checks=checks, blocked=blocked, asked_for=asked_for)
    pool_checks = _NodePoolChecks(trial, pod, constraints)
    pool_checks.check_each_constraint()
    pool_checks.check_resources()
    if not pool_checks.failed:
        pool_checks.check_together()
    return NodePoolResult(
        pool=pool.name,
        checks=tuple(pool_checks.checks),
        failed=tuple(pool_checks.failed),
        shortfall=pool_checks.shortfall(),
        asked_for=asked_for,
    )


def _asked_for(pod: Pod, trial: SchedulingTrial, constraints: Sequence[Constraint]) -> int:
    """How much of the pod asks for the NodePool: its name, its own labels, its taints, its extended resources.

    A GPU pod that lacks the toleration of the GPU NodePool is nearer to that than to one without GPUs.
    """
    template = trial.pool.spec.template
    labels = {**template.metadata.labels, names.NODEPOOL: trial.pool.name}
    selected = sum(labels.get(c.label) in c.values for c in constraints if c.label)
    named = [t for t in pod.spec.tolerations if t.key]
    tolerated = sum(any(tolerated_by(toleration, taint) for toleration in named) for taint in template.spec.taints)
    devices = sum(trial.largest_amount(name) > 0 for name in requested(pod) if "/" in name)
    return selected + tolerated + devices


class _NodePoolChecks(MutableStruct):
    """The checks in their order, and the failed ones."""

    trial: SchedulingTrial
    pod: Pod
    constraints: Sequence[Constraint]
    checks: list[Check] = []
    failed: list[tuple[str, str]] = []

    def check_each_constraint(self) -> None:
        """Each constraint alone."""
        for constraint in self.constraints:
            reason = self.trial.unschedulable_reason(constraint.alone, other_pods=constraint.criterion in INTER_POD)
            self._add(constraint.criterion, constraint.name, reason)

    def check_resources(self) -> None:
        """All resources together, and the limits; skipped if one resource alone is too much."""
        amounts = requested(self.pod)
        if {criterion for criterion, _ in self.failed} & {RESOURCES, *amounts}:
            return
        sized = with_requests(unconstrained(self.pod), amounts)
        if len(amounts) > 1:
            reason = self.trial.unschedulable_reason(sized)
            if reason is not None:
                self._add(RESOURCES, "all resources on one node", reason)
                return
        if self.trial.pool.spec.limits:
            self._add(LIMITS, "limits", self.trial.unschedulable_reason(sized, limits=True))

    def shortfall(self) -> float:
        """As in :class:`NodePoolResult`."""
        failed = {criterion for criterion, _ in self.failed}
        if not failed & {RESOURCES, *requested(self.pod)}:
            return 0.0
        sizes = {name: (amount, self.trial.largest_amount(name)) for name, amount in requested(self.pod).items()}
        return sum(max(0.0, amount / largest - 1) if largest else math.inf for amount, largest in sizes.values())

    def check_together(self) -> None:
        """The pod with all its constraints; only the first failed check is kept."""
        single = _without_inter_pod_constraints(self.pod)
        if (reason := self.trial.unschedulable_reason(single)) is not None:
            self._add(TOGETHER, "all constraints together", reason)
        elif self.trial.unschedulable_reason(single, all_available=False) is not None:
            self._add(CAPACITY, "available capacity", self.trial.no_capacity())
        elif (reason := self.trial.unschedulable_reason(single, limits=True)) is not None:
            self._add(LIMITS, "limits", reason)
        else:
            reason = self.trial.unschedulable_reason(self.pod, other_pods=True, limits=True, all_available=False)
            if reason is not None:
                self._add(OTHER_PODS, "other pods", reason)

    def _add(self, criterion: str, name: str, reason: str | None) -> None:
        self.checks.append(Check(name=name, ok=reason is None, detail=reason or ""))
        if reason is not None:
            self.failed.append((criterion, _with_constraint_name(criterion, name, reason)))


def _with_constraint_name(criterion: str, name: str, reason: str) -> str:
    """The reason, with the constraint's name in front unless the reason has it."""
    if criterion == VOLUMES:
        return f"the pod's {name} can't be attached: {reason}"
    if criterion in _SELF_EXPLANATORY or name.split("=", maxsplit=1)[0].split(" ", maxsplit=1)[0] in reason:
        return reason
    return f"{name}: {reason}"


def _without_inter_pod_constraints(pod: Pod) -> Pod:
    constraint = next((c for c in constraints_of(pod) if c.criterion in INTER_POD), None)
    return pod if constraint is None else _without_inter_pod_constraints(constraint.without)


class SchedulingTrial(Struct):
    """Schedules one pod to new nodes of one NodePool."""

    observed: ObservedCluster
    resolved_pools: ResolvedNodePools
    pool: NodePool

    def decide(
        self, pod: Pod, *, other_pods: bool = False, limits: bool = False, all_available: bool = True
    ) -> Decision:
        """The decision for the pod.

        ``other_pods``: with the cluster's other pods; ``limits``: with the NodePool's limits; ``all_available``: as if
        EC2 had capacity for every offering.
        """
        snapshot = self.observed.snapshot
        pool = self.pool
        if not limits:
            pool = with_fields(pool, spec=with_fields(pool.spec, limits={}))
        running_pods = [p for p in snapshot.pods if p.key != pod.key] if other_pods else []
        types = self.resolved_pools.instance_types[pool.name]
        return schedule(
            Problem(
                snapshot=with_fields(
                    snapshot,
                    pods=(*running_pods, pod),
                    nodes=snapshot.nodes if other_pods or limits else (),
                    node_claims=snapshot.node_claims if other_pods or limits else (),
                    node_pools=(pool,),
                    capacity_buffers=(),
                ),
                instance_types={pool.name: _all_available(types) if all_available else types},
                # leaving nodes take no pods, so that the pod needs a new node
                leaving=frozenset() if other_pods else frozenset(n.metadata.name for n in snapshot.nodes),
                pods=frozenset({pod.key}),
                policies=self.observed.policies,
            )
        )

    def no_capacity(self) -> str:
        """The reason if EC2 lacks capacity for every suitable offering."""
        types = self.resolved_pools.instance_types[self.pool.name]
        count = sum(len(t.offerings) for t in types)
        unavailable = sum(not o.available for t in types for o in t.offerings)
        share = f"({unavailable} of {plural(count, 'offering')} unavailable)"
        short = ", ".join(self.resolved_pools.short_zones.get(self.pool.name, ()))
        if short:
            return f"no suitable offering is available {share}: {short}; EC2 is tried there if no other zone is left"
        return f"EC2 has no capacity for any suitable offering {share}; each is tried again after 3 minutes"

    def largest_amount(self, resource: str) -> int:
        """The most of a resource that pods get on any node of the NodePool."""
        launch_options = build_launch_options(
            [self.pool],
            {self.pool.name: self.resolved_pools.instance_types.get(self.pool.name, ())},
            daemon_set_pods(self.observed.snapshot),
            {},
            {resource},
        )
        column = launch_options.resources.index(resource)
        return int(launch_options.free[:, column].max(initial=0))

    def unschedulable_reason(
        self, pod: Pod, *, other_pods: bool = False, limits: bool = False, all_available: bool = True
    ) -> str | None:
        """Why the pod can't be scheduled, without the NodePool's name; None if it can."""
        decision = self.decide(pod, other_pods=other_pods, limits=limits, all_available=all_available)
        error = decision.pod_errors.get(pod.key)
        return None if error is None else error.criteria.get(self.pool.name) or error.message


def _all_available(types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    if all(o.available for t in types for o in t.offerings):
        return types
    return tuple(with_fields(t, offerings=tuple(with_fields(o, available=True) for o in t.offerings)) for t in types)
