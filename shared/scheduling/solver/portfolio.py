"""Chooses the plan of a run from a small portfolio.

Few heuristics serve every problem. The counted plan is nearly always the best, so local search improves that of the
plans that starts best, and others are tried only where they have a chance:

- Where pods are few and their rules are about zones or other domains, counted plans that prefer one domain each.
- Where hosts may run more replicas than is cheapest, a counted plan with fewer of them on each.
- Where pods are left out, or rules meet that counting serves badly, first fit, as in Karpenter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import ZONE
from shared.scheduling.solver.pending_groups import PendingGroup
from shared.scheduling.solver.plan import Plan
from shared.scheduling.solver.rounds import improve, schedule_by_counting, schedule_by_first_fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.scheduling.decision import SchedulingPolicies
    from shared.scheduling.rules.pod_affinity import Namespaces
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods

_FEW_PODS = 300
"""Up to so many pods, more than one plan is tried, and local search is thorough."""
_SEARCH_STEPS = 1500
_SEARCH_STEPS_MANY_PODS = 80
_FIRST_FIT_PODS = 5000
"""Up to so many pods, first fit is tried where the counted plan leaves some out."""
_MAX_PREFERRED_DOMAINS = 5
_IMPROVED_AT_LIMITS = 4
"""Where NodePool limits leave pods out, so many plans are improved: smaller nodes may leave capacity for them."""


def best_plan(
    checker: FeasibilityChecker,
    namespaces: Namespaces,
    groups: Sequence[tuple[PodGroup, list[SizedPods]]],
    policies: SchedulingPolicies,
) -> Plan:
    """The plan that leaves out the fewest pods, then relaxes the fewest preferences, then costs least."""

    def counted_plan(preferred_domain: str = "", *, cheapest_per_pod: bool = False) -> Plan:
        plan = Plan(checker, namespaces, groups, policies, preferred_domain, cheapest_per_pod=cheapest_per_pod)
        schedule_by_counting(plan)
        return plan

    def first_fit_plan(preferred_domain: str, *, reserve_largest: bool) -> Plan:
        plan = Plan(checker, namespaces, groups, policies, preferred_domain)
        schedule_by_first_fit(plan, reserve_largest=reserve_largest)
        return plan

    counted = counted_plan()
    plans = [counted]
    few = counted.pending_groups.pod_count <= _FEW_PODS
    domains = _domains_of_rules(counted) if few else ()
    plans += [counted_plan(domain) for domain in domains]
    if few and any(plan.packer.replica_count_matters for plan in plans):
        plans.append(counted_plan(min(plans, key=Plan.rank).preferred_domain, cheapest_per_pod=True))
    has_limits = counted.limits.has_any()
    leaves_out = counted.pending_groups.pod_count <= _FIRST_FIT_PODS and _leaves_feasible_pods_out(counted)
    if leaves_out or (few and _needs_first_fit(counted)):
        plans += [
            first_fit_plan(domain, reserve_largest=reserve_largest)
            for reserve_largest in ((False, True) if has_limits else (True,))
            for domain in ((*domains, "") if leaves_out and has_limits else ("",))
        ]
        plans = _fair(plans)
    improved = sorted(plans, key=Plan.rank)[: _IMPROVED_AT_LIMITS if few and leaves_out and has_limits else 1]
    if few and _has_two_spreads(counted) and plans[-1] not in improved:
        improved.append(plans[-1])
    for plan in improved:
        improve(plan, _SEARCH_STEPS if few else _SEARCH_STEPS_MANY_PODS)
    return min(improved, key=Plan.rank)


def _fair(plans: Sequence[Plan]) -> list[Plan]:
    """The plans that leave out no pod that the last one, first fit, schedules; or less than a quarter as many pods.

    First fit schedules the largest pods first, as Karpenter does.
    """
    by_first_fit = plans[-1].unscheduled_pods()
    unscheduled = [plan.unscheduled_pods() for plan in plans]
    return [
        plan
        for plan, pods in zip(plans, unscheduled, strict=True)
        if pods <= by_first_fit or len(pods) * 4 < len(by_first_fit)
    ]


def _domains_of_rules(plan: Plan) -> tuple[str, ...]:
    """A few domains of new nodes that rules are about, zones first; none if there are no new nodes."""
    if not plan.bins.opened:
        return ()
    launch_options, counts = plan.bins.launch_options, plan.topology.domain_counts
    all_options = np.ones(len(launch_options.template_of), np.bool_)
    all_offerings = np.ones(len(launch_options.offerings), np.bool_)
    no_nodes = np.zeros(len(plan.existing_capacity), np.bool_)
    domains: list[str] = []
    for key in sorted({counts.keys[t] for t in counts.active}, key=lambda k: (k != ZONE, k)):
        domains += plan.topology.label_values(key, all_options, all_offerings, no_nodes)
    return tuple(domains[:_MAX_PREFERRED_DOMAINS])


def _leaves_feasible_pods_out(plan: Plan) -> bool:
    """Whether an unscheduled pod fits on some launch option."""
    free = plan.bins.launch_options.free
    for group in plan.unscheduled:
        for _, alternative in group.alternatives:
            options, _, _, _ = plan.checker.check(
                alternative,
                group.pod_group.tolerations,
                tolerate_prefer_no_schedule=group.preferences.tolerate_prefer_no_schedule,
            )
            if any((free[options] >= requests).all(1).any() for requests, _ in group.sizes):
                return True
    return False


def _needs_first_fit(plan: Plan) -> bool:
    """Whether counting may serve badly: existing nodes, NodePool weights, minValues, near limits, or two spreads."""
    bins = plan.bins
    if not bins.opened:
        return False
    return (
        len(plan.existing_capacity) > 0
        or len({bins.template(b.option).weight for b in bins.opened}) > 1
        or any(bins.needs_min_values(b.option) or bins.limits.is_near_for(b.option) for b in bins.opened)
        or _has_two_spreads(plan)
    )


def _has_two_spreads(plan: Plan) -> bool:
    """Whether any pods on new nodes are spread over two topology keys at once."""
    keys = plan.topology.domain_counts.keys
    return any(
        len({keys[t] for t in item.owner.rules.topology_spread}) > 1
        for b in plan.bins.opened
        for item, _ in b.content
        if isinstance(item.owner, PendingGroup)
    )
