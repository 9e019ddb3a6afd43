"""Structural schemas: pruning, defaults and validation of custom objects.

jsonschema finds the errors. Their texts are those of a real server, with the field, the value and what is allowed. An
error in a value that an update does not change is ignored (ratcheting, as since Kubernetes 1.33).
"""

from __future__ import annotations

import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from jsonschema import Draft4Validator, FormatChecker

from local.kubernetes.errors import Cause
from local.kubernetes.registry.cel_rules import CelRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jsonschema.exceptions import ValidationError

    from local.kubernetes.objects import Obj
    from shared.api.json_types import Json

_PRESERVE_UNKNOWN, _INT_OR_STRING, _EMBEDDED_RESOURCE = (
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
)
_ANY: Obj = {_PRESERVE_UNKNOWN: True}
"""The schema of a field where any field is allowed."""
_TYPE_AND_METADATA = frozenset(("apiVersion", "kind", "metadata"))
_KEYWORDS = frozenset((
    "type", "enum", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required",
))  # fmt: skip
_INT32 = 2**31
_BLOCKING = frozenset((
    "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid",
))  # fmt: skip
"""The errors with which the CEL rules aren't checked."""
_UNCHECKED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)

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
        properties = {
            name: part for name, part in (raw.get("properties") or {}).items() if name not in _TYPE_AND_METADATA
        }
        self._body: Obj = {**raw, "properties": properties}
        self._validator = Draft4Validator(_json_schema(self._body), format_checker=_formats)
        self._rules = CelRules(raw)

    def prune_and_default(self, obj: Obj) -> None:
        """Remove unknown fields and nulls of fields that aren't nullable, and fill in defaults, in place."""
        kept = {name: value for name, value in obj.items() if name in _TYPE_AND_METADATA}
        rest = {name: value for name, value in obj.items() if name not in _TYPE_AND_METADATA}
        completed = _defaulted(_pruned(rest, self._body), self._body)
        obj.clear()
        obj.update(kept)
        obj.update(completed)

    def unknown_fields(self, obj: Obj) -> list[str]:
        """The paths of the fields that pruning would remove."""
        rest = {name: value for name, value in obj.items() if name not in _TYPE_AND_METADATA}
        return list(_unknown(rest, self._body, ""))

    def validate(self, new: Obj, old: Obj | None, *, is_blocked: bool = False) -> list[Cause]:
        """The violations of the schema and, unless they or others (``is_blocked``) prevent that, of its CEL rules."""
        body = {name: value for name, value in new.items() if name not in _TYPE_AND_METADATA}
        errors = [
            error
            for error in sorted(
                self._validator.iter_errors(body), key=lambda e: [str(part) for part in e.absolute_path]
            )
            if not _is_unchanged(error, old) and not _passes_as_time(error)
        ]
        causes = [cause for error in errors for cause in _causes(error)]
        causes += _duplicates(body, self._body, "")
        is_blocked = is_blocked or blocks_rules(causes) or any(e.validator == "format" for e in errors)
        if is_blocked:
            return [*causes, _UNCHECKED] if self._rules else causes
        return [*causes, *self._rules.validate(new, old)]


def blocks_rules(causes: Iterable[Cause]) -> bool:
    """Whether CEL rules aren't checked with one of these errors."""
    return any(cause.reason in _BLOCKING for cause in causes)


def _passes_as_time(error: ValidationError) -> bool:
    """Whether the error is that of a list in place of a time, which a real server lets pass."""
    schema = error.schema if isinstance(error.schema, dict) else {}
    return error.validator == "type" and isinstance(error.instance, list) and schema.get("format") == "date-time"


