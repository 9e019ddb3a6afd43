"""JSON merge patches (RFC 7386), JSON patches (RFC 6902) and strategic merge patches.

All are pure functions: they return a new object and do not change the given one. See also ``server_side_apply``.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from local.kubernetes import errors

if TYPE_CHECKING:
    from shared.api.json_types import Json


def merge(target: Json, patch: Json) -> Json:
    """The target after a JSON merge patch: maps are merged, null deletes, all other values replace."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def json_patch(target: Json, operations: Json) -> Json:
    """The target after a JSON patch.

    Raises:
        ApiError: 400 the patch is malformed; 422 it can't be applied, such as a failed test.
    """
    if not isinstance(operations, list):
        raise errors.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    doc = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise errors.bad_request("error decoding patch: an operation has no path")
        doc = _apply_operation(doc, operation)
    return doc


def _apply_operation(doc: Json, operation: dict[str, Any]) -> Json:
    op, path = operation.get("op"), _pointer(operation["path"])
    match op:
        case "add":
            return _add(doc, path, copy.deepcopy(operation.get("value")))
        case "remove":
            _remove(doc, path)
        case "replace":
            if not path:
                return operation.get("value")
            container = _at(doc, path[:-1])
            # A real server's library adds a member that isn't there; RFC 6902 has an error for it.
            container[_key(container, path[-1], end=isinstance(container, dict))] = copy.deepcopy(
                operation.get("value")
            )
        case "move":
            source = _pointer(operation.get("from", ""))
            value = _at(doc, source)
            _remove(doc, source)
            return _add(doc, path, value)
        case "copy":
            return _add(doc, path, copy.deepcopy(_at(doc, _pointer(operation.get("from", "")))))
        case "test":
            if not _equal(_at(doc, path), operation.get("value")):
                raise errors.unprocessable()
        case _:
            raise errors.bad_request(f"Unexpected kind: {op}")
    return doc


def _equal(a: Json, b: Json) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise errors.bad_request(f"error decoding patch: the path {text!r} does not start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _key(container: Json, part: str, *, end: bool = False) -> Json:
    if isinstance(container, list):
        if part == "-" and end:
            return len(container)
        if part.isdigit() and int(part) < len(container) + end:
            return int(part)
    elif isinstance(container, dict) and (end or part in container):
        return part
    raise errors.unprocessable()


def _at(doc: Json, path: list[str]) -> Json:
    for part in path:
        doc = doc[_key(doc, part)]
    return doc


def _add(doc: Json, path: list[str], value: Json) -> Json:
    if not path:
        return value
    container = _at(doc, path[:-1])
    slot = _key(container, path[-1], end=True)
    if isinstance(container, list):
        container.insert(slot, value)
    else:
        container[slot] = value
    return doc


def _remove(doc: Json, path: list[str]) -> None:
    if not path:
        raise errors.unprocessable()
    container = _at(doc, path[:-1])
    del container[_key(container, path[-1])]


MERGE_KEYS: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "conditions": "type",
    "podIPs": "ip",
    "ownerReferences": "uid",
    "secrets": "name",
    "ports": "containerPort",
}
"""The key by which strategic merge merges a list of built-in kinds (``patchMergeKey`` in the API's types)."""

_PRIMITIVE_LISTS = frozenset(("finalizers", "podCIDRs"))
_SET_ORDER, _DELETE_FROM, _RETAIN_KEYS, _PATCH = (
    "$setElementOrder/",
    "$deleteFromPrimitiveList/",
    "$retainKeys",
    "$patch",
)


def merge_key(path: tuple[str, ...]) -> str | None:
    """The key by which a list at that path is merged; None when it is replaced."""
    field = path[-1]
    if field == "ports" and "containers" not in path and "initContainers" not in path:
        return "port" if path[:1] == ("spec",) else None
    if field == "addresses" and path[:1] == ("status",):
        return "type"
    return MERGE_KEYS.get(field)


