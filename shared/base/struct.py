"""The bases of values, and the function that copies one with changes.

``Struct`` is the base of our own values, and ``MutableStruct`` of records that change; neither is decoded.
``WireStruct`` is the base of what is read or written as JSON: messages, stored objects, answers, settings, outputs.
``shared.api.meta.ApiStruct`` is the base of the Kubernetes API's types; what is stored and changes is msgspec's Struct.

Defining a msgspec struct takes 10 µs, a frozen dataclass 500 µs, and every cold start of a function pays for it.
"""

from __future__ import annotations

from typing import dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Struct(msgspec.Struct, frozen=True):
    """Base of immutable values."""


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class WireStruct(msgspec.Struct, frozen=True):
    """Base of immutable values that are encoded or decoded, so the types of their fields are imported at run time."""


@dataclass_transform(eq_default=False, field_specifiers=(msgspec.field,))
class MutableStruct(msgspec.Struct, eq=False):
    """Base of records that change; they are equal only to themselves."""


with_fields = msgspec.structs.replace
"""A copy of a struct with some fields changed."""