def _json_schema(schema: Json) -> Json:
    """The structural schema as a JSON Schema (draft 4, as in OpenAPI 3.0)."""
    if not isinstance(schema, dict):
        return schema
    plain: Obj = {name: value for name, value in schema.items() if name in _KEYWORDS}
    if schema.get(_INT_OR_STRING):
        plain["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in plain:
        _allow_null(plain)
    # An int-or-string's anyOf only repeats its types.
    for name in ("allOf", "oneOf") if schema.get(_INT_OR_STRING) else ("allOf", "anyOf", "oneOf"):
        if name in schema:
            plain[name] = [_json_schema(part) for part in schema[name]]
    for name in ("items", "not", "additionalProperties"):
        if name in schema:
            plain[name] = _json_schema(schema[name])
    if "properties" in schema:
        plain["properties"] = {name: _json_schema(part) for name, part in schema["properties"].items()}
    return plain


def _allow_null(plain: Obj) -> None:
    types = plain["type"] if isinstance(plain["type"], list) else [plain["type"]]
    plain["type"] = [*types, "null"]
    if "enum" in plain:
        plain["enum"] = [*plain["enum"], None]


def _pruned(value: Json, schema: Obj) -> Json:
    if isinstance(value, list):
        items = schema.get("items")
        return [_pruned(item, items) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    kept: Obj = {}
    for name, inner in value.items():
        field_schema = _field_schema(schema, name)
        if field_schema is None:
            if schema.get(_PRESERVE_UNKNOWN) or (schema.get(_EMBEDDED_RESOURCE) and name in _TYPE_AND_METADATA):
                kept[name] = inner
        elif inner is not None or field_schema is _ANY or field_schema.get("nullable"):
            kept[name] = _pruned(inner, field_schema)
    return kept


def _field_schema(schema: Obj, name: str) -> Obj | None:
    """The schema of a field; one that preserves everything where any field is allowed; None for an unknown field."""
    properties = schema.get("properties") or {}
    if name in properties:
        field: Obj = properties[name]
        return field
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return additional
    return _ANY if additional is True else None


def _defaulted(value: Json, schema: Obj) -> Json:
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
        field_schema = _field_schema(schema, name)
        if field_schema:
            filled[name] = _defaulted(inner, field_schema)
    return filled


def _unknown(value: Json, schema: Obj, path: str) -> Iterator[str]:
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from _unknown(item, schema["items"], f"{path}[{index}]")
    elif isinstance(value, dict) and not schema.get(_PRESERVE_UNKNOWN):
        for name, inner in value.items():
            field_schema = _field_schema(schema, name)
            field_path = f"{path}.{name}" if path else name
            if field_schema is not None:
                yield from _unknown(inner, field_schema, field_path)
            elif not (schema.get(_EMBEDDED_RESOURCE) and name in _TYPE_AND_METADATA):
                yield field_path


def _duplicates(value: Json, schema: Obj, path: str) -> Iterator[Cause]:
    """Items that occur twice in a list of type map or set."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        seen: set[str] = set()
        for index, item in enumerate(value):
            item_path = f"{path}[{index}]"
            identity = _identity(item, schema)
            if identity is not None and identity in seen:
                yield Cause(item_path, "FieldValueDuplicate", f"Duplicate value: {identity}")
            seen.add(identity or "")
            yield from _duplicates(item, schema["items"], item_path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            field_schema = _field_schema(schema, name)
            if field_schema:
                yield from _duplicates(inner, field_schema, f"{path}.{name}" if path else name)


def _identity(item: Json, schema: Obj) -> str | None:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return _json(item)
        case "map" if isinstance(item, dict):
            return _json({key: item.get(key) for key in schema.get("x-kubernetes-list-map-keys") or ()})
    return None


def field_path_of(path: Iterable[str | int]) -> str:
    """A path as Kubernetes writes it: ``spec.requirements[0].key``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _is_unchanged(error: ValidationError, old: Obj | None) -> bool:
    """Whether the old object had the same value at the error's path."""
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
    path, keyword = field_path_of(error.absolute_path), str(error.validator)
    value: Any = error.instance
    limit: Any = error.validator_value
    match keyword:
        case "required":
            for name in (name for name in limit if name not in value):
                yield Cause(f"{path}.{name}" if path else name, "FieldValueRequired", "Required value")
        case "enum":
            allowed = ", ".join(_json(item) for item in limit if item is not None)
            text = f"Unsupported value: {_json(value)}: supported values: {allowed}"
            yield Cause(path, "FieldValueNotSupported", text)
        case "type" | "format":
            yield _type_cause(path, keyword, value, limit)
        case "maxItems" | "maxProperties":
            yield Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items")
        case "maxLength":
            yield Cause(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")
        case _:
            text = _SENTENCES.get(keyword, lambda _limit: f"must validate the schema ({keyword})")(limit)
            shown = len(value) if keyword in {"minItems", "minProperties"} else value
            yield Cause(path, "FieldValueInvalid", f"Invalid value: {_json(shown)}: {path} in body {text}")


def _type_cause(path: str, keyword: str, value: Json, limit: Json) -> Cause:
    expected = limit if isinstance(limit, str) else next(name for name in limit if name != "null")
    shown = value if keyword == "format" else type_name(value)
    text = f"Invalid value: {_json(shown)}: {path} in body must be of type {expected}: {_json(shown)}"
    return Cause(path, "FieldValueTypeInvalid" if keyword == "type" else "FieldValueInvalid", text)


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


def type_name(value: Json) -> str:
    """The schema's name of a JSON value's type."""
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number", type(None): "null"}
    return names[type(value)]
