"""Validation of kubelet settings: KubeletConfiguration's fields and types, and what the kubelet would refuse later.

The fields are those of the newest kubelet, as in Karpenter: an older one ignores what it doesn't know. They are read
from the table kubelet_fields.json only if a class has settings. ``python -m docs.fields --kubelet 0.37`` writes it.
"""

from __future__ import annotations

import ipaddress
import re
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shared.api.duration import DurationError, parse_duration
from shared.api.kubelet import EVICTION_SIGNALS, INVALID, MAX_PODS, RESERVABLE, RESERVED, is_expression, without_nulls
from shared.api.quantity import QuantityError, exact_quantity
from shared.api.validation import fields
from shared.api.validation.fields import quoted
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from shared.api.json_types import Json

TABLE = Path(__file__).parent / "kubelet_fields.json"
_PERCENT = re.compile(r"(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?)%")
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint32": (0, 2**32 - 1)}
_COUNT, _AMOUNT = "count", "amount"
"""Types of our own, for settings that may be expressions."""
_OWN: Final = "registerWithTaints"
"""Tenon sets it: nodes register with the taints of their NodeClaim."""


class KubeletFields(WireStruct):
    """The fields of a KubeletConfiguration and their types, and where they are from.

    A type is a name of :data:`_TYPES`, ``[type]`` for a list, ``{"*": type}`` for a map, or ``{"field": type}`` for an
    object.
    """

    source: str
    version: str
    fields: dict[str, Any]


@cache
def known_fields() -> KubeletFields:
    """The fields of the table."""
    return msgspec.json.decode(TABLE.read_bytes(), type=KubeletFields)


def reason(problems: Collection[str], *, otherwise: str) -> str:
    """The reason of an invalid object's condition: its own if only kubelet settings are invalid."""
    is_kubelets = all(problem.startswith(("spec.kubelet.", "spec.kubelet:")) for problem in problems)
    return INVALID if problems and is_kubelets else otherwise


def settings(path: str, given: Mapping[str, Any]) -> Iterator[str]:
    """The problems of a class's settings: fields that the kubelet doesn't have, wrong types, and values out of range.

    Expressions are only known to be text.
    """
    raw = without_nulls(dict(given))
    table = known_fields().fields
    if _OWN in raw:
        taints = msgspec.json.encode(raw[_OWN]).decode()
        yield f"{path}.{_OWN}: {taints} is not allowed; taints are those of the NodePool"
    mismatches = list(_object(path, {key: value for key, value in raw.items() if key != _OWN}, _expressible(table)))
    yield from mismatches
    if not mismatches:
        yield from _rules(path, raw)


def read_settings(path: str, raw: Mapping[str, Any]) -> Iterator[str]:
    """The problems of a Provisioner's settings, whose types are known, and which have no expressions."""
    yield from _rules(path, raw)
    for name in RESERVED:
        for key, value in raw.get(name, {}).items():
            if is_expression(value):
                yield from fields.quantity(f"{path}.{name}.{key}", key, value)


def _expressible(table: Mapping[str, Any]) -> dict[str, Any]:
    """The types of the fields where expressions, and quantities as numbers, are allowed."""
    return {**table, MAX_PODS: _COUNT, **{name: {"*": _AMOUNT} for name in RESERVED}}


# --- types ---


def _mismatches(path: str, value: Json, kind: Any) -> Iterator[str]:  # noqa: ANN401 (a type of the table)
    if isinstance(kind, str):
        is_allowed, allowed = _TYPES[kind]
        if not is_allowed(value):
            yield f"{path}: {_shown(value)} is not allowed; allowed is {allowed}"
    elif isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{path}: {_shown(value)} is not a list"
        else:
            for i, item in enumerate(value):
                yield from _mismatches(f"{path}[{i}]", item, kind[0])
    elif not isinstance(value, dict):
        yield f"{path}: {_shown(value)} is not a map"
    else:
        yield from _object(path, value, kind)


def _object(path: str, value: Mapping[str, Json], kind: Mapping[str, Any]) -> Iterator[str]:
    for name, inner in value.items():
        field_kind = kind.get(name, kind.get("*"))
        if field_kind is None:
            version = known_fields().version
            yield f"{path}.{name}: {_shown(inner)} is not allowed; the kubelet {version} has no such setting"
        else:
            yield from _mismatches(f"{path}.{name}", inner, field_kind)


def _is_integer(value: Json, kind: str) -> bool:
    low, high = _RANGES[kind]
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_quantity(value: Json) -> bool:
    try:
        exact_quantity(value if isinstance(value, str) else repr(value))
    except QuantityError:
        return False
    return True


