"""The valid value that is nearest to an invalid one, for messages on bad options."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CUTOFF = 0.4
"""The least similarity (0 to 1, as difflib has it) of a value that is suggested."""


def suggestion(value: str, allowed: Iterable[str]) -> str:
    """``; the nearest is "m7i"``, or nothing where no allowed value is similar."""
    spelled = {name.lower(): name for name in allowed}
    nearest = difflib.get_close_matches(value.lower(), spelled, n=1, cutoff=_CUTOFF)
    return f'; the nearest is "{spelled[nearest[0]]}"' if nearest else ""


def split(values: Iterable[str] | None) -> tuple[str, ...]:
    """The parts of values that are separated by commas, of an option that may be repeated; each once."""
    return tuple(dict.fromkeys(part for value in values or () for p in value.split(",") if (part := p.strip())))
