"""What prevents server-side apply from reading a configuration of a custom kind: values of wrong types.

A real server answers these with 500 before it looks at conflicts or validates. Source: structured-merge-diff ``typed``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from shared.api.json_types import Json

_OPEN = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "object": ("map", (dict,)),
    "array": ("list", (list,)),
    "string": ("string", (str,)),
    "boolean": ("boolean", (bool,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
}


def check(kind: Kind, schema: Obj, config: Obj) -> None:
    """Check the fields of a configuration other than its metadata.

    Raises:
        ApiError: 500, a value doesn't have its field's type, a field is unknown, or a list has two items of a key.
    """
    body = {name: value for name, value in config.items() if name not in {"apiVersion", "kind", "metadata"}}
    mistakes = sorted(_errors(body, {**schema, "type": "object"}, ""))
    if not mistakes:
        return
    metadata = config["metadata"]
    subject = f"{metadata.get('namespace', '')}/{metadata['name']}; {kind.api_version}, Kind={kind.kind}"
    listed = mistakes[0] if len(mistakes) == 1 else "errors:" + "".join(f"\n  {error}" for error in mistakes)
    raise ApiError(500, "", f"failed to create typed patch object ({subject}): {listed}")


def _errors(value: Json, schema: Obj, path: str) -> Iterator[str]:
    expected, types = _TYPES.get(schema.get("type", ""), ("", ()))
    if value is None or any(schema.get(name) for name in _OPEN[1:]):
        return
    if types and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
        yield f"{path}: expected {expected}, got {msgspec.json.encode(value).decode()}"
    elif isinstance(value, dict):
        yield from _field_errors(value, schema, path)
    elif isinstance(value, list):
        yield from _duplicates(value, schema, path)
        for index, item in enumerate(value):
            yield from _errors(item, schema.get("items") or {}, f"{path}[{index}]")


def _field_errors(value: Obj, schema: Obj, path: str) -> Iterator[str]:
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, inner in value.items():
        if name in properties:
            yield from _errors(inner, properties[name], f"{path}.{name}")
        elif isinstance(additional, dict):
            yield from _errors(inner, additional, f"{path}.{name}")
        elif properties and not additional and not schema.get(_OPEN[0]):
            yield f"{path}.{name}: field not declared in schema"


def _duplicates(items: list[Any], schema: Obj, path: str) -> Iterator[str]:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    for index, item in enumerate(items):
        if keys and isinstance(item, dict) and not set(keys) & set(item):
            yield f"{path}: element {index}: associative list with keys has an element that omits all key fields"
    match schema.get("x-kubernetes-list-type"):
        case "set":
            identities = [msgspec.json.encode(item).decode() for item in items]
        case "map":
            identities = [
                "[" + ",".join(f"{key}={msgspec.json.encode(item.get(key)).decode()}" for key in keys) + "]"
                for item in items
                if isinstance(item, dict)
            ]
        case _:
            return
    for identity in sorted({identity for identity in identities if identities.count(identity) > 1}):
        yield f"{path}: duplicate entries for key {identity}"