def _is_duration(value: Json) -> bool:
    try:
        return isinstance(value, str) and parse_duration(value) is not None
    except DurationError:
        return False


_TYPES: Mapping[str, tuple[Callable[[Json], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "string": (lambda value: isinstance(value, str), "text; put it in quotes"),
    "float64": (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    "quantity": (_is_quantity, "a quantity such as 500m or 1Gi"),
    "duration": (_is_duration, "a duration such as 30s, 10m or 1h30m"),
    "duration or integer": (
        lambda value: _is_duration(value) or _is_integer(value, "int64"),
        "a duration such as 30s, or an integer of nanoseconds",
    ),
    **{
        kind: (partial(_is_integer, kind=kind), f"an integer of {least} to {most}")
        for kind, (least, most) in _RANGES.items()
    },
    _COUNT: (
        lambda value: isinstance(value, str) or _is_integer(value, "int32"),
        f"an integer of 0 to {_RANGES['int32'][1]}, or an expression",
    ),
    _AMOUNT: (lambda value: isinstance(value, str) or _is_quantity(value), "a quantity or an expression"),
}
"""By the name of a type: whether a value is of it, and what is allowed, in words."""


def _shown(value: Json) -> str:
    return msgspec.json.encode(value).decode()


# --- rules ---


def _rules(path: str, raw: Mapping[str, Any]) -> Iterator[str]:
    """What types don't say, in the order of the struct Kubelet's fields."""
    max_pods = raw.get(MAX_PODS)
    yield from fields.within(f"{path}.{MAX_PODS}", None if isinstance(max_pods, str) else max_pods, 0)
    yield from fields.within(f"{path}.podsPerCore", raw.get("podsPerCore"), 0)
    for name in reversed(RESERVED):
        yield from _reserved(f"{path}.{name}", raw.get(name, {}))
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        yield from _thresholds(f"{path}.{name}", raw.get(name, {}))
    yield from _grace_periods(path, raw.get("evictionSoft", {}), raw.get("evictionSoftGracePeriod", {}))
    yield from fields.within(f"{path}.evictionMaxPodGracePeriod", raw.get("evictionMaxPodGracePeriod"), 0)
    yield from _image_gc(path, raw.get("imageGCHighThresholdPercent"), raw.get("imageGCLowThresholdPercent"))
    for i, address in enumerate(raw.get("clusterDNS", [])):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield f"{path}.clusterDNS[{i}]: {quoted(address)} is not an IP address"


def _keys(path: str, given: Mapping[str, object], allowed: tuple[str, ...]) -> Iterator[str]:
    for key in given:
        if key not in allowed:
            yield f"{path}.{key}: {quoted(key)} is not allowed; allowed are {fields.listed(allowed)}"


def _reserved(path: str, given: Mapping[str, str | int | float]) -> Iterator[str]:
    yield from _keys(path, given, RESERVABLE)
    for key, value in given.items():
        if str(value).startswith("-"):
            yield f"{path}.{key}: {quoted(value)} is negative; allowed is 0 or more"


def _thresholds(path: str, given: Mapping[str, str]) -> Iterator[str]:
    yield from _keys(path, given, EVICTION_SIGNALS)
    for signal, value in given.items():
        if not _PERCENT.fullmatch(value):
            yield from fields.quantity(f"{path}.{signal}", signal, value)


def _grace_periods(path: str, soft: Mapping[str, str], grace: Mapping[str, str]) -> Iterator[str]:
    yield from _keys(f"{path}.evictionSoftGracePeriod", grace, EVICTION_SIGNALS)
    for signal, value in grace.items():
        yield from fields.duration(f"{path}.evictionSoftGracePeriod.{signal}", value)
    for signal in soft.keys() - grace.keys():
        yield f"{path}.evictionSoft.{signal}: has no grace period; {path}.evictionSoftGracePeriod.{signal} is needed"
    for signal in grace.keys() - soft.keys():
        yield f"{path}.evictionSoftGracePeriod.{signal}: has no threshold; {path}.evictionSoft.{signal} is needed"


def _image_gc(path: str, high: int | None, low: int | None) -> Iterator[str]:
    yield from fields.within(f"{path}.imageGCHighThresholdPercent", high, 0, 100)
    yield from fields.within(f"{path}.imageGCLowThresholdPercent", low, 0, 100)
    if high is not None and low is not None and high <= low:
        yield f"{path}.imageGCHighThresholdPercent: {high} is not allowed; allowed is more than the low one, {low}"
