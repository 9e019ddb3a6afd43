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
    from collections.abc import Callable, Sequence

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
    portfolio = _Portfolio(
        lambda domain, cheapest: Plan(checker, namespaces, groups, policies, domain, cheapest_per_pod=cheapest)
    )
    improved = portfolio.plans_to_improve()
    for plan in improved:
        improve(plan, _SEARCH_STEPS if portfolio.few_pods else _SEARCH_STEPS_MANY_PODS)
    return min(improved, key=Plan.rank)


class _Portfolio:
    """The plans of a run. ``new_plan`` takes the preferred domain and ``cheapest_per_pod``."""

    def __init__(self, new_plan: Callable[[str, bool], Plan]) -> None:
        self._new_plan = new_plan
        self._counted = self._counted_plan()
        pods = self._counted.pending_groups.pod_count
        self.few_pods = pods <= _FEW_PODS
        self._domains = _domains_of_rules(self._counted) if self.few_pods else ()
        self._has_limits = self._counted.limits.has_any()
        self._leaves_pods_out = pods <= _FIRST_FIT_PODS and _leaves_feasible_pods_out(self._counted)

    def plans_to_improve(self) -> list[Plan]:
        """The plans that start best."""
        plans = [self._counted]
        if self.few_pods:
            plans += self._other_counted_plans()
        if self._leaves_pods_out or (self.few_pods and _needs_first_fit(self._counted)):
            plans = _fair([*plans, *self._first_fit_plans()])
        limited = self.few_pods and self._leaves_pods_out and self._has_limits
        chosen = sorted(plans, key=Plan.rank)[: _IMPROVED_AT_LIMITS if limited else 1]
        if self.few_pods and _has_two_spreads(self._counted) and plans[-1] not in chosen:
            chosen.append(plans[-1])
        return chosen

    def _counted_plan(self, preferred_domain: str = "", *, cheapest_per_pod: bool = False) -> Plan:
        plan = self._new_plan(preferred_domain, cheapest_per_pod)
        schedule_by_counting(plan)
        return plan

    def _other_counted_plans(self) -> list[Plan]:
        plans = [self._counted_plan(domain) for domain in self._domains]
        if any(plan.packer.replica_count_matters for plan in (self._counted, *plans)):
            best_domain = min((self._counted, *plans), key=Plan.rank).preferred_domain
            plans.append(self._counted_plan(best_domain, cheapest_per_pod=True))
        return plans

    def _first_fit_plans(self) -> list[Plan]:
        """First fit, last as in Karpenter; where limits leave pods out, also with each preferred domain."""
        plans: list[Plan] = []
        for reserve_largest in (False, True) if self._has_limits else (True,):
            for domain in (*self._domains, "") if self._leaves_pods_out and self._has_limits else ("",):
                plan = self._new_plan(domain, False)  # noqa: FBT003 (a callable's argument has no name)
                schedule_by_first_fit(plan, reserve_largest=reserve_largest)
                plans.append(plan)
        return plans


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
