"""Instance types as arrays: capacity, labels, and prices by offering.

A rule is evaluated for hundreds of instance types at once. The arrays are built once for as long as the same tuple of
instance types is used, so they cost a warm function nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from shared.api.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, OS, ZONE, normalize_key
from shared.base.struct import Struct
from shared.scheduling.rules.attached_volumes import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.quantity import Resources
    from shared.instance_types.instance_type import InstanceType, Offering
    from shared.scheduling.rules.requirements import Requirements, ValueSet

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

K = TypeVar("K")
V = TypeVar("V")
OfferingKey = tuple[tuple[str, str], ...]
"""The labels of an offering: zone, capacity type, and any that only this offering has."""

_OPTIONS_COMPARED = 256
"""How many launch options are compared with one another at once."""
_MAX_CACHED = 64
_MAX_MASKS = 1024
"""Bounds of what a warm process keeps: arrays, and for each of them labels with their allowed values."""
_cached: dict[int, tuple[tuple[InstanceType, ...], InstanceTypeArrays]] = {}


class LabelColumn(Struct, eq=False):
    """The values of one label over many objects: ``values[codes[i]]``; code -1 where the label is absent."""

    values: tuple[str, ...]
    codes: NDArray[np.int32]

    def allowed(self, allowed: ValueSet) -> Bools:
        """Which objects have an allowed value."""
        table = np.fromiter((*(allowed.has(v) for v in self.values), allowed.absent), np.bool_, len(self.values) + 1)
        return table[self.codes]

    def values_at(self, index: Bools | Ints) -> set[str]:
        """The distinct values of some objects."""
        return {self.values[code] for code in np.unique(self.codes[index]).tolist() if code >= 0}


def label_column(values: list[str | None]) -> LabelColumn:
    """A column of these values, None where the label is absent."""
    distinct = tuple(sorted({v for v in values if v is not None}))
    code = {v: i for i, v in enumerate(distinct)}
    return LabelColumn(distinct, np.fromiter((-1 if v is None else code[v] for v in values), np.int32, len(values)))


def label_columns(labels: Sequence[Mapping[str, str]], keys: Iterable[str]) -> dict[str, LabelColumn]:
    """The column of each of these labels."""
    return {key: label_column([own.get(key) for own in labels]) for key in sorted(keys)}


class InstanceTypeArrays(Struct, eq=False, kw_only=True):
    """Instance types in order of name. Resources are exact integers.

    ``price`` is the effective price: instance types x offerings in USD per hour, inf where unavailable; ``offered``
    includes unavailable offerings. ``charged`` is what AWS charges for the offering of that effective price,
    and ``volume_price`` the part of it that the node's volumes cost. ``volumes`` is how many EBS volumes pods attach.
    """

    names: tuple[str, ...]
    resources: tuple[str, ...]
    allocatable: Ints
    capacity: Ints
    volumes: Ints
    price: NDArray[np.float64]
    charged: NDArray[np.float64]
    volume_price: NDArray[np.float64]
    offered: Bools
    offerings: tuple[OfferingKey, ...]
    type_columns: dict[str, LabelColumn]
    os: tuple[frozenset[str], ...]
    offering_columns: dict[str, LabelColumn]
    masks: dict[tuple[str, ValueSet], Bools] = {}

    def knows(self, key: str) -> bool:
        """Whether instance types or offerings define the label."""
        return key in self.type_columns or key in self.offering_columns or key == OS

    def types_allowed(self, key: str, allowed: ValueSet) -> Bools:
        """Which instance types have an allowed value of one of their labels."""
        mask = self.masks.get((key, allowed))
        if mask is None:
            mask = self._os_allowed(allowed) if key == OS else self.type_columns[key].allowed(allowed)
            if len(self.masks) >= _MAX_MASKS:
                self.masks.clear()
            self.masks[key, allowed] = mask
        return mask

    def _os_allowed(self, allowed: ValueSet) -> Bools:
        """An instance type may run several operating systems; none listed counts as a missing label."""
        return np.fromiter(
            (any(allowed.has(o) for o in os) or (not os and allowed.absent) for os in self.os), np.bool_, len(self.os)
        )

    def values_of(self, key: str) -> tuple[str, ...]:
        """All values of a label of instance types or offerings."""
        if key == OS:
            return tuple(sorted(frozenset().union(*self.os)))
        column = self.type_columns.get(key) or self.offering_columns.get(key)
        return column.values if column is not None else ()


def allowed_in(arrays: InstanceTypeArrays, requirements: Requirements) -> tuple[Bools, Bools]:
    """The instance types and the offerings that requirements allow; labels that neither defines are ignored."""
    types = np.ones(len(arrays.names), np.bool_)
    offerings = np.ones(len(arrays.offerings), np.bool_)
    for key, allowed in requirements.items():
        if key in arrays.offering_columns:
            offerings &= arrays.offering_columns[key].allowed(allowed)
        elif arrays.knows(key):
            types &= arrays.types_allowed(key, allowed)
    return types, offerings


def instance_type_arrays(types: tuple[InstanceType, ...]) -> InstanceTypeArrays:
    """The arrays of these instance types; cached by the tuple's identity, as long as others hold the tuple."""
    cached = _cached.get(id(types))
    if cached is not None and cached[0] is types:
        return cached[1]
    arrays = _build(types)
    drop_unheld(_cached, holders=1)
    while len(_cached) >= _MAX_CACHED:
        del _cached[next(iter(_cached))]
    _cached[id(types)] = (types, arrays)
    return arrays


