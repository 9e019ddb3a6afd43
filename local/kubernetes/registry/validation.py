"""Validation of objects before they are stored, apart from their metadata.

Built-in kinds get the checks that decisions and people rely on, custom kinds those of their schema. Source: the
validation in kubernetes ``pkg/apis``. Metadata: ``object_meta``; workloads: ``workload_rules``; pods: ``pod_rules``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.registry import (
    custom_resources,
    object_meta,
    pod_rules,
    pod_strategy,
    scale,
    storage_rules,
    workload_rules,
)
from local.kubernetes.registry import field_rules as rules
from local.kubernetes.registry.defaults import WITH_TEMPLATE
from local.kubernetes.registry.resource_rules import amounts
from local.kubernetes.registry.scheduling_rules import taints
from local.kubernetes.registry.structural_schema import blocks_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from local.kubernetes.errors import Cause
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.custom_resources import Definition
    from local.kubernetes.registry.field_rules import Causes

_EVICTION_POLICIES = ("IfHealthyBudget", "AlwaysAllow")
_METADATA_LAST = frozenset((kinds.POD_DISRUPTION_BUDGETS.resource, kinds.LEASES.resource))
"""The kinds of which a new object's metadata isn't looked at before the rest is valid."""
_HIGHEST_USER_PRIORITY = 1_000_000_000


def validate(
    kind: Kind, new: Obj, old: Obj | None, definition: Definition | None, *, subresource: str = ""
) -> list[Cause]:
    """The errors of the object; ``old`` is None for a new object. ``subresource``: which an update changes."""
    metadata = object_meta.validate(kind, new["metadata"], None if old is None else old["metadata"])
    if definition is not None:
        violations = definition.validate(new, old, is_blocked=blocks_rules(metadata))
        return [*metadata, *violations, *scale.invalid_replicas(new, definition)]
    if subresource == "resize" and old is not None:
        return [*metadata, *pod_strategy.validate_resize(new, old)]
    body = _body(kind, new, old)
    is_last = old is None and kind.resource in _METADATA_LAST
    return body if is_last and body else [*metadata, *body]


def _body(kind: Kind, new: Obj, old: Obj | None) -> list[Cause]:
    """The errors of the object of a built-in kind other than those of its metadata."""
    if kind.resource in WITH_TEMPLATE:
        return [*workload_rules.of_workload(kind, new, is_new=old is None), *workload_rules.changed(kind, new, old)]
    validator = _VALIDATORS.get(kind.resource)
    return list(validator(new, old)) if validator else []


def _pod(new: Obj, old: Obj | None) -> Iterable[Cause]:
    return pod_rules.of_pod(new) if old is None else pod_strategy.validate_update(new, old)


def _pod_template(new: Obj, _old: Obj | None) -> Causes:
    return pod_rules.of_template(new.get("template") or {}, "template")


def _node(new: Obj, old: Obj | None) -> Causes:
    spec = new.get("spec") or {}
    before = ((old or {}).get("spec") or {}).get("providerID")
    if before and before != spec.get("providerID"):
        yield rules.forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
    yield from taints(spec.get("taints") or (), "metadata.taints")  # so it says, since taints were an annotation
    for name in ("capacity", "allocatable"):
        yield from amounts((new.get("status") or {}).get(name) or {}, f"status.{name}")


def _budget(new: Obj, _old: Obj | None) -> Causes:
    spec = new.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield rules.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            yield from rules.count_or_percent(f"spec.{name}", spec[name])
    yield from rules.label_selector("spec.selector", spec.get("selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    yield from rules.among("spec.unhealthyPodEvictionPolicy", policy, _EVICTION_POLICIES)


def _lease(new: Obj, _old: Obj | None) -> Causes:
    seconds = (new.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None:
        yield from rules.positive("spec.leaseDurationSeconds", seconds)


def _priority_class(new: Obj, _old: Obj | None) -> Causes:
    value = new.get("value", 0)
    if value > _HIGHEST_USER_PRIORITY and not new["metadata"]["name"].startswith("system-"):
        yield rules.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}")
    yield from pod_rules.preemption_policy("preemptionPolicy", new.get("preemptionPolicy"))


def _without_old(validator: Callable[[Obj], Causes]) -> Callable[[Obj, Obj | None], Causes]:
    return lambda new, _old: validator(new)


_VALIDATORS: dict[str, Callable[[Obj, Obj | None], Iterable[Cause]]] = {
    kinds.PODS.resource: _pod,
    kinds.POD_TEMPLATES.resource: _pod_template,
    kinds.NODES.resource: _node,
    kinds.POD_DISRUPTION_BUDGETS.resource: _budget,
    kinds.LEASES.resource: _lease,
    kinds.PRIORITY_CLASSES.resource: _priority_class,
    kinds.RUNTIME_CLASSES.resource: _without_old(pod_rules.runtime_class),
    kinds.PERSISTENT_VOLUMES.resource: _without_old(storage_rules.volume),
    kinds.PERSISTENT_VOLUME_CLAIMS.resource: _without_old(storage_rules.claim),
    kinds.STORAGE_CLASSES.resource: _without_old(storage_rules.storage_class),
    kinds.CSI_NODES.resource: _without_old(storage_rules.csi_node),
    kinds.CUSTOM_RESOURCE_DEFINITIONS.resource: custom_resources.validate_definition,
}
