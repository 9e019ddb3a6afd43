"""Server-side apply: a manager owns the fields that it applies; fields that it no longer applies are removed.

Owned fields are kept in ``metadata.managedFields`` in the API's format (``fieldsV1``). Only appliers own fields here:
an update changes no ownership, so conflicts occur between appliers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import errors
from local.kubernetes.errors import Cause
from local.kubernetes.registry import patches
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.custom_resources import Definition
    from shared.api.json_types import Json

Fields = dict[str, Any]
"""A tree of ``f:field``, ``k:{"name":"x"}`` and ``v:value`` steps; an empty tree is a leaf."""

Keys = tuple[str, ...]
_ATOMIC_MAPS = frozenset(("selector", "labelSelector", "namespaceSelector", "nodeSelector"))
"""Maps of built-in kinds that have one owner: selectors."""

_IDENTITY = frozenset(("apiVersion", "kind"))
_META_IDENTITY = frozenset((
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
))  # fmt: skip
_SETS = frozenset(("finalizers", "podCIDRs"))
_SELF: Fields = {}


class Structure(Struct):
    """How the lists and maps of a kind are merged: by its schema; built-in kinds as strategic merge patches do."""

    definition: Definition | None

    def list_keys(self, path: tuple[str, ...]) -> Keys | None:
        """The keys by which a list is merged: empty for a set; None for an atomic list, which is replaced."""
        if path[0] == "metadata" or self.definition is None:
            key = patches.merge_key(path)
            return () if path[-1] in _SETS else None if key is None else (key,)
        schema = self._schema(path)
        match schema.get("x-kubernetes-list-type"):
            case "set":
                return ()
            case "map":
                return tuple(schema.get("x-kubernetes-list-map-keys") or ())
        return None

    def is_atomic_map(self, path: tuple[str, ...]) -> bool:
        """Whether a map has one owner, and is replaced."""
        if not path or path[0] == "metadata":
            return False
        if self.definition is None:
            return path[-1] in _ATOMIC_MAPS
        return bool(self._schema(path).get("x-kubernetes-map-type") == "atomic")

    def _schema(self, path: tuple[str, ...]) -> Obj:
        schema: Any = self.definition.schema.raw if self.definition else {}
        for name in path:
            inner = (schema.get("properties") or {}).get(name) or schema.get("additionalProperties")
            schema = inner if isinstance(inner, dict) else {}
            if len(path) > 1 and name != path[-1] and "items" in schema:
                schema = schema["items"]
        below: Obj = schema
        return below


def apply(
    current: Obj | None,
    config: Obj,
    *,
    manager: str,
    force: bool,
    subresource: str,
    now: str,
    structure: Structure,
) -> Obj:
    """The object with the configuration applied, and the owners of its fields in ``managedFields``.

    Raises:
        ApiError: 409, another manager owns a field with another value, and ``force`` is false.
    """
    applied = _applied_fields(config)
    fields = _field_set(applied, (), structure)
    base: Obj = current or {}
    entries: list[Obj] = (base.get("metadata") or {}).get("managedFields") or []
    previous = next((entry for entry in entries if _is_of(entry, manager, subresource)), None)
    remaining, conflicts = _resolve_conflicts(
        [entry for entry in entries if entry is not previous], fields, base, applied, force=force
    )
    owners = [fields, *(entry["fieldsV1"] for entry in remaining)]
    merged = _merge(base, applied, (), structure)
    if previous is not None:
        merged = _without_unowned(merged, previous["fieldsV1"], owners)
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": config.get("apiVersion", base.get("apiVersion", "v1")),
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **({"subresource": subresource} if subresource else {}),
    }
    if previous is not None and previous["fieldsV1"] == fields and not conflicts:
        entry["time"] = previous.get("time", now)
    return {**merged, "metadata": {**_metadata(config, merged), "managedFields": [*remaining, entry]}}


def _resolve_conflicts(
    entries: list[Obj], fields: Fields, current: Obj, applied: Obj, *, force: bool
) -> tuple[list[Obj], list[Cause]]:
    """The other managers' entries without the fields that are taken from them, and the conflicts.

    Raises:
        ApiError: 409, there is a conflict, and ``force`` is false.
    """
    conflicts = [
        Cause(path, "FieldManagerConflict", f"conflict with {_manager(entry)}")
        for entry in entries
        for path in _conflicts(fields, entry["fieldsV1"], current, applied, "")
    ]
    if not conflicts:
        return entries, []
    if not force:
        raise errors.apply_conflict(conflicts)
    reduced = [{**e, "fieldsV1": _without_conflicts(e["fieldsV1"], fields, current, applied)} for e in entries]
    return [entry for entry in reduced if entry["fieldsV1"]], conflicts


def _manager(entry: Obj) -> str:
    """The manager's name in a conflict: a version is named where it isn't an applier."""
    version = f" using {entry['apiVersion']}" if entry.get("operation") == "Update" else ""
    return f'"{entry["manager"]}"{version}'


def _metadata(config: Obj, merged: Obj) -> Obj:
    """The merged metadata with what identifies the object, and the resourceVersion that the configuration requires."""
    config_metadata = config.get("metadata") or {}
    metadata = {**config_metadata, **(merged.get("metadata") or {})}
    if required := config_metadata.get("resourceVersion"):
        metadata["resourceVersion"] = required
    return metadata


def _is_of(entry: Obj, manager: str, subresource: str) -> bool:
    return bool(entry["manager"] == manager and entry.get("subresource", "") == subresource)


def _applied_fields(config: Obj) -> Obj:
    """The configuration without the fields that only identify the object."""
    applied = {name: value for name, value in config.items() if name not in _IDENTITY}
    metadata = {k: v for k, v in (config.get("metadata") or {}).items() if k not in _META_IDENTITY}
    applied.pop("metadata", None)
    return {**applied, **({"metadata": metadata} if metadata else {})}


def _step(item: Json, keys: Keys) -> str:
    if not keys or not isinstance(item, dict):
        return "v:" + msgspec.json.encode(item).decode()
    return "k:" + msgspec.json.encode({key: item.get(key) for key in keys}).decode()


def _field_set(value: Json, path: tuple[str, ...], structure: Structure) -> Fields:
    if isinstance(value, dict) and not structure.is_atomic_map(path):
        return {f"f:{name}": _field_set(inner, (*path, name), structure) for name, inner in value.items()}
    if isinstance(value, list) and path:
        keys = structure.list_keys(path)
        if keys is not None:
            return {
                _step(item, keys): {".": _SELF, **_field_set(item, path, structure)} if keys else _SELF
                for item in value
            }
    return {}


def _merge(old: Json, new: Json, path: tuple[str, ...], structure: Structure) -> Json:
    if isinstance(new, dict) and isinstance(old, dict) and not structure.is_atomic_map(path):
        merged = dict(old)
        for name, value in new.items():
            merged[name] = _merge(old.get(name), value, (*path, name), structure)
        return merged
    if isinstance(new, list) and isinstance(old, list) and path:
        keys = structure.list_keys(path)
        if keys is not None:
            new_items = {_step(item, keys): item for item in new}
            items = [
                _merge(item, new_items.pop(step), path, structure) if (step := _step(item, keys)) in new_items else item
                for item in old
            ]
            return [*items, *new_items.values()]
    return new


def _child(value: Json, step: str) -> Json:
    """The value at a step; None when there is none."""
    step_type, _, name = step.partition(":")
    if step_type == "f":
        return value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    identity = msgspec.json.decode(name)
    return next((item for item in value if _is_item(item, step_type, identity)), None)


def _is_item(item: Json, step_type: str, identity: Json) -> bool:
    if step_type == "v":
        return bool(item == identity)
    return isinstance(item, dict) and all(item.get(key) == value for key, value in identity.items())


def _conflicts(fields: Fields, owned: Fields, current: Json, applied: Json, path: str) -> Iterator[str]:
    # Fields come before what is below others, each in the order of their names.
    for step, below in sorted(fields.items(), key=lambda field: (bool(field[1]), field[0])):
        if step not in owned or step == ".":
            continue
        current_value, applied_value = _child(current, step), _child(applied, step)
        field_path = f"{path}{_path_element(step)}"
        if below and owned[step]:
            yield from _conflicts(below, owned[step], current_value, applied_value, field_path)
        elif (
            _is_own(below)
            and _is_own(owned[step])
            and current_value != applied_value
            and not _is_empty_map(applied_value)
        ):
            yield field_path


def _path_element(step: str) -> str:
    """A step as part of a path in an error: ``.field``, ``[key="value"]`` or ``[="value"]``."""
    step_type, _, name = step.partition(":")
    if step_type == "f":
        return f".{name}"
    if step_type == "v":
        return f"[={name}]"
    keys = msgspec.json.decode(name)
    return "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in sorted(keys.items())) + "]"


def _is_own(fields: Fields) -> bool:
    """Whether a manager with these fields below a step owns the step itself."""
    return not fields or "." in fields


def _is_empty_map(value: Json) -> bool:
    """Whether the value is an empty map, whose application changes no field."""
    return isinstance(value, dict) and not value


def _without_conflicts(owned: Fields, fields: Fields, current: Json, applied: Json) -> Fields:
    """Another manager's fields without those that conflict."""
    kept: Fields = {}
    for step, below in owned.items():
        if step not in fields or step == ".":
            kept[step] = below
            continue
        current_value, applied_value = _child(current, step), _child(applied, step)
        if below and fields[step]:
            remaining = _without_conflicts(below, fields[step], current_value, applied_value)
            if remaining:
                kept[step] = remaining
        elif current_value == applied_value or _is_empty_map(applied_value):
            kept[step] = below
    return kept


def _without_unowned(value: Json, previous: Fields, owners: list[Fields]) -> Json:
    """The value without the manager's previous fields that nobody owns now."""
    for step, below in previous.items():
        if step == ".":
            continue
        step_owners = [owner[step] for owner in owners if step in owner]
        inner = _child(value, step)
        if inner is None:
            continue
        if below and (isinstance(inner, (dict, list))):
            remaining = _without_unowned(inner, below, step_owners)
            removed = not step_owners and (not remaining or "." in below)
        else:
            remaining, removed = inner, not step_owners
        value = _replace_child(value, step, None if removed else remaining)
    return value


def _replace_child(value: Json, step: str, new: Json) -> Json:
    """The map or list with the value at the step replaced; None removes it."""
    step_type, _, name = step.partition(":")
    if step_type == "f":
        return {k: (new if k == name else v) for k, v in value.items() if k != name or new is not None}
    identity = msgspec.json.decode(name)
    return [
        new if _is_item(item, step_type, identity) else item
        for item in value
        if new is not None or not _is_item(item, step_type, identity)
    ]
