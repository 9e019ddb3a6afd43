"""Structural schemas: prune, default and judge a custom object as an apiserver does.

jsonschema finds what is wrong; what is told about it is a real server's sentence, which names the field, the value and
what is allowed. A fault that was there before and is left alone is let pass (ratcheting, as since Kubernetes 1.33).
"""

from __future__ import annotations

import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from jsonschema import Draft4Validator, FormatChecker

from local.kubernetes.errors import Cause
from local.kubernetes.registry.cel_rules import Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jsonschema.exceptions import ValidationError

    from local.kubernetes.objects import Obj

_PRESERVE, _EITHER, _EMBEDDED = (
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
)
_SYSTEM = frozenset(("apiVersion", "kind", "metadata"))
_KEYWORDS = frozenset((
    "type", "enum", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required",
))  # fmt: skip
_INT32 = 2**31

_formats = FormatChecker(formats=())


@_formats.checks("date-time", raises=ValueError)
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or ("T" in value and datetime.fromisoformat(value).tzinfo is not None)


@_formats.checks("int32")
def _is_int32(value: object) -> bool:
    return not isinstance(value, int) or -_INT32 <= value < _INT32


class Schema:
    """One version's ``openAPIV3Schema``."""

    def __init__(self, raw: Obj) -> None:
        self.raw = raw
        properties = {name: part for name, part in (raw.get("properties") or {}).items() if name not in _SYSTEM}
        self._body: Obj = {**raw, "properties": properties}
        self._validator = Draft4Validator(_json_schema(self._body), format_checker=_formats)
        self._rules = Rules(raw)

    def complete(self, obj: Obj) -> None:
        """Prune what the schema does not know and fill in its defaults, in place."""
        kept = {name: value for name, value in obj.items() if name in _SYSTEM}
        rest = {name: value for name, value in obj.items() if name not in _SYSTEM}
        completed = _defaulted(_pruned(rest, self._body), self._body)
        obj.clear()
        obj.update(kept)
        obj.update(completed)

    def unknown_fields(self, obj: Obj) -> list[str]:
        """The paths of fields that pruning would drop."""
        rest = {name: value for name, value in obj.items() if name not in _SYSTEM}
        return list(_unknown(rest, self._body, ""))

    def faults(self, new: Obj, old: Obj | None) -> list[Cause]:
        """What breaks the schema; if nothing does, what breaks its rules."""
        body = {name: value for name, value in new.items() if name not in _SYSTEM}
        found = [
            cause
            for error in sorted(
                self._validator.iter_errors(body), key=lambda e: [str(part) for part in e.absolute_path]
            )
            if not _untouched(error, old)
            for cause in _causes(error)
        ]
        found = [*found, *_duplicates(body, self._body, "")]
        return found or self._rules.faults(new, old)


