"""Chooses the plan of a run from a small portfolio, and fills each plan by counting or by first fit.

Few heuristics serve every problem. The counted plan is nearly always the best, so local search improves that of the
plans that starts best, and others are tried only where they have a chance:

- Where pods are few and their rules are about zones or other domains, counted plans that prefer one domain each.
- Where hosts may run more replicas than is cheapest, a counted plan with fewer of them on each.
- Where pods are left out, or rules meet that counting serves badly, first fit, as in Karpenter.
- Where pods are left out that have preferences, all of these without preferences.
- Where pods prefer different hosts, one host each, if that costs hardly more.

Counting takes rounds, which relax one preference each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import ZONE
from shared.base.struct import with_fields
from shared.scheduling.solver.bins import release_sizes, reserve_sizes
from shared.scheduling.solver.domain_assignment import DomainAssignment, cheapest_first
from shared.scheduling.solver.first_fit import FirstFit
from shared.scheduling.solver.fit import set_worth
from shared.scheduling.solver.local_search import LocalSearch
from shared.scheduling.solver.pending_groups import PendingGroup, relax
from shared.scheduling.solver.plan import Plan
from shared.scheduling.solver.unscheduled_pods import remove_excess_pods, schedule_first_by_name
from shared.scheduling.state.launch_options import NodePoolWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shared.scheduling.decision import SchedulingPolicies
    from shared.scheduling.rules.pod_affinity import Namespaces
    from shared.scheduling.solver.domain_assignment import DomainChoice
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods


def schedule_by_counting(plan: Plan) -> None:
    """Schedules all pods; those that fit nowhere have their preferences relaxed one by one."""
    pending = plan.pending_groups.initial()
    while pending:
        left = _round(plan, pending)
        pending = []
        for group in left:
            preferences = relax(group.pod_group, group.preferences, group.tried)
            if preferences is None:
                plan.unscheduled.append(group)
            else:
                plan.relaxed += group.count
                pending.append(plan.pending_groups.group(group.pod_group, preferences, group.sizes))
    _finish(plan)


def schedule_by_first_fit(plan: Plan, *, reserve_largest: bool) -> None:
    """Schedules all pods one by one, the largest first."""
    pending = plan.pending_groups.initial()
    plan.count_rules_of(pending)
    first_fit = FirstFit(
        plan.checker,
        plan.topology,
        plan.existing_capacity,
        plan.bins,
        plan.pending_groups,
        reserve_largest=reserve_largest,
        preferred_domain=plan.preferred_domain,
    )
    plan.unscheduled = first_fit.run(pending)
    plan.relaxed = first_fit.relaxed
    _finish(plan)


def improve(plan: Plan, steps: int) -> None:
    """Improves the plan by local search; what becomes smaller may leave limits to unscheduled pods."""
    release_sizes(plan.bins)
    if plan.bins.opened:
        LocalSearch(plan.bins, plan.packer.option_sets, steps).run()
    if plan.unscheduled:
        plan.unscheduled = _round(plan, plan.unscheduled)
    _finish(plan)


def _round(plan: Plan, pending: list[PendingGroup]) -> list[PendingGroup]:
    """Assigns domains, then packs, NodePools of the greatest weight first; returns groups with pods left."""
    plan.count_rules_of(pending)
    groups = plan.bind(pending)
    assignment = DomainAssignment(plan.checker, plan.topology, plan.existing_capacity, plan.preferred_domain)
    items = assignment.assign_all(groups)
    plan.domain_choices += assignment.all_choices
    set_worth(plan.checker, items)
    for options in NodePoolWeights(plan.bins.launch_options).options_by_weight():
        plan.packer.pack(items, options)
    for item in items:
        if item.pods and isinstance(item.owner, PendingGroup):
            plan.topology.domain_counts.take(item.owner.rules, item.where, -len(item.pods))
            item.owner.sizes.append((item.requests, item.pods))
    plan.unbind(groups)
    return [group for group in pending if group.sizes]


def _finish(plan: Plan) -> None:
    """Reserves sizes within limits, and unschedules pods of bins that exceed them."""
    for bin_ in reserve_sizes(plan.bins):
        for item, pods in bin_.content:
            plan.unschedule(item, pods)
        plan.bins.close(bin_)
    if plan.unscheduled:
        remove_excess_pods(plan)
        schedule_first_by_name(plan)


_FEW_PODS = 300
"""Up to this many pods, more than one plan is tried, and local search is thorough."""
_SEARCH_STEPS = 1500
_SEARCH_STEPS_MANY_PODS = 80
_FIRST_FIT_PODS = 5000
"""Up to this many pods, first fit is tried where the counted plan leaves some out."""
_MAX_PREFERRED_DOMAINS = 5
_PRICE_OF_MORE_HOSTS = 1.05
"""Pods that prefer different hosts get one each, if that costs no more than this share of the price with shared
hosts."""
_IMPROVED_AT_LIMITS = 4
"""Where NodePool limits leave pods out, this many plans are improved: smaller nodes may leave capacity for them."""


def best_plan(
    checker: FeasibilityChecker,
    namespaces: Namespaces,
    groups: Sequence[tuple[PodGroup, list[SizedPods]]],
    policies: SchedulingPolicies,
) -> Plan:
    """The plan that leaves out the fewest pods, then relaxes the fewest preferences, then costs least."""

    def planned(policies: SchedulingPolicies, *, one_host_each: bool = False) -> Plan:
        return _best_of(
            _Portfolio(
                lambda domain, cheapest: Plan(
                    checker,
                    namespaces,
                    groups,
                    policies,
                    domain,
                    cheapest_per_pod=cheapest,
                    one_host_each=one_host_each,
                )
            )
        )

    plan = planned(policies)
    if policies.preference_policy == "Ignore" or not any(group.has_preferences for group, _ in groups):
        return plan
    if plan.unscheduled and _leaves_feasible_pods_out(plan):
        return _or_without_preferences(plan, lambda: planned(with_fields(policies, preference_policy="Ignore")))
    if plan.pending_groups.shares_hosts and plan.pending_groups.pod_count <= _FEW_PODS:
        return _or_one_host_each(plan, lambda: planned(policies, one_host_each=True))
    return plan


def _or_without_preferences(plan: Plan, without: Callable[[], Plan]) -> Plan:
    """The plan without preferences, if it leaves out fewer pods: nodes chosen for them may use up a limit."""
    unconstrained = without()
    return unconstrained if unconstrained.rank()[0] < plan.rank()[0] else plan


def _or_one_host_each(plan: Plan, one_host_each: Callable[[], Plan]) -> Plan:
    """The plan with a host for each pod that prefers one, if it costs hardly more."""
    apart = one_host_each()
    is_cheap = apart.rank()[:2] <= plan.rank()[:2] and apart.price() <= _PRICE_OF_MORE_HOSTS * plan.price()
    return apart if is_cheap else plan


def _best_of(portfolio: _Portfolio) -> Plan:
    """The best plan of a portfolio, improved."""
    if _is_single_pod_at_least_price(portfolio.counted):
        return portfolio.counted
    improved = portfolio.plans_to_improve()
    for plan in improved:
        improve(plan, _SEARCH_STEPS if portfolio.few_pods else _SEARCH_STEPS_MANY_PODS)
    return min(improved, key=Plan.rank)


class _Portfolio:
    """The plans of a run. ``new_plan`` takes the preferred domain and ``cheapest_per_pod``."""

    def __init__(self, new_plan: Callable[[str, bool], Plan]) -> None:
        self._new_plan = new_plan
        self.counted = self._counted_plan()
        pods = self.counted.pending_groups.pod_count
        self.few_pods = pods <= _FEW_PODS
        self._domains = _domains_of_rules(self.counted) if self.few_pods else ()
        self._has_limits = self.counted.limits.has_any()
        self._leaves_pods_out = pods <= _FIRST_FIT_PODS and _leaves_feasible_pods_out(self.counted)

    def plans_to_improve(self) -> list[Plan]:
        """The plans that start best."""
        plans = [self.counted]
        if self.few_pods:
            plans += self._plans_of_domains()
            plans += self._plans_with_fewer_replicas(plans)
        needs_first_fit = self._leaves_pods_out or (self.few_pods and _needs_first_fit(self.counted))
        first_fit = self._first_fit_plans() if needs_first_fit else []
        if first_fit:
            plans = _fair([*plans, *first_fit])
        limited = self.few_pods and self._leaves_pods_out and self._has_limits
        chosen = sorted(plans, key=Plan.rank)[: _IMPROVED_AT_LIMITS if limited else 1]
        if self.few_pods and first_fit and _has_two_spreads(self.counted) and first_fit[-1] not in chosen:
            chosen.append(first_fit[-1])
        return chosen

    def _counted_plan(self, preferred_domain: str = "", *, cheapest_per_pod: bool = False) -> Plan:
        plan = self._new_plan(preferred_domain, cheapest_per_pod)
        schedule_by_counting(plan)
        return plan

    def _plans_of_domains(self) -> list[Plan]:
        """A counted plan for each preferred domain; not where preferring it orders the domains as before."""
        return [self._counted_plan(d) for d in self._domains if _changes_order(self.counted.domain_choices, d)]

    def _plans_with_fewer_replicas(self, plans: Sequence[Plan]) -> list[Plan]:
        """A counted plan with fewer replicas on a host, in the domain of the best of these plans."""
        if not any(plan.packer.replica_count_matters for plan in plans):
            return []
        best_domain = min(plans, key=Plan.rank).preferred_domain
        return [self._counted_plan(best_domain, cheapest_per_pod=True)]

    def _first_fit_plans(self) -> list[Plan]:
        """First fit, last as in Karpenter; where limits leave pods out, also with each preferred domain."""
        plans: list[Plan] = []
        for reserve_largest in (False, True) if self._has_limits else (True,):
            for domain in (*self._domains, "") if self._leaves_pods_out and self._has_limits else ("",):
                plan = self._new_plan(domain, False)  # noqa: FBT003 (a callable's argument has no name)
                schedule_by_first_fit(plan, reserve_largest=reserve_largest)
                plans.append(plan)
        return plans


def _is_single_pod_at_least_price(plan: Plan) -> bool:
    """Whether the plan is for one pod, on a new node, with its preferences and one alternative: none is cheaper."""
    if plan.pending_groups.pod_count != 1 or plan.relaxed or not plan.bins.opened:
        return False
    item, _ = plan.bins.opened[0].content[0]
    return isinstance(item.owner, PendingGroup) and len(item.owner.alternatives) == 1


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
        domains += plan.checker.label_values(key, all_options, all_offerings, no_nodes)
    return tuple(domains[:_MAX_PREFERRED_DOMAINS])


def _changes_order(choices_of_groups: Iterable[list[DomainChoice]], preferred_domain: str) -> bool:
    """Whether any group would choose among its domains in another order; else the plan would be the same."""
    return any(
        [c.where for c in cheapest_first(choices, preferred_domain)] != [c.where for c in choices]
        for choices in choices_of_groups
    )


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
