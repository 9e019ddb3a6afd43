"""Decodes objects: JSON to structs, validated and, for legacy kinds, converted. Errors are in the user's terms.

Each object is decoded on its own, so that an invalid one doesn't stop the others. A problem names the field's path, its
value and what is allowed. ``null`` counts as absent, as everywhere in Kubernetes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from shared.api import legacy, node_overlay, nodeclaim, nodeclass, nodepool
from shared.api.legacy import AWSNodeTemplate, Provisioner
from shared.api.meta import ObjectRef
from shared.api.node_overlay import NodeOverlay
from shared.api.nodeclaim import NodeClaim
from shared.api.nodeclass import EC2NodeClass
from shared.api.nodepool import NodePool
from shared.api.validation.legacy import validate_node_template, validate_provisioner
from shared.api.validation.node_overlay import validate_node_overlay
from shared.api.validation.nodeclass import unknown_fields, validate_node_class
from shared.api.validation.nodepool import validate_node_claim, validate_node_pool
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from shared.api.json_types import Json

T = TypeVar("T")
Raw = bytes | str | dict[str, Any]
"""An object as JSON text, or as the values that JSON or YAML text was parsed to."""

_MESSAGE = re.compile(r"(?s)(?P<error>.*?)(?: - at `(?P<path>[^`]*)`)?")
_MISMATCH = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])")
_TYPE_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "nothing",
    "datetime": "a time such as 2026-01-31T12:00:00Z",
}
_MAX_SHOWN_LENGTH = 80
_TOO_DEEP = "the object is not allowed: its lists and maps are nested too deeply"


class DecodeError(ValueError):
    """The object can't be decoded; ``problem`` is one sentence with the path, the value and what is allowed."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class Outcome(Struct, Generic[T], kw_only=True):
    """The result for one object: a valid struct, or its problems. ``ref`` names it as the user wrote it."""

    ref: ObjectRef
    value: T | None
    problems: tuple[str, ...] = ()


def decode(raw: Raw, kind: type[T]) -> T:
    """The struct of one object; unknown fields are ignored.

    Raises:
        DecodeError: the text is not JSON, or a field has the wrong type or is missing.
    """
    try:
        return msgspec.convert(raw, kind) if isinstance(raw, dict) else msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        pass  # The slow path of the few: nulls count as absent, and the error needs the value at its path.
    value = parse(raw)
    try:
        value = _without_nulls(value)
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DecodeError(_problem(str(error), value)) from error
    except RecursionError as error:
        raise DecodeError(_TOO_DEEP) from error


def parse(raw: Raw) -> Json:
    """The plain JSON values of a text.

    Raises:
        DecodeError: the text is not JSON.
    """
    if isinstance(raw, dict):
        return raw
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DecodeError(f"the object is not JSON: {error}") from error
    except RecursionError as error:
        raise DecodeError(_TOO_DEEP) from error


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def _problem(message: str, value: Json) -> str:
    """Msgspec's message in the user's terms."""
    match = _MESSAGE.fullmatch(message)
    error, path = (match["error"], match["path"] or "$") if match else (message, "$")
    mismatch = _MISMATCH.fullmatch(error)
    location, culprit = _locate(value, path, mismatch["got"] if mismatch else "")
    if missing := _MISSING.fullmatch(error):
        return f"{_joined(location, missing['field'])}: is missing"
    if mismatch:
        return f"{location or 'the object'}: {_shown(culprit)} is not {_allowed(mismatch['expected'], culprit)}"
    if "datetime" in error:
        return f"{location}: {_shown(culprit)} is not {_TYPE_NAMES['datetime']}"
    return f"{location or 'the object'}: {_shown(culprit)} is not allowed ({error})"


def _locate(value: Json, path: str, type_name: str) -> tuple[str, Any]:
    """The path and value that msgspec's path stands for; with a type name, the first value of that type."""
    steps = [(name or int(index or -1)) if not wild else None for name, index, wild in _STEP.findall(path)]
    candidates = ((p, v) for p, v in _walk(value, steps, "") if not type_name or _type_name(v) == type_name)
    return next(candidates, (path.removeprefix("$."), None))


def _allowed(expected: str, culprit: Json) -> str:
    """The expected types in words."""
    types = [name for name in expected.split(" | ") if name != "null"]
    if "float" in types:
        types = [name for name in types if name != "int"]
    hint = "; put it in quotes" if expected == "str" and isinstance(culprit, int | float) else ""
    return " or ".join(_TYPE_NAMES.get(name, name) for name in types) + hint


