"""Fills a plan: by counting, in rounds that relax one preference each; by first fit; and by local search afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.solver.domain_assignment import DomainAssignment
from shared.scheduling.solver.first_fit import FirstFit
from shared.scheduling.solver.fit import set_worth
from shared.scheduling.solver.local_search import LocalSearch
from shared.scheduling.solver.node_pool_weight import NodePoolWeights
from shared.scheduling.solver.pending_groups import PendingGroup
from shared.scheduling.solver.settling import release_sizes, reserve_sizes, settle
from shared.scheduling.solver.unscheduled_pods import remove_excess_pods, schedule_first_by_name
from shared.scheduling.topology.preferences import relax

if TYPE_CHECKING:
    from shared.scheduling.solver.plan import Plan


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
    LocalSearch(plan.bins, plan.packer.option_sets, steps).run()
    if plan.unscheduled:
        settle(plan.bins)
        plan.unscheduled = _round(plan, plan.unscheduled)
    _finish(plan)


def _round(plan: Plan, pending: list[PendingGroup]) -> list[PendingGroup]:
    """Assigns domains, then packs, NodePools of the greatest weight first; returns groups with pods left."""
    plan.count_rules_of(pending)
    groups = plan.host_affinity.bind(pending, plan.present_host_terms())
    assignment = DomainAssignment(plan.checker, plan.topology, plan.existing_capacity, plan.preferred_domain)
    items = assignment.assign_all(groups)
    set_worth(plan.bins.launch_options, items)
    for options in NodePoolWeights(plan.bins.launch_options).options_by_weight():
        plan.packer.pack(items, options)
    for item in items:
        if item.pods and isinstance(item.owner, PendingGroup):
            plan.topology.domain_counts.take(item.owner.rules, item.where, -len(item.pods))
            item.owner.sizes.append((item.requests, item.pods))
    plan.host_affinity.unbind(groups)
    return [group for group in pending if group.sizes]


def _finish(plan: Plan) -> None:
    """Settles launch options within limits, and unschedules pods of bins that exceed them."""
    settle(plan.bins)
    for bin_ in reserve_sizes(plan.bins):
        for item, pods in bin_.content:
            plan.unschedule(item, pods)
        plan.bins.close(bin_)
    if plan.unscheduled:
        remove_excess_pods(plan)
        schedule_first_by_name(plan)
