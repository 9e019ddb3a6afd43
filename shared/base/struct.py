"""Bases of internal value types, which are never encoded.

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
