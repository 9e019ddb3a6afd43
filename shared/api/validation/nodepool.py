"""Validation of NodePools (template, limits, weight, disruption budgets) and of the NodeClaims made from them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import legacy, nodeclass
from shared.api.cluster_limits import read_cluster_limits
from shared.api.hourly_limits import read_hourly_limits
from shared.api.lost_work import lost_work_problem
from shared.api.meta import to_json
from shared.api.nodepool import BUDGET_DURATION, BUDGET_NODES, MAX_BUDGETS, MAX_WEIGHT, POLICIES, REASONS
from shared.api.validation import fields, kubelet
from shared.api.validation.fields import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import Budget, Disruption, NodePool, TemplateSpec

_HOURLY_LIMITS = frozenset({names.HOURLY_LIMITS, names.CLUSTER_HOURLY_LIMITS})
_NODES = re.compile(BUDGET_NODES)
_BUDGET_DURATION = re.compile(BUDGET_DURATION)
_ALLOWED_DURATIONS = "allowed are whole minutes and hours, such as 30m or 8h"


def validate_node_pool(pool: NodePool) -> Iterator[str]:
    """The problems of a karpenter.sh/v1 NodePool, in the order of its fields."""
    spec = pool.spec
    yield from pool_name(pool.name)
    yield from fields.template_labels("spec.template.metadata.labels", spec.template.metadata.labels)
    yield from fields.template_annotations("spec.template.metadata.annotations", spec.template.metadata.annotations)
    yield from _template(spec.template.spec)
    yield from _disruption(spec.disruption)
    yield from fields.quantities("spec.limits", spec.limits)
    yield from fields.within("spec.weight", spec.weight, 1, MAX_WEIGHT)
    yield from fields.within("spec.replicas", spec.replicas, 0)
    if names.CLUSTER_LIMITS in pool.metadata.annotations:
        yield from cluster_limits(pool.metadata.annotations[names.CLUSTER_LIMITS])
    if names.LOST_WORK in pool.metadata.annotations and (problem := lost_work_problem(pool.metadata.annotations)):
        yield f"metadata.annotations[{names.LOST_WORK}]: {problem}"
    if names.EXPECTED_GROWTH in pool.metadata.annotations:
        value = pool.metadata.annotations[names.EXPECTED_GROWTH]
        yield from fields.choice(f"metadata.annotations[{names.EXPECTED_GROWTH}]", value, ("true", "false"))
    for name in _HOURLY_LIMITS & pool.metadata.annotations.keys():
        for problem in read_hourly_limits(pool.metadata.annotations[name])[1]:
            yield f"metadata.annotations[{name}]: {problem}"


def cluster_limits(text: str) -> Iterator[str]:
    """The problems of annotation ``tenon.sh/cluster-limits``."""
    for problem in read_cluster_limits(text)[1]:
        yield f"metadata.annotations[{names.CLUSTER_LIMITS}]: {problem}"


def pool_name(given: str) -> Iterator[str]:
    """The name of a pool: nodes carry it as a label."""
    if not given:
        yield "metadata.name: is missing"
    elif len(given) > fields.MAX_NAME:
        yield (
            f"metadata.name: {quoted(given)} has {len(given)} characters; allowed are at most {fields.MAX_NAME}, "
            f"because nodes carry it as a label"
        )


def _template(spec: TemplateSpec) -> Iterator[str]:
    at = "spec.template.spec"
    yield from fields.node_class_ref(f"{at}.nodeClassRef", spec.node_class_ref, (nodeclass.KIND,))
    yield from fields.requirements(f"{at}.requirements", spec.requirements)
    yield from fields.both_taints(at, spec.taints, spec.startup_taints)
    yield from fields.duration(f"{at}.expireAfter", spec.expire_after, never=True)
    yield from fields.duration(f"{at}.terminationGracePeriod", spec.termination_grace_period)
    if spec.kubelet is not None:
        yield from kubelet.read_settings(f"{at}.kubelet", to_json(spec.kubelet))


def _disruption(disruption: Disruption) -> Iterator[str]:
    at = "spec.disruption"
    yield from fields.choice(f"{at}.consolidationPolicy", disruption.consolidation_policy, POLICIES)
    yield from fields.duration(f"{at}.consolidateAfter", disruption.consolidate_after, never=True)
    yield from fields.at_most(f"{at}.budgets", len(disruption.budgets), MAX_BUDGETS)
    for i, budget in enumerate(disruption.budgets):
        yield from _budget(f"{at}.budgets[{i}]", budget)


def _budget(at: str, budget: Budget) -> Iterator[str]:
    if not _NODES.fullmatch(budget.nodes):
        yield f'{at}.nodes: {quoted(budget.nodes)} is not allowed; allowed are a count such as "3" and "0%" to "100%"'
    for i, reason in enumerate(budget.reasons):
        yield from fields.choice(f"{at}.reasons[{i}]", reason, REASONS)
    if (budget.schedule is None) != (budget.duration is None):
        present, missing = ("schedule", "duration") if budget.duration is None else ("duration", "schedule")
        yield f"{at}.{missing}: is missing; {present} and {missing} must be set together"
    if budget.duration is not None and not _BUDGET_DURATION.fullmatch(budget.duration):
        yield f"{at}.duration: {quoted(budget.duration)} is not allowed; {_ALLOWED_DURATIONS}"


def validate_node_claim(claim: NodeClaim) -> Iterator[str]:
    """The problems of a karpenter.sh/v1 NodeClaim: Tenon writes them, but anybody may."""
    spec = claim.spec
    if not claim.name:
        yield "metadata.name: is missing"
    kinds = (nodeclass.KIND, legacy.TEMPLATE_KIND)
    yield from fields.node_class_ref("spec.nodeClassRef", spec.node_class_ref, kinds)
    yield from fields.requirements("spec.requirements", spec.requirements, of_node_claim=True)
    yield from fields.quantities("spec.resources.requests", spec.resources.requests)
    yield from fields.both_taints("spec", spec.taints, spec.startup_taints)
    yield from fields.duration("spec.expireAfter", spec.expire_after, never=True)
    yield from fields.duration("spec.terminationGracePeriod", spec.termination_grace_period)
