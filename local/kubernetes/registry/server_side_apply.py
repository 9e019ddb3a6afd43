"""Server-side apply: each manager owns the fields it applied, and loses what it no longer applies.

Owned fields are kept in ``metadata.managedFields`` in the API's own form (``fieldsV1``). Only appliers are owners here:
a plain update neither takes nor loses ownership, so conflicts arise between appliers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import errors
from local.kubernetes.errors import Cause
from local.kubernetes.registry import patches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.custom_resources import Definition

Fields = dict[str, Any]
"""A tree of ``f:field``, ``k:{"name":"x"}`` and ``v:value`` steps; an empty tree is a leaf."""

ListKeys = tuple[str, ...]
Shape = Callable[[tuple[str, ...]], ListKeys | None]
"""How a list at a path is joined: by keys of its items, as a set (no keys), or not at all (None: replaced whole)."""

_IDENTITY = frozenset(("apiVersion", "kind"))
_META_IDENTITY = frozenset((
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
))  # fmt: skip
_SETS = frozenset(("finalizers", "podCIDRs"))
_SELF: Fields = {}


def shape_of(definition: Definition | None) -> Shape:
    """How the lists of a kind are joined: by its schema, or for built-in kinds as strategic merge does."""

    def built_in(path: tuple[str, ...]) -> ListKeys | None:
        if path[-1] in _SETS:
            return ()
        key = patches.merge_key(path)
        return None if key is None else (key,)

    def custom(path: tuple[str, ...]) -> ListKeys | None:
        if path[0] == "metadata" or definition is None:
            return built_in(path)
        schema: Any = definition.schema.raw
        for name in path:
            inner = (schema.get("properties") or {}).get(name) or schema.get("additionalProperties")
            schema = inner if isinstance(inner, dict) else {}
            if len(path) > 1 and name != path[-1] and "items" in schema:
                schema = schema["items"]
        match schema.get("x-kubernetes-list-type"):
            case "set":
                return ()
            case "map":
                return tuple(schema.get("x-kubernetes-list-map-keys") or ())
        return None

    return built_in if definition is None else custom


def apply(
    current: Obj | None,
    config: Obj,
    *,
    manager: str,
    force: bool,
    subresource: str,
    now: str,
    shape: Shape,
) -> Obj:
    """The object with the configuration applied, and who owns what written into its ``managedFields``.

    Raises:
        ApiError: 409, another manager owns a field with another value, and ``force`` is false.
    """
    wanted = _config_of(config)
    fields = _fields(wanted, (), shape)
    base: Obj = current or {}
    entries: list[Obj] = (base.get("metadata") or {}).get("managedFields") or []
    others = [e for e in entries if not _is(e, manager, subresource)]
    mine: Fields = next((e["fieldsV1"] for e in entries if _is(e, manager, subresource)), {})
    causes = [
        Cause(path, "FieldManagerConflict", f'conflict with "{entry["manager"]}"')
        for entry in others
        for path in _conflicts(fields, entry["fieldsV1"], base, wanted, "")
    ]
    if causes and not force:
        raise errors.apply_conflict(causes)
    if causes:
        others = [{**e, "fieldsV1": _without(e["fieldsV1"], fields, base, wanted)} for e in others]
        others = [e for e in others if e["fieldsV1"]]
    owned_by_others = [entry["fieldsV1"] for entry in others]
    merged = _dropped(_merged(base, wanted, (), shape), mine, [fields, *owned_by_others])
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": config.get("apiVersion", base.get("apiVersion", "v1")),
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **({"subresource": subresource} if subresource else {}),
    }
    before = next((e for e in entries if _is(e, manager, subresource)), None)
    if before is not None and before["fieldsV1"] == fields and not causes:
        entry["time"] = before["time"]
    metadata = {**(config.get("metadata") or {}), **(merged.get("metadata") or {})}
    if requested := (config.get("metadata") or {}).get("resourceVersion"):
        metadata["resourceVersion"] = requested
    return {**merged, "metadata": {**metadata, "managedFields": [*others, entry]}}


def _is(entry: Obj, manager: str, subresource: str) -> bool:
    return bool(entry["manager"] == manager and entry.get("subresource", "") == subresource)


def _config_of(config: Obj) -> Obj:
    """What a configuration says, without what only identifies the object."""
    wanted = {name: value for name, value in config.items() if name not in _IDENTITY}
    metadata = {k: v for k, v in (config.get("metadata") or {}).items() if k not in _META_IDENTITY}
    wanted.pop("metadata", None)
    return {**wanted, **({"metadata": metadata} if metadata else {})}


def _step(item: Any, keys: ListKeys) -> str:  # noqa: ANN401 (JSON)
    if not keys or not isinstance(item, dict):
        return "v:" + msgspec.json.encode(item).decode()
    return "k:" + msgspec.json.encode({key: item.get(key) for key in keys}).decode()


def _fields(value: Any, path: tuple[str, ...], shape: Shape) -> Fields:  # noqa: ANN401 (JSON)
    if isinstance(value, dict):
        return {f"f:{name}": _fields(inner, (*path, name), shape) for name, inner in value.items()}
    if isinstance(value, list) and path:
        keys = shape(path)
        if keys is not None:
            return {_step(item, keys): {".": _SELF, **_fields(item, path, shape)} if keys else _SELF for item in value}
    return {}


def _merged(old: Any, new: Any, path: tuple[str, ...], shape: Shape) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(new, dict) and isinstance(old, dict):
        merged = dict(old)
        for name, value in new.items():
            merged[name] = _merged(old.get(name), value, (*path, name), shape)
        return merged
    if isinstance(new, list) and isinstance(old, list) and path:
        keys = shape(path)
        if keys is not None:
            given = {_step(item, keys): item for item in new}
            items = [_merged(i, given.pop(_step(i, keys)), path, shape) if _step(i, keys) in given else i for i in old]
            return [*items, *given.values()]
    return new


def _child(value: Any, step: str) -> Any:  # noqa: ANN401 (JSON)
    """What a step leads to; None when there is nothing."""
    how, _, name = step.partition(":")
    if how == "f":
        return value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    wanted = msgspec.json.decode(name)
    return next((item for item in value if _is_item(item, how, wanted)), None)


def _is_item(item: Any, how: str, wanted: Any) -> bool:  # noqa: ANN401 (JSON)
    if how == "v":
        return bool(item == wanted)
    return isinstance(item, dict) and all(item.get(key) == value for key, value in wanted.items())


def _conflicts(fields: Fields, theirs: Fields, current: Any, wanted: Any, path: str) -> Iterator[str]:  # noqa: ANN401 (JSON)
    for step, below in fields.items():
        if step not in theirs or step == ".":
            continue
        here, there = _child(current, step), _child(wanted, step)
        told = f"{path}.{step[2:]}" if step.startswith("f:") else f"{path}[{step[2:]}]"
        if below and theirs[step]:
            yield from _conflicts(below, theirs[step], here, there, told)
        elif here != there and not _joins(there):
            yield told


def _joins(value: Any) -> bool:  # noqa: ANN401 (JSON)
    """Whether applying the value takes nothing from anyone: an empty map."""
    return isinstance(value, dict) and not value


def _without(theirs: Fields, fields: Fields, current: Any, wanted: Any) -> Fields:  # noqa: ANN401 (JSON)
    """Their fields but for those on which we conflict."""
    kept: Fields = {}
    for step, below in theirs.items():
        if step not in fields or step == ".":
            kept[step] = below
            continue
        here, there = _child(current, step), _child(wanted, step)
        if below and fields[step]:
            left = _without(below, fields[step], here, there)
            if left:
                kept[step] = left
        elif here == there or _joins(there):
            kept[step] = below
    return kept


def _dropped(value: Any, mine: Fields, owners: list[Fields]) -> Any:  # noqa: ANN401 (JSON)
    """The value without what was ours and is nobody's now."""
    for step, below in mine.items():
        if step == ".":
            continue
        held = [owner[step] for owner in owners if step in owner]
        inner = _child(value, step)
        if inner is None:
            continue
        if below and (isinstance(inner, (dict, list))):
            left = _dropped(inner, below, held)
            gone = (not left and not held) or ("." in below and not held)
        else:
            left, gone = inner, not held
        value = _put(value, step, None if gone else left)
    return value


def _put(value: Any, step: str, new: Any) -> Any:  # noqa: ANN401 (JSON)
    """The container with the step's child replaced, or removed for None."""
    how, _, name = step.partition(":")
    if how == "f":
        return {k: (new if k == name else v) for k, v in value.items() if k != name or new is not None}
    wanted = msgspec.json.decode(name)
    return [
        new if _is_item(item, how, wanted) else item
        for item in value
        if new is not None or not _is_item(item, how, wanted)
    ]
