"""Validation of objects before they are stored, apart from their metadata.

Built-in kinds get the checks that decisions and people rely on, custom kinds those of their schema. Source: the
validation in kubernetes ``pkg/apis``. Pods: ``pod_strategy``; metadata: ``object_meta``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds, selectors
from local.kubernetes.errors import Cause
from local.kubernetes.registry import custom_resources, pod_strategy
from local.kubernetes.registry.defaults import WITH_TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.custom_resources import Definition


def validate(kind: Kind, new: Obj, old: Obj | None, definition: Definition | None) -> list[Cause]:
    """The errors of the object other than those of its metadata; ``old`` is None for a new object."""
    if definition is not None:
        return definition.validate(new, old)
    validator = _VALIDATORS.get(kind.resource)
    causes = validator(new, old) if validator else []
    if kind.resource in WITH_TEMPLATE:
        causes = [*causes, *_validate_template(kind, new, is_new=old is None), *_immutable_fields(kind, new, old)]
    return causes


def _validate_pod(new: Obj, old: Obj | None) -> list[Cause]:
    return pod_strategy.validate(new) if old is None else pod_strategy.validate_update(new, old)


def _validate_node(new: Obj, old: Obj | None) -> list[Cause]:
    causes: list[Cause] = []
    before = ((old or {}).get("spec") or {}).get("providerID")
    after = (new.get("spec") or {}).get("providerID")
    if before and before != after:
        text = 'Forbidden: node updates may not change providerID except from "" to valid'
        causes.append(Cause("spec.providerID", "FieldValueForbidden", text))
    for index, taint in enumerate((new.get("spec") or {}).get("taints") or []):
        path = f"metadata.taints[{index}]"  # so it says, since taints were an annotation
        if not taint.get("key"):
            causes.append(Cause(f"{path}.key", "FieldValueInvalid", 'Invalid value: "": name part must be non-empty'))
        allowed = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        if taint.get("effect") not in allowed:
            text = f'Unsupported value: "{taint.get("effect", "")}": supported values: ' + ", ".join(
                f'"{name}"' for name in sorted(allowed)
            )
            causes.append(Cause(f"{path}.effect", "FieldValueNotSupported", text))
    for name in ("capacity", "allocatable"):
        causes.extend(pod_strategy.validate_quantities((new.get("status") or {}).get(name), f"status.{name}"))
    return causes


def _validate_budget(new: Obj, _old: Obj | None) -> list[Cause]:
    spec = new.get("spec") or {}
    causes: list[Cause] = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        text = "Invalid value: minAvailable and maxUnavailable cannot be both set"
        causes.append(Cause("spec", "FieldValueInvalid", text))
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if value is not None and not _is_count_or_percent(value):
            text = f"Invalid value: {_quoted(value)}: must be a non-negative integer or a percentage (e.g. '50%')"
            causes.append(Cause(f"spec.{name}", "FieldValueInvalid", text))
    return causes


def _validate_lease(new: Obj, _old: Obj | None) -> list[Cause]:
    seconds = (new.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is None or seconds > 0:
        return []
    text = f"Invalid value: {seconds}: must be greater than 0"
    return [Cause("spec.leaseDurationSeconds", "FieldValueInvalid", text)]


def _is_count_or_percent(value: Any) -> bool:  # noqa: ANN401 (JSON)
    if isinstance(value, str):
        return value.endswith("%") and value[:-1].isdigit()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _quoted(value: Any) -> str:  # noqa: ANN401 (JSON)
    return f'"{value}"' if isinstance(value, str) else str(value)


_MUTABLE_IN_STATEFUL_SETS = frozenset((
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "minReadySeconds",
    "persistentVolumeClaimRetentionPolicy",
))  # fmt: skip


def _immutable_fields(kind: Kind, new: Obj, old: Obj | None) -> list[Cause]:
    """The errors of changed fields that can't be changed."""
    before = (old or {}).get("spec") or {}
    names = ("selector", "template", "completions") if kind.resource == kinds.JOBS.resource else ("selector",)
    if old is None:
        return []
    if kind.resource == kinds.STATEFUL_SETS.resource:
        after = new["spec"]
        changed = {name for name in {*after, *before} if after.get(name) != before.get(name)}
        text = "Forbidden: updates to statefulset spec for fields other than 'replicas', 'template', … are forbidden"
        return [Cause("spec", "FieldValueForbidden", text)] if changed - _MUTABLE_IN_STATEFUL_SETS else []
    return [
        Cause(f"spec.{name}", "FieldValueInvalid", f"Invalid value: {new['spec'].get(name)}: field is immutable")
        for name in names
        if new["spec"].get(name) != before.get(name)
    ]


def _validate_template(kind: Kind, obj: Obj, *, is_new: bool) -> list[Cause]:
    spec = obj["spec"]
    causes: list[Cause] = []
    template = spec.get("template") or {}
    pod = {"spec": template.get("spec") or {}}
    causes.extend(Cause(f"spec.template.{c.field}", c.reason, c.message) for c in pod_strategy.validate(pod))
    if kind.resource == kinds.JOBS.resource:
        if pod["spec"].get("restartPolicy") not in {"OnFailure", "Never"}:
            text = 'Required value: valid values: "OnFailure", "Never"'
            causes.append(Cause("spec.template.spec.restartPolicy", "FieldValueRequired", text))
        if is_new:
            return causes  # its selector and labels are generated
    if not spec.get("selector") and kind.resource != kinds.DAEMON_SETS.resource:
        causes.append(Cause("spec.selector", "FieldValueRequired", "Required value"))
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = selectors.parse_label_selector(spec.get("selector"))
    if selector is None or not selectors.matches(selector, labels):
        text = f"Invalid value: {labels}: `selector` does not match template `labels`"
        causes.append(Cause("spec.template.metadata.labels", "FieldValueInvalid", text))
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        causes.append(Cause("spec.replicas", "FieldValueInvalid", text))
    return causes


_VALIDATORS: dict[str, Callable[[Obj, Obj | None], list[Cause]]] = {
    kinds.PODS.resource: _validate_pod,
    kinds.NODES.resource: _validate_node,
    kinds.POD_DISRUPTION_BUDGETS.resource: _validate_budget,
    kinds.LEASES.resource: _validate_lease,
    kinds.CUSTOM_RESOURCE_DEFINITIONS.resource: custom_resources.validate_definition,
}
