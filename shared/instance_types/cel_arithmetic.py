"""The numbers of CEL expressions: integers of 64 bits, whose division truncates towards zero, and doubles."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INT: Final = "int"
DOUBLE: Final = "double"
BOOL: Final = "bool"
STRING: Final = "string"
"""The types of values."""
HIGHEST: Final = 2**63 - 1
_LOWEST: Final = -(2**63)


class EvaluationError(ValueError):
    """The expression has no value for these variables; the message says why."""


def int64(value: int) -> int:
    """The integer, if it has no more than 64 bits.

    Raises:
        EvaluationError: it has more.
    """
    if not _LOWEST <= value <= HIGHEST:
        raise EvaluationError("an integer is beyond 64 bits")
    return value


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("division by zero")
    return int64(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("the remainder of a division by zero")
    return a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def _divide(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _to_int(value: float) -> int:
    if not math.isfinite(value):
        raise EvaluationError(f"{value} is not an integer")
    return int64(int(value))


ARITHMETIC: Mapping[tuple[str, str], Callable[[Any, Any], Any]] = {
    (INT, "+"): lambda a, b: int64(a + b),
    (INT, "-"): lambda a, b: int64(a - b),
    (INT, "*"): lambda a, b: int64(a * b),
    (INT, "/"): _quotient,
    (INT, "%"): _remainder,
    (DOUBLE, "+"): operator.add,
    (DOUBLE, "-"): operator.sub,
    (DOUBLE, "*"): operator.mul,
    (DOUBLE, "/"): _divide,
}
LEAST_OR_GREATEST: Mapping[str, Callable[[Any, Any], Any]] = {
    "max": lambda a, b: max(b, a),
    "min": lambda a, b: min(b, a),
}
CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {INT: _to_int, DOUBLE: float}
