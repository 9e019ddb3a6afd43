"""Translates structs to the structural OpenAPI schemas of CustomResourceDefinitions.

Fields are described where they are declared (``shared.api.meta.describe``). A lenient schema has only types and
descriptions and keeps unknown fields: legacy objects must be admitted as they are, so that their problems can be
reported by a condition.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec
import msgspec.inspect as kinds

from shared.base.struct import Struct

Schema = dict[str, Any]

QUANTITY = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"
"""Kubernetes' own pattern of ``resource.Quantity``, exponents being integers."""

_CODE = re.compile(r"``([^`]*)``")
_UNKNOWN = {"x-kubernetes-preserve-unknown-fields": True}
_SCALARS: dict[type, Schema] = {
    kinds.StrType: {"type": "string"},
    kinds.IntType: {"format": "int64", "type": "integer"},
    kinds.BoolType: {"type": "boolean"},
    kinds.DateTimeType: {"format": "date-time", "type": "string"},
}
_METADATA = {
    "apiVersion": {"description": "The version of the API that this object is written in.", "type": "string"},
    "kind": {"description": "What the object is.", "type": "string"},
    "metadata": {"type": "object"},
}


def root(struct: type[msgspec.Struct], *, lenient: bool = False) -> Schema:
    """The schema of a whole object: its spec and status, and what every object has."""
    body = _Translation(lenient=lenient).struct(struct, skipped=frozenset(_METADATA))
    body["properties"] = {**_METADATA, **body["properties"]}
    body.pop("x-kubernetes-preserve-unknown-fields", None)
    return body


class _Translation(Struct):
    lenient: bool

    def struct(self, cls: type, *, skipped: frozenset[str] = frozenset()) -> Schema:
        properties: Schema = {}
        required: list[str] = []
        for field in _fields(cls):
            extra = _extra(field)
            if field.encode_name in skipped or extra.get("internal"):
                continue
            properties[field.encode_name] = self.field(field)
            if field.required or extra.get("required"):
                required.append(field.encode_name)
        schema: Schema = {"description": _sentence(cls), "properties": properties, "type": "object"}
        if self.lenient:
            return {**schema, **_UNKNOWN}
        return {**schema, "required": required} if required else schema

    def field(self, field: kinds.Field) -> Schema:
        kind = field.type
        if not isinstance(kind, kinds.Metadata):
            return self.kind(kind)
        extra = _extra(field)
        extra_schema = dict(kind.extra_json_schema or {})
        schema = self.kind(kind.type, {} if self.lenient else dict(extra.get("each", {})))
        schema = {**schema, "description": extra_schema.pop("description")}
        if self.lenient:
            return schema
        if extra.get("default"):
            schema["default"] = _default(field)
        if extra.get("rules"):
            schema["x-kubernetes-validations"] = [{"rule": rule, "message": text} for rule, text in extra["rules"]]
        return {**schema, **_plain(extra_schema)}

    def kind(self, kind: kinds.Type, each: Schema | None = None) -> Schema:
        if type(kind) in _SCALARS:
            return dict(_SCALARS[type(kind)])
        match kind:
            case kinds.UnionType(types=types):
                return self.union([t for t in types if not isinstance(t, kinds.NoneType)], each)
            case kinds.StructType(cls=cls):
                return self.struct(cls)
            case kinds.ListType(item_type=item):
                return {"items": {**self.kind(item), **_plain(each or {})}, "type": "array"}
            case kinds.DictType(value_type=kinds.AnyType()):
                return {"type": "object", **_UNKNOWN}
            case kinds.DictType(value_type=value):
                return {"additionalProperties": {**self.kind(value), **_plain(each or {})}, "type": "object"}
            case _:
                raise TypeError(f"{kind} is not supported in a structural schema")

    def union(self, types: list[kinds.Type], each: Schema | None) -> Schema:
        """An optional field, or a quantity: the only union that structural schemas support."""
        if len(types) == 1:
            return self.kind(types[0], each)
        either: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
        return either if self.lenient else {**either, "pattern": QUANTITY}


def _fields(cls: type) -> tuple[kinds.Field, ...]:
    info = kinds.type_info(cls)
    if not isinstance(info, kinds.StructType):
        raise TypeError(f"{cls} is not a struct")
    return info.fields


def _extra(field: kinds.Field) -> dict[str, Any]:
    return (field.type.extra or {}) if isinstance(field.type, kinds.Metadata) else {}


def _default(field: kinds.Field) -> object:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return _defaulted(value)


def _defaulted(value: object) -> object:
    """A default as the API server writes it out: of structs only the fields that have defaults of their own."""
    if isinstance(value, msgspec.Struct):
        return {
            f.encode_name: _defaulted(getattr(value, f.name)) for f in _fields(type(value)) if _extra(f).get("default")
        }
    return [_defaulted(item) for item in value] if isinstance(value, list) else value


def _plain(schema: Schema) -> Schema:
    """YAML has lists, not tuples."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in schema.items()}


def _sentence(cls: type) -> str:
    """The first paragraph of a struct's docstring, fields named as in JSON."""
    paragraph = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    return _CODE.sub(lambda code: re.sub(r"_([a-z])", lambda part: part[1].upper(), code[1]), paragraph)
