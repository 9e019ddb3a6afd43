"""Fields of a node class that Tenon doesn't know: of a newer Karpenter, whose definitions may be installed.

A node that is launched without what such a field asks for would be another one than the user wrote. So the class is
invalid, and says which field. A value that means the same as none (false, 0, empty) is no obstacle. Pools may have
unknown fields: manifests still have those of old versions, which the API server drops.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec.inspect as kinds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NO_VALUE: tuple[object, ...] = (None, False, 0, "", [], {})


def unknown_fields(value: Mapping[str, Any], kind: type, path: str) -> Iterator[str]:
    """A problem for each field below ``path`` that the struct of the whole object doesn't have."""
    yield from _unknown(value.get(path), _fields(kind)[path], path)


def _unknown(value: object, kind: kinds.Type, path: str) -> Iterator[str]:
    match kind:
        case kinds.Metadata(type=inner):
            yield from _unknown(value, inner, path)
        case kinds.UnionType(types=types):
            for each in types:
                yield from _unknown(value, each, path)
        case kinds.ListType(item_type=item) if isinstance(value, list):
            for i, each in enumerate(value):
                yield from _unknown(each, item, f"{path}[{i}]")
        case kinds.StructType(cls=cls) if isinstance(value, dict):
            yield from _unknown_of_struct(value, _fields(cls), path)


def _unknown_of_struct(value: Mapping[str, object], known: Mapping[str, kinds.Type], path: str) -> Iterator[str]:
    for name, inner in value.items():
        if name in known:
            yield from _unknown(inner, known[name], f"{path}.{name}")
        elif not _is_nothing(inner):
            yield f"{path}.{name}: this field is not supported; nodes would be launched without it"


def _is_nothing(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_nothing(inner) for inner in value.values())
    return value in _NO_VALUE


@cache
def _fields(cls: type) -> dict[str, kinds.Type]:
    """The types of a struct's fields by their names in JSON."""
    info = kinds.type_info(cls)
    if not isinstance(info, kinds.StructType):
        raise TypeError(f"{cls} is not a struct")
    return {field.encode_name: field.type for field in info.fields}
