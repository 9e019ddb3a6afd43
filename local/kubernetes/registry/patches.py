"""The kinds of patch that need no knowledge of managers: merge (RFC 7386), JSON (RFC 6902) and strategic merge.

All are pure: an object and a patch in, a new object out; the input is not changed.
"""

from __future__ import annotations

import copy
from typing import Any

from local.kubernetes import errors

Json = Any


def merge(target: Json, patch: Json) -> Json:
    """RFC 7386: maps are merged, null deletes, everything else replaces."""
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
    """RFC 6902.

    Raises:
        ApiError: 400 for what is no patch; 422 for one that can't be carried out, a failed test among them.
    """
    if not isinstance(operations, list):
        raise errors.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    doc = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise errors.bad_request("error decoding patch: an operation has no path")
        doc = _carry_out(doc, operation)
    return doc


def _carry_out(doc: Json, operation: dict[str, Any]) -> Json:
    what, path = operation.get("op"), _pointer(operation["path"])
    match what:
        case "add":
            return _add(doc, path, copy.deepcopy(operation.get("value")))
        case "remove":
            _remove(doc, path)
        case "replace":
            if not path:
                return operation.get("value")
            _at(doc, path)
            container = _at(doc, path[:-1])
            container[_slot(container, path[-1])] = copy.deepcopy(operation.get("value"))
        case "move":
            source = _pointer(operation.get("from", ""))
            value = _at(doc, source)
            _remove(doc, source)
            return _add(doc, path, value)
        case "copy":
            return _add(doc, path, copy.deepcopy(_at(doc, _pointer(operation.get("from", "")))))
        case "test":
            if not _same(_at(doc, path), operation.get("value")):
                raise errors.unprocessable(f"testing value {operation['path']} failed")
        case _:
            raise errors.bad_request(f"Unexpected kind: {what}")
    return doc


def _same(a: Json, b: Json) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise errors.bad_request(f"error decoding patch: the path {text!r} does not start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _slot(container: Json, part: str, *, end: bool = False) -> Any:  # noqa: ANN401 (a key or an index)
    if isinstance(container, list):
        if part == "-" and end:
            return len(container)
        if part.isdigit() and int(part) < len(container) + end:
            return int(part)
    elif isinstance(container, dict) and (end or part in container):
        return part
    raise errors.unprocessable(f"the path has no {part!r} there: missing value")


def _at(doc: Json, path: list[str]) -> Json:
    for part in path:
        doc = doc[_slot(doc, part)]
    return doc


def _add(doc: Json, path: list[str], value: Json) -> Json:
    if not path:
        return value
    container = _at(doc, path[:-1])
    slot = _slot(container, path[-1], end=True)
    if isinstance(container, list):
        container.insert(slot, value)
    else:
        container[slot] = value
    return doc


def _remove(doc: Json, path: list[str]) -> None:
    if not path:
        raise errors.unprocessable("the whole object can't be removed")
    container = _at(doc, path[:-1])
    del container[_slot(container, path[-1])]


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
"""Lists of built-in kinds that strategic merge joins by a key of their items (``patchMergeKey`` in the API's types)."""

_PRIMITIVE = frozenset(("finalizers", "podCIDRs"))
_ORDER, _DELETE, _KEEP, _HOW = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch"


def merge_key(path: tuple[str, ...]) -> str | None:
    """The key by which a list at that path is joined; None when it is replaced whole."""
    field = path[-1]
    if field == "ports" and "containers" not in path and "initContainers" not in path:
        return "port" if path[:1] == ("spec",) else None
    if field == "addresses" and path[:1] == ("status",):
        return "type"
    return MERGE_KEYS.get(field)


def strategic(target: Json, patch: Json, path: tuple[str, ...] = ()) -> Json:
    """Kubernetes' own merge: as RFC 7386, but known lists are joined by their items' keys.

    Directives: ``$patch: replace|delete``, ``$retainKeys``, ``$setElementOrder/…``, ``$deleteFromPrimitiveList/…``
    (apimachinery ``strategicpatch``).
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get(_HOW) == "replace":
        return {name: value for name, value in patch.items() if name != _HOW}
    merged = dict(target) if isinstance(target, dict) else {}
    if isinstance(patch.get(_KEEP), list):
        merged = {name: value for name, value in merged.items() if name in patch[_KEEP]}
    _take_in(merged, patch, path)
    for name, value in patch.items():
        field = name.removeprefix(_ORDER)
        if name.startswith(_ORDER) and isinstance(merged.get(field), list):
            merged[field] = _ordered(merged[field], value, merge_key((*path, field)))
    return merged


def _take_in(merged: dict[str, Any], patch: dict[str, Any], path: tuple[str, ...]) -> None:
    """Carry out a map's fields in place."""
    for name, value in patch.items():
        if name.startswith(_DELETE):
            field = name.removeprefix(_DELETE)
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None or value == {_HOW: "delete"}:
            merged.pop(name, None)
        elif isinstance(value, list):
            merged[name] = _joined(merged.get(name) or [], value, (*path, name))
        else:
            merged[name] = strategic(merged.get(name), value, (*path, name))


def _joined(before: list[Any], patch: list[Any], path: tuple[str, ...]) -> list[Any]:
    if path[-1] in _PRIMITIVE:
        return [*before, *(item for item in patch if item not in before)]
    key = merge_key(path)
    if key is None or any(not isinstance(item, dict) for item in patch):
        return patch
    if any(item == {_HOW: "replace"} for item in patch):
        return [item for item in patch if item != {_HOW: "replace"}]
    items = list(before)
    for change in patch:
        if key not in change:
            raise errors.bad_request(f"map: {change} does not contain declared merge key: {key}")
        at = next((i for i, item in enumerate(items) if item.get(key) == change[key]), None)
        if change.get(_HOW) == "delete":
            items = [item for item in items if item.get(key) != change[key]]
        elif at is None:
            items.append(strategic({}, change, path))
        else:
            items[at] = strategic(items[at], change, path)
    return items


def _ordered(items: list[Any], order: list[Any], key: str | None) -> list[Any]:
    def rank_of(item: Any) -> Any:  # noqa: ANN401 (a list's item, map or primitive)
        return item.get(key) if key and isinstance(item, dict) else item

    ranks = {repr(rank_of(item)): index for index, item in enumerate(order)}
    named = sorted((i for i in items if repr(rank_of(i)) in ranks), key=lambda item: ranks[repr(rank_of(item))])
    following = iter(named)
    return [next(following) if repr(rank_of(item)) in ranks else item for item in items]
