"""Pods to pack, counted instead of looped over: items by group and size, and lots of items that pack alike."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import msgspec

from shared.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]


class Item(MutableStruct):
    """Pods of one feasibility and size. ``worth`` is the least that one of them costs, USD per hour.

    ``owner`` (a pending group) and ``where`` (domains by topology key) lead back from pods that stay unscheduled.
    """

    feasibility: Feasibility
    requests: Ints
    pods: list[str]
    worth: float = 0.0
    owner: object = None
    where: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many pods."""
        return len(self.pods)


class Lot(MutableStruct):
    """Items of the same size and feasibility, counted as one."""

    feasibility: Feasibility
    requests: Ints
    worth: float
    items: list[Item]
    count: int

    def take(self, n: int) -> list[tuple[Item, list[str]]]:
        """Takes n pods out of its items, in order."""
        taken: list[tuple[Item, list[str]]] = []
        n = min(n, self.count)
        self.count -= n
        for item in self.items:
            if not n:
                break
            pods = item.pods[:n]
            if pods:
                del item.pods[: len(pods)]
                taken.append((item, pods))
                n -= len(pods)
        return taken


def lots_of(items: Iterable[Item], *, hosts: bool) -> list[Lot]:
    """The items as lots, greatest worth first; ``hosts``: items with different host rules are different lots."""
    lots: dict[tuple[object, ...], Lot] = {}
    for item in sorted((i for i in items if i.pods and isfinite(i.worth)), key=_order):
        feasibility = item.feasibility
        host_rules = feasibility.host.key if hosts else ()
        key = (feasibility.mask_key, host_rules, item.requests.tobytes())
        lot = lots.get(key)
        if lot is None:
            lots[key] = Lot(feasibility, item.requests, item.worth, [item], item.count)
        else:
            lot.items.append(item)
            lot.count += item.count
    return list(lots.values())


def _order(item: Item) -> tuple[float, bytes, str]:
    return (-item.worth, item.requests.tobytes(), item.pods[0])


def as_item(lot: Lot, count: int, *, hosts: bool) -> Item:
    """So many pods of the lot as one item, for filling; without host rules where no pod has any."""
    feasibility = lot.feasibility if hosts or not lot.feasibility.host.match else lot.feasibility.without_host_rules
    return Item(feasibility, lot.requests, _UnnamedPods(count), lot.worth)


class _UnnamedPods(list[str]):
    """So many pods whose names don't matter."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __len__(self) -> int:
        return self._count
