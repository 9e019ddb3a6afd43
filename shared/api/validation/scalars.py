"""Problems of single values: choices, ranges, durations, quantities, label keys and values.

Each yields at most one sentence a value. The syntax of labels is Kubernetes' (``apimachinery/pkg/util/validation``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api.duration import DurationError, parse_duration
from shared.api.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DOMAIN = 253
MAX_NAME = 63
"""Longest value of a label, so longest name of what a label refers to."""


def quoted(value: object) -> str:
    """A value as it is shown in a sentence."""
    return f'"{value}"' if isinstance(value, str) else str(value)


def listed(values: Collection[str]) -> str:
    """Allowed values, in order."""
    return ", ".join(values)


def choice(path: str, value: str, allowed: Collection[str]) -> Iterator[str]:
    """One of a few words."""
    if value not in allowed:
        yield f"{path}: {quoted(value)} is not allowed; allowed are {listed(allowed)}"


def within(path: str, value: int | None, low: int, high: int | None = None) -> Iterator[str]:
    """An integer in a range, both ends included; None is not set."""
    if value is None or (value >= low and (high is None or value <= high)):
        return
    allowed = f"{low} or more" if high is None else f"{low} to {high}"
    yield f"{path}: {value} is not allowed; allowed is {allowed}"


def at_most(path: str, count: int, most: int) -> Iterator[str]:
    """The length of a list."""
    if count > most:
        yield f"{path}: has {count} entries; allowed are at most {most}"


def duration(path: str, value: str | None, *, never: bool = False) -> Iterator[str]:
    """A duration; "Never" only where that means something. None is not set."""
    if value is None:
        return
    try:
        parsed = parse_duration(value)
    except DurationError as error:
        yield f"{path}: {error}"
        return
    if parsed is None and not never:
        yield f'{path}: "{value}" is not allowed; allowed is a duration such as 30s, 10m or 1h30m'


def quantity(path: str, name: str, value: str | float) -> Iterator[str]:
    """A quantity that is not negative."""
    try:
        amount = parse_quantity(name, value)
    except QuantityError as error:
        yield f"{path}: {error}"
        return
    if amount < 0:
        yield f"{path}: {quoted(value)} is negative; allowed is 0 or more"


def quantities(path: str, raw: Mapping[str, str | int | float]) -> Iterator[str]:
    """Quantities by resource name."""
    for name, value in raw.items():
        yield from quantity(f"{path}.{name}", name, value)


def label_key(path: str, key: str) -> Iterator[str]:
    """``name`` or ``domain/name``."""
    domain, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not is_domain(domain)):
        yield (
            f"{path}: {quoted(key)} is not a label key; allowed is a name of at most 63 letters, digits, -, _ and . "
            f"that starts and ends with a letter or digit, with an optional domain and / before it"
        )


def is_domain(text: str) -> bool:
    """Whether the text is a DNS-1123 subdomain."""
    return len(text) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(text) is not None


def label_value(path: str, value: str) -> Iterator[str]:
    """Empty, or as a name."""
    if value and not _NAME.fullmatch(value):
        yield (
            f"{path}: {quoted(value)} is not a label value; allowed are at most 63 letters, digits, -, _ and ., "
            f"starting and ending with a letter or digit"
        )