def _walk(value: Json, steps: list[str | int | None], location: str) -> Iterator[tuple[str, Any]]:
    """The values that a path stands for, each with its path; a ``[...]`` step stands for every key."""
    if not steps:
        yield location, value
        return
    step, rest = steps[0], steps[1:]
    if step is None and isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, rest, _joined(location, key))
    elif step is None and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, rest, f"{location}[{index}]")
    elif isinstance(step, str) and isinstance(value, dict) and step in value:
        yield from _walk(value[step], rest, _joined(location, step))
    elif isinstance(step, int) and isinstance(value, list) and step < len(value):
        yield from _walk(value[step], rest, f"{location}[{step}]")


def _joined(location: str, key: object) -> str:
    return f"{location}.{key}" if location else str(key)


def _type_name(value: Json) -> str:
    return {dict: "object", list: "array", type(None): "null"}.get(type(value), type(value).__name__)


def _shown(value: Json) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}…"


def node_pool(raw: Raw) -> Outcome[NodePool]:
    """The NodePool of a NodePool or a Provisioner, or its problems."""
    return _outcome(
        raw,
        {
            (nodepool.API_VERSION, nodepool.KIND): _reader(NodePool, validate_node_pool, _same),
            (legacy.PROVISIONER_API_VERSION, legacy.PROVISIONER_KIND): _reader(
                Provisioner, validate_provisioner, legacy.to_node_pool
            ),
        },
    )


def node_class(raw: Raw) -> Outcome[EC2NodeClass]:
    """The EC2NodeClass of an EC2NodeClass or an AWSNodeTemplate, or its problems."""
    return _outcome(
        raw,
        {
            (nodeclass.API_VERSION, nodeclass.KIND): _reader(EC2NodeClass, validate_node_class, _same, strict=True),
            (legacy.TEMPLATE_API_VERSION, legacy.TEMPLATE_KIND): _reader(
                AWSNodeTemplate, validate_node_template, legacy.to_node_class
            ),
        },
    )


def node_claim(raw: Raw) -> Outcome[NodeClaim]:
    """The NodeClaim, or its problems."""
    return _outcome(raw, {(nodeclaim.API_VERSION, nodeclaim.KIND): _reader(NodeClaim, validate_node_claim, _same)})


def read_node_overlay(raw: Raw) -> Outcome[NodeOverlay]:
    """The NodeOverlay, or its problems."""
    key = (node_overlay.API_VERSION, node_overlay.KIND)
    return _outcome(raw, {key: _reader(NodeOverlay, validate_node_overlay, _same)})


S = TypeVar("S")
Reading = tuple[T | None, tuple[str, ...]]


def _same(value: T) -> T:
    return value


def _reader(
    kind: type[S], check: Callable[[S], Iterable[str]], convert: Callable[[S], T], *, strict: bool = False
) -> Callable[[dict[str, Any]], Reading[T]]:
    """Reads objects of a kind; where ``strict``, an unknown field of the spec is a problem."""

    def read(raw: dict[str, Any]) -> Reading[T]:
        decoded = decode(raw, kind)
        problems = tuple(check(decoded))
        if strict:
            problems += tuple(unknown_fields(raw, kind, "spec"))
        return (None if problems else convert(decoded)), problems

    return read


def _outcome(raw: Raw, readers: Mapping[tuple[str, str], Callable[[dict[str, Any]], Reading[T]]]) -> Outcome[T]:
    try:
        value = parse(raw)
    except DecodeError as error:
        return Outcome(ref=ObjectRef(api_version="", kind="", name=""), value=None, problems=(error.problem,))
    ref = ref_of(value)
    reader = readers.get((ref.api_version, ref.kind))
    if reader is None:
        allowed = " or ".join(f"{api_version} {kind}" for api_version, kind in readers)
        problem = f'apiVersion, kind: "{ref.api_version} {ref.kind}" is not supported here; allowed is {allowed}'
        return Outcome(ref=ref, value=None, problems=(problem,))
    try:
        result, problems = reader(value)
    except DecodeError as error:
        return Outcome(ref=ref, value=None, problems=(error.problem,))
    return Outcome(ref=ref, value=result, problems=problems)


def ref_of(value: Json) -> ObjectRef:
    """The reference to an object that is only known to be JSON; fields that aren't strings are empty."""
    top = value if isinstance(value, dict) else {}
    metadata = top.get("metadata")

    def text(of: Json, key: str) -> str:
        field = of.get(key) if isinstance(of, dict) else None
        return field if isinstance(field, str) else ""

    return ObjectRef(
        api_version=text(top, "apiVersion"),
        kind=text(top, "kind"),
        name=text(metadata, "name"),
        namespace=text(metadata, "namespace"),
        uid=text(metadata, "uid"),
    )
