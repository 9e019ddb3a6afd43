"""Kubernetes quantities as exact integers.

CPU counts in milli-cores, memory and storage in bytes, everything else in units. A quantity finer than that is rounded
up, as in Kubernetes, so that a request is never too low. Format: apimachinery ``resource.Quantity``.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Resources = dict[str, int]
"""Resource name to exact amount: ``{"cpu": 1500, "memory": 1073741824, "pods": 1}``."""

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
NODES = "nodes"

_FORM = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))")
_SUFFIX: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_MAX_LENGTH = 64
_MAX_EXPONENT = 30


class QuantityError(ValueError):
    """The text is not a quantity; the message names it and what is allowed."""


@functools.lru_cache(maxsize=16384)
def exact_quantity(text: str) -> Fraction:
    """The exact number that a quantity's text stands for.

    Raises:
        QuantityError: the text is not a quantity.
    """
    match = _FORM.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise QuantityError(
            f'"{text[:_MAX_LENGTH]}" is not a quantity (a number with an optional suffix m, k, M, G, Ki, Mi, Gi …)'
        )
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits if digits[0] != "." else f"0{digits}")
    if exponent:
        power = int(exponent[1:])
        if abs(power) > _MAX_EXPONENT:
            raise QuantityError(f'"{text}" has an exponent beyond ±{_MAX_EXPONENT}')
        value *= Fraction(10) ** power
    else:
        value *= _SUFFIX[suffix or ""]
    return -value if sign == "-" else value


@functools.lru_cache(maxsize=16384)
def parse_quantity(name: str, value: str | float) -> int:
    """The exact integer of a quantity of the resource ``name``: milli-cores for cpu, else base units, rounded up.

    >>> parse_quantity("cpu", "250m"), parse_quantity("memory", "1.5Gi")
    (250, 1610612736)

    Raises:
        QuantityError: the value is not a quantity.
    """
    exact = exact_quantity(value if isinstance(value, str) else repr(value))
    scaled = exact * 1000 if name == CPU else exact
    return -((-scaled.numerator) // scaled.denominator)


def parse_resources(raw: Mapping[str, str | int | float]) -> Resources:
    """Every quantity of a map, exactly.

    >>> parse_resources({"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": "1"})
    {'cpu': 2000, 'memory': 1073741824, 'nvidia.com/gpu': 1}

    Raises:
        QuantityError: a value is not a quantity; the message names its resource.
    """
    parsed: Resources = {}
    for name, value in raw.items():
        try:
            parsed[name] = parse_quantity(name, value)
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}") from error
    return parsed


def format_quantity(name: str, amount: int) -> str:
    """The canonical text of an amount.

    >>> format_quantity("cpu", 1500), format_quantity("cpu", 2000), format_quantity("memory", 2**31)
    ('1500m', '2', '2Gi')
    """
    if name == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if name == MEMORY or "storage" in name or name.startswith("hugepages-"):
        for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
    return str(amount)


def format_resources(resources: Mapping[str, int]) -> dict[str, str]:
    """Every amount as its canonical text, in order of name.

    >>> format_resources({"memory": 3 * 2**30, "cpu": 1500})
    {'cpu': '1500m', 'memory': '3Gi'}
    """
    return {name: format_quantity(name, resources[name]) for name in sorted(resources)}


def add(*summands: Mapping[str, int]) -> Resources:
    """The sum, resource by resource.

    >>> add({"cpu": 500}, {"cpu": 250, "pods": 1})
    {'cpu': 750, 'pods': 1}
    """
    total: Resources = {}
    for summand in summands:
        for name, amount in summand.items():
            total[name] = total.get(name, 0) + amount
    return total


def subtract(a: Mapping[str, int], b: Mapping[str, int]) -> Resources:
    """``a - b``, resource by resource; may be negative.

    >>> subtract({"cpu": 500}, {"cpu": 750})
    {'cpu': -250}
    """
    difference = dict(a)
    for name, amount in b.items():
        difference[name] = difference.get(name, 0) - amount
    return difference


def largest(*resources: Mapping[str, int]) -> Resources:
    """The largest amount of each resource."""
    maximum: Resources = {}
    for amounts in resources:
        for name, amount in amounts.items():
            maximum[name] = max(maximum.get(name, 0), amount)
    return maximum


def fits(requests: Mapping[str, int], available: Mapping[str, int]) -> bool:
    """Whether every request is available; a missing resource counts as zero.

    >>> fits({"cpu": 500}, {"cpu": 1000}), fits({"nvidia.com/gpu": 1}, {"cpu": 1000})
    (True, False)
    """
    return all(amount <= available.get(name, 0) for name, amount in requests.items() if amount > 0)
