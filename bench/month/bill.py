"""The bill of a simulated month, from all nodes that run at the same time, so that commitments can be billed too."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from bench.month.load_generator import HOUR
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.month.catalog import Catalog

Offering: TypeAlias = tuple[str, str, str]
"""Instance type, zone and capacity type."""
RunningNodes: TypeAlias = "Mapping[Offering, int]"
"""How many nodes run at a moment, by offering."""


class NodeSpan(Struct):
    """One node: seconds since the start from the launch to the instance's end."""

    instance_type: str
    zone: str
    capacity_type: str
    launched: int
    terminated: int

    @property
    def offering(self) -> Offering:
        """What the node was launched from."""
        return self.instance_type, self.zone, self.capacity_type


def changes(spans: Sequence[NodeSpan]) -> list[tuple[int, dict[Offering, int]]]:
    """The running nodes from each moment (seconds) on at which they change."""
    events: dict[int, list[tuple[Offering, int]]] = {}
    for span in spans:
        events.setdefault(span.launched, []).append((span.offering, 1))
        events.setdefault(span.terminated, []).append((span.offering, -1))
    running: dict[Offering, int] = {}
    steps = []
    for time in sorted(events):
        running = dict(running)
        for offering, change in events[time]:
            running[offering] = running.get(offering, 0) + change
        running = {offering: number for offering, number in running.items() if number}
        steps.append((time, running))
    return steps


def dollars(spans: Sequence[NodeSpan], rate: Callable[[RunningNodes], float]) -> float:
    """USD of all spans, by the rate in USD per hour of the nodes that run at the same time.

    The rate sees all of them, so it may bill a commitment: what is paid whether used or not, and what is used of it.
    """
    total = 0.0
    for (start, running), (end, _) in pairwise(changes(spans)):
        total += rate(running) * (end - start) / HOUR
    return total


def list_price(catalog: Catalog) -> Callable[[RunningNodes], float]:
    """The rate without commitments: the sum of the offerings' prices."""
    prices: dict[Offering, float] = {}
    for offerings in catalog.offerings.values():
        for type_ in offerings.types:
            for o in type_.offerings:
                prices[type_.name, o.zone, o.capacity_type] = o.price
    return lambda running: sum(prices[offering] * number for offering, number in running.items())