def _json_schema(schema: Any) -> Any:  # noqa: ANN401 (a schema, or true/false)
    """The same schema in JSON Schema's own words (draft 4, as OpenAPI 3.0 has it)."""
    if not isinstance(schema, dict):
        return schema
    plain: Obj = {name: value for name, value in schema.items() if name in _KEYWORDS}
    if schema.get(_EITHER):
        plain["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in plain:
        types = plain["type"] if isinstance(plain["type"], list) else [plain["type"]]
        plain["type"] = [*types, "null"]
        if "enum" in plain:
            plain["enum"] = [*plain["enum"], None]
    for name in ("allOf", "anyOf", "oneOf"):
        if name in schema and not (schema.get(_EITHER) and name == "anyOf"):
            plain[name] = [_json_schema(part) for part in schema[name]]
    for name in ("items", "not", "additionalProperties"):
        if name in schema:
            plain[name] = _json_schema(schema[name])
    if "properties" in schema:
        plain["properties"] = {name: _json_schema(part) for name, part in schema["properties"].items()}
    return plain


def _pruned(value: Any, schema: Obj) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, list):
        items = schema.get("items")
        return [_pruned(item, items) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    kept: Obj = {}
    for name, inner in value.items():
        part = _part(schema, name)
        if part is None:
            if schema.get(_PRESERVE) or (schema.get(_EMBEDDED) and name in _SYSTEM):
                kept[name] = inner
        elif inner is not None or part.get("nullable") or "default" not in part:
            kept[name] = _pruned(inner, part)
    return kept


def _part(schema: Obj, name: str) -> Obj | None:
    """The schema of a field; an empty one where anything goes; None for an unknown field."""
    properties = schema.get("properties") or {}
    if name in properties:
        found: Obj = properties[name]
        return found
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        return more
    return {_PRESERVE: True} if more is True else None


def _defaulted(value: Any, schema: Obj) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, list):
        items = schema.get("items")
        return [_defaulted(item, items) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    filled = dict(value)
    for name, part in (schema.get("properties") or {}).items():
        if name not in filled and "default" in part:
            filled[name] = copy.deepcopy(part["default"])
    for name, inner in filled.items():
        part = _part(schema, name)
        if part:
            filled[name] = _defaulted(inner, part)
    return filled


def _unknown(value: Any, schema: Obj, at: str) -> Iterator[str]:  # noqa: ANN401 (JSON)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from _unknown(item, schema["items"], f"{at}[{index}]")
    elif isinstance(value, dict) and not schema.get(_PRESERVE):
        for name, inner in value.items():
            part = _part(schema, name)
            here = f"{at}.{name}" if at else name
            if part is not None:
                yield from _unknown(inner, part, here)
            elif not (schema.get(_EMBEDDED) and name in _SYSTEM):
                yield here


def _duplicates(value: Any, schema: Obj, at: str) -> Iterator[Cause]:  # noqa: ANN401 (JSON)
    """Items of a list that is a map or a set, of which there may be only one."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        seen: set[str] = set()
        for index, item in enumerate(value):
            here = f"{at}[{index}]"
            identity = _identity(item, schema)
            if identity is not None and identity in seen:
                yield Cause(here, "FieldValueDuplicate", f"Duplicate value: {identity}")
            seen.add(identity or "")
            yield from _duplicates(item, schema["items"], here)
    elif isinstance(value, dict):
        for name, inner in value.items():
            part = _part(schema, name)
            if part:
                yield from _duplicates(inner, part, f"{at}.{name}" if at else name)


def _identity(item: Any, schema: Obj) -> str | None:  # noqa: ANN401 (JSON)
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return _text(item)
        case "map" if isinstance(item, dict):
            return _text({key: item.get(key) for key in schema.get("x-kubernetes-list-map-keys") or ()})
    return None


def dotted(path: Iterable[str | int]) -> str:
    """A path as Kubernetes writes it: ``spec.requirements[0].key``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _text(value: Any) -> str:  # noqa: ANN401 (JSON)
    return msgspec.json.encode(value).decode()


def _untouched(error: ValidationError, old: Obj | None) -> bool:
    """Whether the old object had the same value there."""
    if old is None or not error.absolute_path:
        return False
    before: Any = old
    for part in error.absolute_path:
        try:
            before = before[part]
        except (KeyError, IndexError, TypeError):
            return False
    return bool(before == error.instance)


def _causes(error: ValidationError) -> Iterator[Cause]:
    path, keyword = dotted(error.absolute_path), str(error.validator)
    value: Any = error.instance
    limit: Any = error.validator_value
    if keyword == "required":
        for name in limit:
            if name not in value:
                yield Cause(f"{path}.{name}" if path else name, "FieldValueRequired", "Required value")
    elif keyword == "enum":
        allowed = ", ".join(_text(item) for item in limit if item is not None)
        yield Cause(path, "FieldValueNotSupported", f"Unsupported value: {_text(value)}: supported values: {allowed}")
    elif keyword in {"type", "format"}:
        wanted = limit if isinstance(limit, str) else next(name for name in limit if name != "null")
        shown = value if keyword == "format" else type_name(value)
        text = f"Invalid value: {_text(shown)}: {path} in body must be of type {wanted}: {_text(shown)}"
        yield Cause(path, "FieldValueTypeInvalid" if keyword == "type" else "FieldValueInvalid", text)
    elif keyword in {"maxItems", "maxProperties"}:
        yield Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items")
    elif keyword == "maxLength":
        yield Cause(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")
    else:
        told = _SENTENCES.get(keyword, lambda _limit: f"must validate the schema ({keyword})")(limit)
        shown = len(value) if keyword in {"minItems", "minProperties"} else value
        yield Cause(path, "FieldValueInvalid", f"Invalid value: {_text(shown)}: {path} in body {told}")


_SENTENCES: dict[str, Callable[[Any], str]] = {
    "maximum": "should be less than or equal to {}".format,
    "minimum": "should be greater than or equal to {}".format,
    "multipleOf": "should be a multiple of {}".format,
    "pattern": "should match '{}'".format,
    "minLength": "should be at least {} chars long".format,
    "minItems": "should have at least {} items".format,
    "minProperties": "should have at least {} properties".format,
    "uniqueItems": lambda _limit: "shouldn't contain duplicates",
    "oneOf": lambda _limit: "must validate one and only one schema (oneOf)",
    "anyOf": lambda _limit: "must validate at least one schema (anyOf)",
    "allOf": lambda _limit: "must validate all the schemas (allOf)",
    "not": lambda _limit: "must not validate the schema (not)",
}


def type_name(value: Any) -> str:  # noqa: ANN401 (JSON)
    """The schema's word for a JSON value's type."""
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number", type(None): "null"}
    return names[type(value)]
