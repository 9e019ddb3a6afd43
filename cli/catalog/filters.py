"""Which instance types ``tenon catalog`` shows, and in which order.

CPUs and memory are the machine's, as AWS describes it: ``--min-memory 16Gi`` matches a machine that is sold with 16
GiB, although the capacity that a node reports is less.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cli.errors import UsageError
from cli.nearest import suggestion
from shared.api import labels
from shared.api.quantity import QuantityError, exact_quantity
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cli.catalog.entries import CatalogEntry, OfferingEntry

SORTS = ("name", "price", "cpu", "memory", "price-per-cpu")
CAPACITY_TYPES = ("on-demand", "spot", "reserved")
ARCHITECTURES = ("amd64", "arm64")
_FAMILY, _GPU_NAME = labels.INSTANCE_PREFIX + "family", labels.INSTANCE_PREFIX + "gpu-name"
_CPU, _MEMORY = labels.INSTANCE_PREFIX + "cpu", labels.INSTANCE_PREFIX + "memory"
_GPU_COUNT = labels.INSTANCE_PREFIX + "gpu-count"
_MIB = 1 << 20


class Filters(Struct, kw_only=True):
    """Conditions on instance types and their offerings; an empty one holds for all. All must hold.

    ``max_price`` is USD per hour, ``min_memory`` bytes.
    """

    families: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()
    gpu_names: tuple[str, ...] = ()
    gpu: bool = False
    max_price: float | None = None
    min_cpu: int | None = None
    max_cpu: int | None = None
    min_memory: int | None = None
    sort: str = "name"

    def check(self) -> None:
        """Check the values that don't depend on the Region.

        Raises:
            UsageError: a value isn't valid.
        """
        _check_values("--sort-by", [self.sort.removeprefix("-")], SORTS)
        _check_values("--arch", self.architectures, ARCHITECTURES)
        _check_values("--capacity-type", self.capacity_types, CAPACITY_TYPES)
        if self.max_price is not None and not 0 < self.max_price < math.inf:
            raise UsageError(f"--max-price {self.max_price:g}: must be USD per hour, more than 0, such as 0.20")
        if self.min_cpu is not None and self.max_cpu is not None and self.min_cpu > self.max_cpu:
            raise UsageError(f"--min-cpu {self.min_cpu} is more than --max-cpu {self.max_cpu}")

    def of(self, entries: Sequence[CatalogEntry]) -> list[CatalogEntry]:
        """The instance types that meet the conditions, with the offerings that do, sorted.

        Raises:
            UsageError: the Region has no such family, zone or GPU.
        """
        _check_values("--family", self.families, {e.labels.get(_FAMILY, "") for e in entries})
        _check_values("--zone", self.zones, {o.zone for e in entries for o in e.offerings})
        _check_values("--gpu-name", self.gpu_names, {e.labels[_GPU_NAME] for e in entries if _GPU_NAME in e.labels})
        selected = [self._with_offerings(entry) for entry in entries if self._holds(entry)]
        if self._of_offerings:
            selected = [entry for entry in selected if entry.offerings]
        return sorted(selected, key=_SORT_KEYS[self.sort.removeprefix("-")], reverse=self.sort.startswith("-"))

    @property
    def _of_offerings(self) -> bool:
        return bool(self.zones or self.capacity_types) or self.max_price is not None

    def _holds(self, entry: CatalogEntry) -> bool:
        values = entry.labels
        cpus, memory = _number(entry, _CPU), _number(entry, _MEMORY) * _MIB
        return (
            _is_among(values.get(_FAMILY, ""), self.families)
            and _is_among(values.get(labels.ARCH, ""), self.architectures)
            and _is_among(values.get(_GPU_NAME, ""), self.gpu_names)
            and (not self.gpu or _number(entry, _GPU_COUNT) > 0)
            and (self.min_cpu is None or cpus >= self.min_cpu)
            and (self.max_cpu is None or cpus <= self.max_cpu)
            and (self.min_memory is None or memory >= self.min_memory)
        )

    def _with_offerings(self, entry: CatalogEntry) -> CatalogEntry:
        return with_fields(entry, offerings=[o for o in entry.offerings if self._is_wanted(o)])

    def _is_wanted(self, offering: OfferingEntry) -> bool:
        return (
            _is_among(offering.zone, self.zones)
            and _is_among(offering.capacity_type, self.capacity_types)
            and (self.max_price is None or offering.price <= self.max_price)
        )


def memory(text: str) -> int | None:
    """The bytes of ``--min-memory``; None if it isn't given.

    Raises:
        UsageError: it is not a quantity with a unit.
    """
    if not text:
        return None
    hint = f'"{text}Gi"' if text.isdecimal() else '"16Gi"'
    try:
        amount = exact_quantity(text)
    except QuantityError as error:
        raise UsageError(f'--min-memory "{text}" is not a quantity such as {hint}') from error
    if amount < _MIB:
        raise UsageError(f'--min-memory "{text}" is less than 1Mi; give a unit, such as {hint}')
    return math.ceil(amount)


def _check_values(option: str, values: Iterable[str], allowed: Iterable[str]) -> None:
    """Check that each value is allowed; of many, the message names the nearest only."""
    allowed = sorted(allowed)
    few = f"; must be {', '.join(allowed)}" if len(allowed) <= len(SORTS) else ""
    for value in values:
        if value not in allowed:
            raise UsageError(f'{option}: there is no "{value}"{suggestion(value, allowed)}{few}')


def _is_among(value: str, wanted: Sequence[str]) -> bool:
    return not wanted or value in wanted


def _number(entry: CatalogEntry, label: str) -> int:
    return int(entry.labels.get(label, "0"))


def _price(entry: CatalogEntry) -> float:
    """The least price of the offerings; infinite without."""
    return min((o.price for o in entry.offerings), default=math.inf)


_SORT_KEYS: dict[str, Callable[[CatalogEntry], tuple[float | str, ...]]] = {
    "name": lambda e: (e.name,),
    "price": lambda e: (_price(e), e.name),
    "cpu": lambda e: (_number(e, _CPU), e.name),
    "memory": lambda e: (_number(e, _MEMORY), e.name),
    "price-per-cpu": lambda e: (_price(e) / max(1, _number(e, _CPU)), e.name),
}
