"""Decodes objects of built-in kinds by the schemas that kube-apiserver publishes, as Go's types decode them.

Unknown fields and nulls are dropped, values of wrong types are refused, quantities are written in their canonical text.
``python -m local.real.published_schemas`` writes the file of schemas. Go's zero values aren't filled in.
"""

from __future__ import annotations

import base64
import binascii
import functools
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import errors
from local.kubernetes.registry.quantities import INT64_MAX, canonical_quantity
from shared.api.quantity import QuantityError, exact_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from shared.api.json_types import Json

    Decode = Callable[[Any, str], Any]

FILE = Path(__file__).with_name("published_types.json")
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_BITS = {"int32": 31, "int64": 63}
_TIME_TYPES = {
    f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}": precision
    for name, precision in (("Time", "seconds"), ("MicroTime", "microseconds"))
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")


class _WrongTypeError(Exception):
    """The path of the value, and what is wrong with it."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"json: cannot unmarshal {what} into Go struct field {path.lstrip('.')}")


def decode(kind: Kind, obj: Obj, before: Obj | None = None) -> Obj:
    """The object with the fields of its kind. Of a custom kind, only metadata is decoded: it has a schema of its own.

    ``before`` is the object as it is stored: parts that are equal there need no decoding.

    Raises:
        ApiError: 400, a value can't be decoded.
    """
    struct = _struct_of(kind)
    if struct is None:
        return decode_metadata(kind, obj)
    known = before or {}
    changed = {name: part for name, part in obj.items() if name not in known or known[name] != part}
    try:
        decoded: Obj = struct(changed, "")
    except _WrongTypeError as error:
        raise _bad_request(kind, error) from None
    return {
        name: decoded[name] if name in changed else part
        for name, part in obj.items()
        if name not in changed or name in decoded
    }


def decode_metadata(kind: Kind, obj: Obj) -> Obj:
    """The object of a custom kind with the fields that metadata has.

    Raises:
        ApiError: 400, a value can't be decoded.
    """
    if not obj.get("metadata"):
        return obj
    try:
        return {**obj, "metadata": _struct(_METADATA)(obj["metadata"], "metadata")}
    except _WrongTypeError as error:
        raise _bad_request(kind, error) from None


def _bad_request(kind: Kind, error: _WrongTypeError) -> errors.ApiError:
    return errors.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}')


def unknown_fields(kind: Kind, obj: Obj) -> list[str]:
    """The paths of the fields that decoding drops because the kind has none of that name."""
    struct = _struct_of(kind)
    return [] if struct is None else struct.unknown(obj, "")


@functools.cache
def _schemas() -> Obj:
    schemas: Obj = msgspec.json.decode(FILE.read_bytes())
    return schemas


def _struct_of(kind: Kind) -> _Struct | None:
    name = _schemas()["kinds"].get(f"{kind.group}/{kind.version}/{kind.kind}")
    return None if name is None else _struct(name)


@functools.cache
def _struct(name: str) -> _Struct:
    return _Struct(_schemas()["types"][name]["properties"])


class _Struct:
    """A type with fields, which are resolved when the first object of the type comes: types refer to each other."""

    def __init__(self, properties: Obj) -> None:
        self._properties = properties

    @functools.cached_property
    def _fields(self) -> dict[str, Decode]:
        return {name: _decoder(schema) for name, schema in self._properties.items()}

    def __call__(self, value: Json, path: str) -> Obj:
        if not isinstance(value, dict):
            raise _WrongTypeError(path, _go_type(value))
        fields = self._fields
        return {
            name: field(inner, f"{path}.{name}")
            for name, inner in value.items()
            if inner is not None and (field := fields.get(name)) is not None
        }

    def unknown(self, value: Json, path: str) -> list[str]:
        """The paths of unknown fields in the value and below."""
        if not isinstance(value, dict):
            return []
        # "$patch" and the like are directives of a strategic merge patch.
        paths = [f"{path}.{name}".lstrip(".") for name in value if name not in self._fields and name[:1] != "$"]
        for name, inner in value.items():
            if isinstance(field := self._fields.get(name), (_Struct, _ListOf, _MapOf)):
                paths += field.unknown(inner, f"{path}.{name}")
        return paths


class _ListOf:
    def __init__(self, item: Decode) -> None:
        self._item = item

    def __call__(self, value: Json, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise _WrongTypeError(path, _go_type(value))
        return [self._item(_zero(self._item) if item is None else item, path) for item in value]

    def unknown(self, value: Json, path: str) -> list[str]:
        if not isinstance(value, list) or not isinstance(self._item, (_Struct, _ListOf, _MapOf)):
            return []
        return [each for i, item in enumerate(value) for each in self._item.unknown(item, f"{path}[{i}]")]


class _MapOf:
    def __init__(self, value: Decode) -> None:
        self._value = value

    def __call__(self, value: Json, path: str) -> Obj:
        if not isinstance(value, dict):
            raise _WrongTypeError(path, _go_type(value))
        return {
            name: self._value(_zero(self._value) if inner is None else inner, f"{path}.{name}")
            for name, inner in value.items()
        }

    def unknown(self, value: Json, path: str) -> list[str]:
        if not isinstance(value, dict) or not isinstance(self._value, (_Struct, _ListOf, _MapOf)):
            return []
        return [each for name, inner in value.items() for each in self._value.unknown(inner, f"{path}.{name}")]


def _zero(decoder: Decode) -> Json:
    """The value that a null item or a map's null value becomes."""
    if isinstance(decoder, (_Struct, _MapOf)):
        return {}
    return [] if isinstance(decoder, _ListOf) else _ZEROS.get(decoder, "")