def strategic(target: Json, patch: Json, path: tuple[str, ...] = ()) -> Json:
    """The target after a strategic merge patch: as RFC 7386, but known lists are merged by their items' keys.

    Directives: ``$patch: replace|delete``, ``$retainKeys``, ``$setElementOrder/…``, ``$deleteFromPrimitiveList/…``
    (apimachinery ``strategicpatch``).
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get(_PATCH) == "replace":
        return {name: value for name, value in patch.items() if name != _PATCH}
    merged = dict(target) if isinstance(target, dict) else {}
    if isinstance(patch.get(_RETAIN_KEYS), list):
        merged = {name: value for name, value in merged.items() if name in patch[_RETAIN_KEYS]}
    _merge_fields(merged, patch, path)
    for name, value in patch.items():
        field = name.removeprefix(_SET_ORDER)
        if name.startswith(_SET_ORDER) and isinstance(merged.get(field), list):
            before = target.get(field) if isinstance(target, dict) else None
            merged[field] = _ordered(merged[field], value, before or [], merge_key((*path, field)))
    return merged


def _merge_fields(merged: dict[str, Any], patch: dict[str, Any], path: tuple[str, ...]) -> None:
    """Merge the patch's fields into a map, in place."""
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            field = name.removeprefix(_DELETE_FROM)
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None or value == {_PATCH: "delete"}:
            merged.pop(name, None)
        elif isinstance(value, list):
            merged[name] = _merge_lists(merged.get(name) or [], value, (*path, name))
        else:
            merged[name] = strategic(merged.get(name), value, (*path, name))


def _merge_lists(before: list[Any], patch: list[Any], path: tuple[str, ...]) -> list[Any]:
    if path[-1] in _PRIMITIVE_LISTS:
        merged = [*before, *(item for item in patch if item not in before)]
        return _ordered(merged, patch, before, None)
    key = merge_key(path)
    if key is None or any(not isinstance(item, dict) for item in patch):
        return patch
    if any(item == {_PATCH: "replace"} for item in patch):
        return [item for item in patch if item != {_PATCH: "replace"}]
    items = list(before)
    for change in patch:
        if key not in change:
            raise errors.bad_request(f"map: {change} does not contain declared merge key: {key}")
        items = _with_change(items, change, key, path)
    return _ordered(items, patch, before, key)


def _with_change(items: list[Any], change: dict[str, Any], key: str, path: tuple[str, ...]) -> list[Any]:
    """The list with one item deleted, merged or added."""
    if change.get(_PATCH) == "delete":
        return [item for item in items if item.get(key) != change[key]]
    index = next((i for i, item in enumerate(items) if item.get(key) == change[key]), None)
    if index is None:
        return [*items, strategic({}, change, path)]
    return [*items[:index], strategic(items[index], change, path), *items[index + 1 :]]


def _ordered(items: list[Any], order: list[Any], before: list[Any], key: str | None) -> list[Any]:
    """The items that ``order`` names in its order, and the others in that of the list before the patch.

    An item that isn't named comes before a named one where it did so before the patch, and else behind them.
    """

    def identity(item: Json) -> str:
        return repr(item.get(key) if key and isinstance(item, dict) else item)

    ranks = {identity(item): index for index, item in enumerate(order)}
    places = {identity(item): index for index, item in enumerate(before)}
    named = sorted((i for i in items if identity(i) in ranks), key=lambda item: ranks[identity(item)])
    unnamed = [item for item in items if identity(item) not in ranks]
    unnamed.sort(key=lambda item: places.get(identity(item), len(places)))
    ordered: list[Any] = []
    while named and unnamed:
        here, there = places.get(identity(unnamed[0])), places.get(identity(named[0]))
        comes_first = here is not None and there is not None and here < there
        ordered.append(unnamed.pop(0) if comes_first else named.pop(0))
    return [*ordered, *named, *unnamed]
