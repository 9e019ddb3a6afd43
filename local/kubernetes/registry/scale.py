"""The scale subresource: the replicas of a workload of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import errors
from local.kubernetes.kinds import Kind

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.custom_resources import Definition
    from shared.api.json_types import Json

_SCALE = Kind("autoscaling", "v1", "scales", "Scale")
_MOST_REPLICAS = 2**31 - 1
_SPEC_REPLICAS, _STATUS_REPLICAS = ".spec.replicas", ".status.replicas"


def scale_of(kind: Kind, obj: Obj, definition: Definition | None) -> Obj:
    """The object's ``autoscaling/v1`` Scale.

    Raises:
        ApiError: 404, the kind has no such subresource.
    """
    spec_path, status_path = _paths(kind, definition)
    metadata = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = _selector(obj, definition)
    replicas = _value_at(obj, spec_path)
    status: Obj = {"replicas": _value_at(obj, status_path) or 0}
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector(obj: Obj, definition: Definition | None) -> str:
    """The text of the selector of the object's pods; empty without one."""
    if definition is not None:
        path = (definition.scale or {}).get("labelSelectorPath")
        return str(_value_at(obj, path) or "") if path else ""
    selector = (obj.get("spec") or {}).get("selector")
    labels = (selector.get("matchLabels") or {}) if isinstance(selector, dict) else {}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def check_replicas(kind: Kind, obj: Obj, definition: Definition | None) -> None:
    """Raise 500 if a custom object has no replicas: unlike a patch, a read of its Scale fails."""
    spec_path, _ = _paths(kind, definition)
    if definition is not None and _value_at(obj, spec_path) is None:
        raise errors.internal(f'the spec replicas field "{spec_path}" does not exist')


def invalid_replicas(obj: Obj, definition: Definition) -> list[errors.Cause]:
    """The errors of a custom object's replicas, besides its schema's; they name the path with its leading dot."""
    paths = _paths(definition.kind, definition) if definition.scale else ()
    texts = {path: _replicas_error(obj, path) for path in paths}
    return [errors.Cause(path, "FieldValueInvalid", f"Invalid value: {text}") for path, text in texts.items() if text]


def _replicas_error(obj: Json, path: str) -> str:
    """The value at the path and what it should be; "" if it may be so, or there is none."""
    for part in path.strip(".").split("."):
        if not isinstance(obj, dict):
            return f"0: {path} accessor error: {obj} is not an object"
        obj = obj.get(part)
        if obj is None:
            return ""
    if not isinstance(obj, int) or isinstance(obj, bool):
        return f"0: {path} accessor error: {obj} is not an integer"
    if obj < 0:
        return f"{obj}: should be a non-negative integer"
    return f"{obj}: should be less than or equal to {_MOST_REPLICAS}" if obj > _MOST_REPLICAS else ""


def with_scale(kind: Kind, obj: Obj, scale: Obj, definition: Definition | None) -> Obj:
    """The object with the replicas and the resourceVersion of a Scale, so that an outdated Scale conflicts.

    Raises:
        ApiError: 404 the kind has no such subresource; 422 the replicas are not a non-negative integer.
    """
    spec_path, _ = _paths(kind, definition)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        field = "spec.replicas" if definition is None else spec_path
        subject = kind if kind.custom else _SCALE
        raise errors.invalid(subject, obj["metadata"]["name"], [errors.Cause(field, "FieldValueInvalid", text)])
    version = (scale.get("metadata") or {}).get("resourceVersion")
    metadata = {**obj["metadata"], "resourceVersion": version or obj["metadata"]["resourceVersion"]}
    scaled: Obj = _with_value({**obj, "metadata": metadata}, spec_path.strip(".").split("."), replicas)
    return scaled


def _paths(kind: Kind, definition: Definition | None) -> tuple[str, str]:
    if "scale" not in kind.subresources:
        raise errors.no_such_path()
    if definition is None:
        return _SPEC_REPLICAS, _STATUS_REPLICAS
    paths = definition.scale or {}
    return paths.get("specReplicasPath", _SPEC_REPLICAS), paths.get("statusReplicasPath", _STATUS_REPLICAS)


def _value_at(obj: Json, path: str) -> Json:
    for part in path.strip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _with_value(obj: Obj, path: list[str], value: int) -> Obj:
    first, *rest = path
    return {**obj, first: _with_value(obj.get(first) or {}, rest, value) if rest else value}
