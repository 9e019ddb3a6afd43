"""All instance types of a catalog at once, as arrays: sizes, labels, prices by offering.

Scheduling asks the same question of hundreds of types for each class of pods; here it is asked once, of arrays. A
catalog is turned into arrays once for as long as the same tuple is used, so a warm function pays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, OS, ZONE, normalize_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.rules.requirements import Requirements, ValueSet

    BoolArray = NDArray[np.bool_]

OfferingKey = tuple[tuple[str, str], ...]
"""The labels of one way to buy: zone, capacity type, and what only that offering has."""


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one label over many rows: ``values[codes[i]]``; code -1 where the label is absent."""

    values: tuple[str, ...]
    codes: NDArray[np.int32]

    def allowed(self, allowed: ValueSet) -> NDArray[np.bool_]:
        """Which rows have an allowed value."""
        table = np.fromiter((*(allowed.has(v) for v in self.values), allowed.absent), np.bool_, len(self.values) + 1)
        return table[self.codes]


def column(values: list[str | None]) -> Column:
    """A column of these values, None where the label is absent."""
    distinct = tuple(sorted({v for v in values if v is not None}))
    code = {v: i for i, v in enumerate(distinct)}
    return Column(distinct, np.fromiter((-1 if v is None else code[v] for v in values), np.int32, len(values)))


@dataclass(frozen=True)
class Catalog:
    """The arrays of one catalog. ``price`` is types x offerings in USD per hour, inf where it can't be had."""

    names: tuple[str, ...]
    resources: tuple[str, ...]
    allocatable: NDArray[np.int64]
    capacity: NDArray[np.int64]
    price: NDArray[np.float64]
    offered: NDArray[np.bool_]
    offerings: tuple[OfferingKey, ...]
    type_columns: dict[str, Column]
    os: tuple[frozenset[str], ...]
    offering_columns: dict[str, Column]
    masks: dict[tuple[str, ValueSet], NDArray[np.bool_]] = field(default_factory=dict)

    def knows(self, key: str) -> bool:
        """Whether types or offerings define the label."""
        return key in self.type_columns or key in self.offering_columns or key == OS

    def types_allowed(self, key: str, allowed: ValueSet) -> NDArray[np.bool_]:
        """Which types have an allowed value of a label of types."""
        found = self.masks.get((key, allowed))
        if found is None:
            if key == OS:
                found = np.fromiter(
                    (any(allowed.has(o) for o in os) or (not os and allowed.absent) for os in self.os),
                    np.bool_,
                    len(self.os),
                )
            else:
                found = self.type_columns[key].allowed(allowed)
            self.masks[key, allowed] = found
        return found

    def values_of(self, key: str) -> tuple[str, ...]:
        """Every value that types or offerings have for the label."""
        if key == OS:
            return tuple(sorted(frozenset().union(*self.os)))
        found = self.type_columns.get(key) or self.offering_columns.get(key)
        return found.values if found is not None else ()


_KEPT = 8
_kept: dict[int, tuple[tuple[InstanceType, ...], Catalog]] = {}


def catalog_of(types: tuple[InstanceType, ...]) -> Catalog:
    """The arrays of these types, in order of name; made once for the same tuple object."""
    kept = _kept.get(id(types))
    if kept is not None and kept[0] is types:
        return kept[1]
    made = _catalog(types)
    while len(_kept) >= _KEPT:
        del _kept[next(iter(_kept))]
    _kept[id(types)] = (types, made)
    return made


def _catalog(unordered: tuple[InstanceType, ...]) -> Catalog:
    types = sorted(unordered, key=lambda t: t.name)
    resources = tuple(sorted({r for t in types for r in t.capacity}))
    place = {r: i for i, r in enumerate(resources)}
    capacity = np.zeros((len(types), len(resources)), np.int64)
    allocatable = np.zeros_like(capacity)
    for i, t in enumerate(types):
        for r, amount in t.capacity.items():
            capacity[i, place[r]] = amount
        for r, amount in t.allocatable.items():
            allocatable[i, place[r]] = amount
    keyed = [
        (
            i,
            tuple(
                sorted(
                    {
                        **{normalize_key(k): v for k, v in o.labels.items()},
                        ZONE: o.zone,
                        CAPACITY_TYPE: o.capacity_type,
                    }.items()
                )
            ),
            o,
        )
        for i, t in enumerate(types)
        for o in t.offerings
    ]
    offerings = tuple(sorted({key for _, key, _ in keyed}))
    at = {key: j for j, key in enumerate(offerings)}
    price = np.full((len(types), len(offerings)), np.inf)
    offered = np.zeros(price.shape, np.bool_)
    for i, key, o in keyed:
        offered[i, at[key]] = True
        if o.available:
            price[i, at[key]] = min(price[i, at[key]], o.price)
    labelled = [{normalize_key(k): v for k, v in t.labels.items()} for t in types]
    for labels, t in zip(labelled, types, strict=True):
        labels[INSTANCE_TYPE] = t.name
    systems = tuple(frozenset(labels.pop(OS).split(",")) if OS in labels else frozenset() for labels in labelled)
    offering_keys = {k for key in offerings for k, _ in key}
    type_keys = {k for labels in labelled for k in labels} - offering_keys | {INSTANCE_TYPE, ARCH}
    return Catalog(
        names=tuple(t.name for t in types),
        resources=resources,
        allocatable=allocatable,
        capacity=capacity,
        price=price,
        offered=offered,
        offerings=offerings,
        type_columns={k: column([labels.get(k) for labels in labelled]) for k in sorted(type_keys)},
        os=systems,
        offering_columns={k: column([dict(key).get(k) for key in offerings]) for k in sorted(offering_keys)},
    )


def allowed_in(catalog: Catalog, requirements: Requirements) -> tuple[BoolArray, BoolArray]:
    """Which types and which offerings of a catalog the requirements allow; labels it doesn't know are passed over."""
    types = np.ones(len(catalog.names), np.bool_)
    offerings = np.ones(len(catalog.offerings), np.bool_)
    for key, allowed in requirements.items():
        if key in catalog.offering_columns:
            offerings &= catalog.offering_columns[key].allowed(allowed)
        elif catalog.knows(key):
            types &= catalog.types_allowed(key, allowed)
    return types, offerings
