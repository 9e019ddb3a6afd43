"""The bases of values, and the function that copies one with changes.

``Struct`` is the base of values, ``MutableStruct`` that of records that change; both may be encoded under the fields'
own names. ``shared.api.meta.ApiStruct`` is the base of what the Kubernetes API reads and writes.

Defining a msgspec struct takes 10 µs, a frozen dataclass 500 µs, and every cold start of a function pays for it.
"""

from __future__ import annotations

from typing import dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Struct(msgspec.Struct, frozen=True):
    """Base of immutable values."""


@dataclass_transform(eq_default=False, field_specifiers=(msgspec.field,))
class MutableStruct(msgspec.Struct, eq=False):
    """Base of records that change; they are equal only to themselves."""


with_fields = msgspec.structs.replace
"""A copy of a struct with some fields changed."""
