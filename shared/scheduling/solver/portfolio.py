"""Chooses the plan of a run from a small portfolio.

Few heuristics serve every problem. The counted plan is nearly always the best, so local search improves that of the
plans that starts best, and others are tried only where they have a chance:

- Where pods are few and their rules are about zones or other domains, counted plans that prefer one domain each.
- Where hosts could run more replicas of a spread or anti-affinity than is cheapest, one that packs fewer on each.
- Where pods are left out, or rules meet that counting serves badly, first fit, as Karpenter's scheduler does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.solver.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.scheduling.decision import SchedulingPolicies
    from shared.scheduling.rules.pod_affinity import Namespaces
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods

_FEW_PODS = 300
"""Up to so many pods, more plans than one are tried, and local search is thorough."""
_SEARCH_STEPS = 1500
_SEARCH_STEPS_MANY_PODS = 80
_FIRST_FIT_PODS = 5000
"""Up to so many pods, first fit is tried where the counted plan leaves some out."""

_IMPROVED_AT_LIMITS = 4
"""Where NodePool limits leave pods out, so many plans are improved: smaller nodes may leave capacity for them."""


def best_plan(
    checker: FeasibilityChecker,
    namespaces: Namespaces,
    groups: Sequence[tuple[PodGroup, list[SizedPods]]],
    policies: SchedulingPolicies,
) -> Planner:
    """The plan that leaves out the fewest pods, then relaxes the fewest preferences, then costs least."""

    def plan(preferred_domain: str = "", *, cheapest_per_pod: bool = False) -> Planner:
        return Planner(checker, namespaces, groups, policies, preferred_domain, cheapest_per_pod=cheapest_per_pod)

    counted = plan()
    counted.run()
    plans = [counted]
    few = counted.pods <= _FEW_PODS
    domains = counted.choice_of_domains() if few else ()
    for domain in domains:
        plans.append(plan(domain))
        plans[-1].run()
    if few and any(p.packer.torn for p in plans):
        plans.append(plan(min(plans, key=Planner.rank).preferred_domain, cheapest_per_pod=True))
        plans[-1].run()
    leaves_out = counted.pods <= _FIRST_FIT_PODS and counted.leaves_some_out()
    limited = leaves_out and counted.limits.has_any()
    if leaves_out or (few and counted.is_entangled()):
        for cautious in (False, True) if counted.limits.has_any() else (True,):
            for domain in (*domains, "") if limited else ("",):
                plans.append(plan(domain))
                plans[-1].run_one_by_one(cautious=cautious)
        plans = _fair(plans)
    improved = sorted(plans, key=Planner.rank)[: _IMPROVED_AT_LIMITS if few and limited else 1]
    if few and counted.meets_two_rules() and plans[-1] not in improved:
        improved.append(plans[-1])
    for candidate in improved:
        candidate.improve(_SEARCH_STEPS if few else _SEARCH_STEPS_MANY_PODS)
    return min(improved, key=Planner.rank)


def _fair(plans: Sequence[Planner]) -> list[Planner]:
    """The plans that leave out no pod that the last one, first fit, schedules; or less than a quarter as many pods.

    First fit takes the largest pods first, as Karpenter does.
    """
    left_out_by_first_fit = plans[-1].left_out()
    left_out = [plan.left_out() for plan in plans]
    return [
        plan
        for plan, pods in zip(plans, left_out, strict=True)
        if pods <= left_out_by_first_fit or len(pods) * 4 < len(left_out_by_first_fit)
    ]
