"""Objects as the structs that decisions read; fields given as null are fields that are not given, as in the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj

T = TypeVar("T")


def typed(obj: Obj, kind: type[T]) -> T:
    """The object as that struct.

    Raises:
        msgspec.ValidationError: a field has a value of a wrong type.
    """
    try:
        return msgspec.convert(obj, kind)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(obj), kind)


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 (JSON in, JSON out)
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