def _decoder(schema: Obj) -> Decode:
    """What decodes a value of the schema."""
    if (name := schema.get("$ref")) is not None:
        return _decoder_of_type(name)
    make = _MAKERS.get(schema.get("type", ""))
    if make is not None:
        return make(schema)
    return _int_or_string if schema.get("format") == "int-or-string" else _anything


def _object_of(schema: Obj) -> Decode:
    if "properties" in schema:
        return _Struct(schema["properties"])
    if "additionalProperties" not in schema:
        return _anything
    values = _decoder(schema["additionalProperties"])
    return _MapOf(_resource_quantity if values is _quantity else values)


@functools.cache
def _decoder_of_type(name: str) -> Decode:
    if name == _QUANTITY:
        return _quantity
    if name in _TIME_TYPES:
        return functools.partial(_time, precision=_TIME_TYPES[name])
    schema = _schemas()["types"][name]
    return _struct(name) if "properties" in schema else _decoder(schema)


def _anything(value: Json, _path: str) -> Json:
    return value


def _string(value: Json, path: str) -> str:
    if not isinstance(value, str):
        raise _WrongTypeError(path, f"{_go_type(value)} (type string)")
    return value


def _boolean(value: Json, path: str) -> bool:
    if not isinstance(value, bool):
        raise _WrongTypeError(path, f"{_go_type(value)} (type bool)")
    return value


def _number(value: Json, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _WrongTypeError(path, f"{_go_type(value)} (type float64)")
    return value


@functools.cache
def _integer_of(size: str) -> Decode:
    limit = 2 ** _BITS[size]

    def integer(value: Json, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            raise _WrongTypeError(path, f"{_go_type(value)} (type {size})")
        return value

    _ZEROS[integer] = 0
    return integer


def _int_or_string(value: Json, path: str) -> int | str:
    if isinstance(value, str):
        return value
    number: int = _integer_of("int32")(value, path)
    return number


def _quantity(value: Json, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _WrongTypeError(path, f"{_go_type(value)}: quantities must match the regular expression")
    try:
        exact_quantity(value if isinstance(value, str) else repr(value))
    except QuantityError as error:
        raise _WrongTypeError(path, f"{error}: quantities must match the regular expression") from None
    text: str = canonical_quantity(value)
    return text


def _resource_quantity(value: Json, path: str) -> str:
    """A quantity of a resource, which is rounded up to thousandths and has at most the size of an int64."""
    text = _quantity(value, path)
    exact = exact_quantity(text) * 1000
    if text.endswith("i") and exact > INT64_MAX * 1000:
        return str(INT64_MAX)
    return text if exact.denominator == 1 else str(canonical_quantity(f"{math.ceil(exact)}m"))


def _time(value: Json, path: str, *, precision: str) -> str:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise _WrongTypeError(path, f"parsing time {value}")
    try:
        time = datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _WrongTypeError(path, f"parsing time {value}") from None
    return f"{time.replace(tzinfo=None).isoformat(timespec=precision)}Z"


def _bytes(value: Json, path: str) -> str:
    text = _string(value, path)
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _WrongTypeError(path, "illegal base64 data") from None
    return text


def _go_type(value: Json) -> str:
    if isinstance(value, bool):
        return "bool"
    return {int: "number", float: "number", dict: "object", list: "array", str: "string"}.get(type(value), "null")


_ZEROS: dict[Decode, Any] = {
    _boolean: False,
    _number: 0,
    _quantity: "0",
    _resource_quantity: "0",
    _int_or_string: 0,
    _anything: None,
}
"""What Go makes of null, by decoder; others make an empty text of it."""
_MAKERS: dict[str, Callable[[Obj], Decode]] = {
    "object": _object_of,
    "array": lambda schema: _ListOf(_decoder(schema["items"])),
    "integer": lambda schema: _integer_of(schema.get("format", "int64")),
    "string": lambda schema: _bytes if schema.get("format") == "byte" else _string,
    "boolean": lambda _: _boolean,
    "number": lambda _: _number,
}
"""What makes a decoder of a schema, by the schema's type."""