def drop_unheld(cache: dict[K, tuple[tuple[InstanceType, ...], V]], *, holders: int) -> None:
    """Drop the entries whose instance types nobody holds but this many caches: a tuple can't be referenced weakly.

    Each change of prices makes new tuples, and the old ones take megabytes.
    """
    for key, entry in list(cache.items()):
        if sys.getrefcount(entry[0]) <= holders + 1:  # the argument is one more reference
            cache.pop(key, None)


def _build(unordered: tuple[InstanceType, ...]) -> InstanceTypeArrays:
    types = sorted(unordered, key=lambda t: t.name)
    resources = tuple(sorted({r for t in types for r in t.capacity}))
    offerings, offered, price, charged, volume_price = _offerings(types)
    labels = [_labels(t) for t in types]
    os = tuple(frozenset(own.pop(OS).split(",")) if OS in own else frozenset() for own in labels)
    offering_keys = {k for key in offerings for k, _ in key}
    type_keys = {k for own in labels for k in own} - offering_keys | {INSTANCE_TYPE, ARCH}
    return InstanceTypeArrays(
        names=tuple(t.name for t in types),
        resources=resources,
        allocatable=_amounts([t.allocatable for t in types], resources),
        capacity=_amounts([t.capacity for t in types], resources),
        volumes=_volumes(types),
        price=price,
        charged=charged,
        volume_price=volume_price,
        offered=offered,
        offerings=offerings,
        type_columns=label_columns(labels, type_keys),
        os=os,
        offering_columns=label_columns([dict(key) for key in offerings], offering_keys),
    )


def _volumes(types: Sequence[InstanceType]) -> Ints:
    return np.array([NO_LIMIT if t.volumes is None else t.volumes for t in types], np.int64)


def _labels(instance_type: InstanceType) -> dict[str, str]:
    labels = {normalize_key(k): v for k, v in instance_type.labels.items()}
    labels[INSTANCE_TYPE] = instance_type.name
    return labels


def _amounts(amounts_by_type: list[Resources], resources: tuple[str, ...]) -> Ints:
    """Instance types x resources."""
    index = {r: i for i, r in enumerate(resources)}
    array = np.zeros((len(amounts_by_type), len(resources)), np.int64)
    for i, amounts in enumerate(amounts_by_type):
        for r, amount in amounts.items():
            array[i, index[r]] = amount
    return array


def _offerings(
    types: list[InstanceType],
) -> tuple[tuple[OfferingKey, ...], Bools, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """All distinct offerings, and by instance type and offering whether it exists, and its prices."""
    key_of: dict[tuple[str, str, int], OfferingKey] = {}  # by the labels' identity: a zone's offerings share them
    keyed = []
    for i, instance_type in enumerate(types):
        for offering in instance_type.offerings:
            parts = offering.zone, offering.capacity_type, id(offering.labels)
            key = key_of.get(parts)
            if key is None:
                key = key_of[parts] = _offering_key(offering)
            keyed.append((i, key, offering))
    offerings = tuple(sorted(set(key_of.values())))
    index = {key: j for j, key in enumerate(offerings)}
    shape = len(types), len(offerings)
    size = len(types) * len(offerings)
    price, charged, volume_price, offered = [np.inf] * size, [np.inf] * size, [0.0] * size, [False] * size
    for i, key, offering in keyed:
        cell = i * len(offerings) + index[key]
        offered[cell] = True
        if offering.available and (effective_price := offering.effective_price) < price[cell]:
            price[cell], charged[cell] = effective_price, offering.price
            volume_price[cell] = offering.volume_price
    return (
        offerings,
        np.array(offered, np.bool_).reshape(shape),
        np.array(price, np.float64).reshape(shape),
        np.array(charged, np.float64).reshape(shape),
        np.array(volume_price, np.float64).reshape(shape),
    )


def _offering_key(offering: Offering) -> OfferingKey:
    labels = {normalize_key(k): v for k, v in offering.labels.items()}
    own = {**labels, ZONE: offering.zone, CAPACITY_TYPE: offering.capacity_type}
    return tuple(sorted((key, value) for key, value in own.items() if value))


def undominated(free: Ints, price: Floats) -> Ints:
    """The indices of the rows of ``free`` (rows x resources) that no other row dominates, in order of price.

    A row dominates another if it is at least as large in every resource, and no more expensive.
    """
    order = np.lexsort((np.arange(len(price)), -free.sum(1), price))
    columns = np.ascontiguousarray(free[order].T)
    columns = columns[(columns != columns[:, :1]).any(1)] if len(order) else columns
    if _each_exceeds_all_before(columns):
        return order
    kept = np.zeros(0, np.int64)
    for start in range(0, len(order), _OPTIONS_COMPARED):
        block = np.arange(start, min(start + _OPTIONS_COMPARED, len(order)))
        block = block[~at_least(columns[:, kept], columns[:, block]).any(0)]
        within_block = at_least(columns[:, block], columns[:, block])
        kept = np.concatenate([kept, block[~np.triu(within_block, 1).any(0)]])
    return order[kept]


def _each_exceeds_all_before(columns: Ints) -> bool:
    """Whether each row has more of some resource than all rows before it (resources x rows)."""
    largest = np.maximum.accumulate(columns, axis=1)
    return bool((columns[:, 1:] > largest[:, :-1]).any(0).all())


def at_least(larger: Ints, smaller: Ints) -> Bools:
    """Which columns of ``larger`` are at least which columns of ``smaller`` in every resource: larger x smaller."""
    result = np.ones((larger.shape[1], smaller.shape[1]), np.bool_)
    for a, b in zip(larger, smaller, strict=True):
        result &= a[:, None] >= b[None, :]
    return result
