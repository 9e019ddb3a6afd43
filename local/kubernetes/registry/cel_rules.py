"""The CEL validation rules of a schema (``x-kubernetes-validations``), evaluated by cel-python.

A rule is compiled when it is first needed, and its result for a value is cached: a thousand objects with the same
requirements cost one evaluation. Values that an update does not change are not validated again (ratcheting).
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import celpy
import msgspec
from celpy import celtypes
from celpy.adapter import json_to_cel

from local.kubernetes.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj
    from shared.api.json_types import Json

_ABSENT: Any = object()
_IMMUTABLE = "self == oldSelf"


class CelRules:
    """The rules of a schema and of the schemas below it."""

    def __init__(self, schema: Obj) -> None:
        self._own: list[Obj] = list(schema.get("x-kubernetes-validations") or ())
        self._fields = {name: CelRules(part) for name, part in (schema.get("properties") or {}).items()}
        self._fields = {name: rules for name, rules in self._fields.items() if rules}
        items, values = schema.get("items"), schema.get("additionalProperties")
        self._items = CelRules(items) if isinstance(items, dict) else None
        self._values = CelRules(values) if isinstance(values, dict) else None
        self._keys: tuple[str, ...] = tuple(
            schema.get("x-kubernetes-list-map-keys") or () if schema.get("x-kubernetes-list-type") == "map" else ()
        )
        self._type: str = schema.get("type") or "object"

    def __bool__(self) -> bool:
        return bool(self._own or self._fields or self._items or self._values)

    def validate(self, new: Obj, old: Obj | None) -> list[Cause]:
        """The rules that the object violates. ``old`` is its state before, None for a new object."""
        return list(self._walk(new, _ABSENT if old is None else old, ""))

    def _walk(self, value: Json, old: Json, path: str) -> Iterator[Cause]:
        if old is not _ABSENT and value == old:
            return
        for rule in self._own:
            if not _holds(rule, value, old):
                yield Cause(_path(path, rule.get("fieldPath", "")), _reason(rule), self._message(rule, value))
        if isinstance(value, dict):
            for name, inner in value.items():
                rules = self._fields.get(name) or self._values
                if rules:
                    before = old.get(name, _ABSENT) if isinstance(old, dict) else _ABSENT
                    yield from rules._walk(inner, before, f"{path}.{name}" if path else name)  # noqa: SLF001 (its own kind)
        elif isinstance(value, list) and self._items:
            for index, item in enumerate(value):
                yield from self._items._walk(item, self._before(item, old), f"{path}[{index}]")  # noqa: SLF001 (its own kind)

    def _before(self, item: Json, old: Json) -> Json:
        """The old list's item with the same keys, or an equal item in a list without keys."""
        if not isinstance(old, list):
            return _ABSENT
        if not self._keys:
            return item if item in old else _ABSENT
        return next((o for o in old if all(o.get(key) == item.get(key) for key in self._keys)), _ABSENT)

    def _message(self, rule: Obj, value: Json) -> str:
        message = rule.get("message") or f"failed rule: {rule['rule']}"
        if expression := rule.get("messageExpression"):
            evaluated = _evaluate(expression, msgspec.json.encode(value), b"")
            message = evaluated if isinstance(evaluated, str) else message
        if self._type in {"object", "array"}:
            return f"Invalid value: {message}"
        return f"Invalid value: {msgspec.json.encode(value).decode()}: {message}"


def _path(path: str, below: str) -> str:
    return f"{path}{below}" if path else below.lstrip(".")


def _reason(rule: Obj) -> str:
    reason: str = rule.get("reason") or "FieldValueInvalid"
    return reason


def _holds(rule: Obj, value: Json, old: Json) -> bool:
    text = rule["rule"]
    if "oldSelf" in text and old is _ABSENT:
        return True
    if text.strip() == _IMMUTABLE:
        return bool(value == old)
    before = b"" if old is _ABSENT or "oldSelf" not in text else msgspec.json.encode(old)
    return _evaluate(text, msgspec.json.encode(value), before) is True


@functools.lru_cache(maxsize=8192)
def _evaluate(text: str, value: bytes, old: bytes) -> bool | str | None:
    """The value of a rule; None when its evaluation fails, which counts as a violation, as on a real server."""
    variables = {"self": msgspec.json.decode(value)}
    if old:
        variables["oldSelf"] = msgspec.json.decode(old)
    return evaluate(text, variables)


def evaluate(text: str, variables: Obj) -> bool | str | None:
    """The value of an expression with these variables, given as JSON; None when its evaluation fails."""
    try:
        result = _program(text).evaluate({name: json_to_cel(value) for name, value in variables.items()})
    except celpy.CELEvalError:
        return None
    if isinstance(result, celtypes.BoolType):
        return bool(result)
    return str(result) if isinstance(result, str) else None


@functools.lru_cache(maxsize=1024)
def _program(text: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(text), functions=_FUNCTIONS)


def compiles(text: str) -> bool:
    """Whether the text is valid CEL."""
    try:
        _program(text)
    except celpy.CELParseError:
        return False
    return True


CelValue = Any
"""A value of cel-python, which has no types."""


def _find(text: CelValue, pattern: CelValue) -> CelValue:
    match = re.search(str(pattern), str(text))
    return celtypes.StringType(match[0] if match else "")


def _split(text: CelValue, separator: CelValue) -> CelValue:
    return celtypes.ListType([celtypes.StringType(part) for part in str(text).split(str(separator))])


def _lower(text: CelValue) -> CelValue:
    return celtypes.StringType(str(text).lower())


def _int(value: CelValue) -> CelValue:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise ValueError(f"type conversion error from 'string' to 'int': {value}")
    return celtypes.IntType(value)


_DECIMAL = re.compile(r"[+-]?[0-9]+")
_FUNCTIONS = {"find": _find, "split": _split, "lowerAscii": _lower, "int": _int}
"""Functions that Kubernetes adds to CEL, as far as Karpenter's definitions use them; and "int", of decimals only."""
