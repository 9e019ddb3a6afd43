"""Objects as structs of ``shared.api``. A field that is null counts as absent, as in the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from local.kubernetes.registry.object_meta import without_nulls

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj

T = TypeVar("T")


def convert(obj: Obj, struct: type[T]) -> T:
    """The object as that struct.

    Raises:
        msgspec.ValidationError: a field has a value of a wrong type.
    """
    try:
        return msgspec.convert(obj, struct)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(obj), struct)
