"""The canonical text of a quantity, in which a typed field is written whatever the client sent.

Source: apimachinery ``resource.Quantity.CanonicalizeBytes``: no fraction, and the largest suffix that keeps the value.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import TYPE_CHECKING

from shared.api.quantity import QuantityError, exact_quantity

if TYPE_CHECKING:
    from shared.api.json_types import Json

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_SMALLEST, _LARGEST = -9, 18
INT64_MAX = 2**63 - 1
_KIBI, _KILO = 1024, 1000


def canonical_quantity(value: Json) -> Json:
    """The quantity's canonical text; the value itself if it is no quantity."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    return _canonical(value if isinstance(value, str) else repr(value))


@functools.lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    try:
        exact = exact_quantity(text)
    except QuantityError:
        return text
    if text.endswith("i") and abs(exact) >= _KIBI:
        return _binary(exact)
    return _decimal(exact, with_exponent="e" in text.lower().rstrip("e"))


def _binary(exact: Fraction) -> str:
    number, steps = -((-exact.numerator) // exact.denominator), 0
    while number % _KIBI == 0 and steps < len(_BINARY) - 1:
        number, steps = number // _KIBI, steps + 1
    return f"{number}{_BINARY[steps]}"


def _decimal(exact: Fraction, *, with_exponent: bool) -> str:
    scaled = exact / Fraction(10) ** _SMALLEST
    number, exponent = -((-scaled.numerator) // scaled.denominator), _SMALLEST
    if number == 0:
        return "0"
    while number % _KILO == 0 and exponent < _LARGEST:
        number, exponent = number // _KILO, exponent + 3
    if with_exponent:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL[exponent]}"
