"""Problems of a NodePool: its template, limits, weight and disruption budgets."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import nodeclass
from shared.api.cron import CronError, parse_cron
from shared.api.duration import DurationError, parse_duration
from shared.api.nodepool import BUDGET_NODES, MAX_BUDGETS, MAX_WEIGHT, POLICIES, REASONS
from shared.api.validation import constraints, kubelet, scalars
from shared.api.validation.scalars import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.nodepool import Budget, Disruption, NodePool, TemplateSpec

_NODES = re.compile(BUDGET_NODES)


def problems(pool: NodePool) -> Iterator[str]:
    """Every problem, in the order of the fields."""
    spec = pool.spec
    yield from name(pool.name)
    yield from constraints.template_labels("spec.template.metadata.labels", spec.template.metadata.labels)
    yield from constraints.template_annotations(
        "spec.template.metadata.annotations", spec.template.metadata.annotations
    )
    yield from _template(spec.template.spec)
    yield from _disruption(spec.disruption)
    yield from scalars.quantities("spec.limits", spec.limits)
    yield from scalars.within("spec.weight", spec.weight, 1, MAX_WEIGHT)
    yield from scalars.within("spec.replicas", spec.replicas, 0)


def name(given: str) -> Iterator[str]:
    """The name of a pool: nodes carry it as a label."""
    if not given:
        yield "metadata.name: is missing"
    elif len(given) > scalars.MAX_NAME:
        yield (
            f"metadata.name: {quoted(given)} has {len(given)} characters; allowed are at most {scalars.MAX_NAME}, "
            f"because nodes carry it as a label"
        )


def _template(spec: TemplateSpec) -> Iterator[str]:
    at = "spec.template.spec"
    yield from constraints.node_class_ref(f"{at}.nodeClassRef", spec.node_class_ref, (nodeclass.KIND,))
    yield from constraints.requirements(f"{at}.requirements", spec.requirements)
    yield from constraints.both_taints(at, spec.taints, spec.startup_taints)
    yield from scalars.duration(f"{at}.expireAfter", spec.expire_after, never=True)
    yield from scalars.duration(f"{at}.terminationGracePeriod", spec.termination_grace_period)
    if spec.kubelet is not None:
        yield from kubelet.problems(f"{at}.kubelet", spec.kubelet)


def _disruption(disruption: Disruption) -> Iterator[str]:
    at = "spec.disruption"
    yield from scalars.choice(f"{at}.consolidationPolicy", disruption.consolidation_policy, POLICIES)
    yield from scalars.duration(f"{at}.consolidateAfter", disruption.consolidate_after, never=True)
    yield from scalars.at_most(f"{at}.budgets", len(disruption.budgets), MAX_BUDGETS)
    for i, budget in enumerate(disruption.budgets):
        yield from _budget(f"{at}.budgets[{i}]", budget)


def _budget(at: str, budget: Budget) -> Iterator[str]:
    if not _NODES.fullmatch(budget.nodes):
        yield f'{at}.nodes: {quoted(budget.nodes)} is not allowed; allowed are a count such as "3" and "0%" to "100%"'
    for i, reason in enumerate(budget.reasons):
        yield from scalars.choice(f"{at}.reasons[{i}]", reason, REASONS)
    if (budget.schedule is None) != (budget.duration is None):
        there, missing = ("schedule", "duration") if budget.duration is None else ("duration", "schedule")
        yield f"{at}.{missing}: is missing; {there} and {missing} belong together"
    if budget.schedule is not None:
        try:
            parse_cron(budget.schedule)
        except CronError as error:
            yield f"{at}.schedule: {error}"
    if budget.duration is not None:
        yield from _budget_duration(f"{at}.duration", budget.duration)


def _budget_duration(path: str, given: str) -> Iterator[str]:
    """Whole minutes, because cron counts in minutes."""
    try:
        duration = parse_duration(given)
    except DurationError as error:
        yield f"{path}: {error}"
        return
    if not duration or duration % timedelta(minutes=1):
        yield f"{path}: {quoted(given)} is not allowed; allowed are whole minutes and hours, such as 30m or 8h"
