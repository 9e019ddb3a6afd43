"""What a played cluster consists of: pods, nodes, commands, and the record of what happened with the bill."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bench.month.catalog import Catalog
    from bench.month.load_trace import TracePod

_SECONDS_AN_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Launch:
    """A node to launch, and the names of the pods that it is for."""

    instance_type: str
    zone: str
    capacity_type: str
    pool: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """Nodes to remove (names), and what replaces them. ``details`` are the rule's own."""

    nodes: tuple[str, ...]
    launches: tuple[Launch, ...] = ()
    details: object = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The node by pod, of nodes that are being launched, and the nodes to launch."""

    existing: Mapping[str, str]
    launches: tuple[Launch, ...]


@dataclass(slots=True, eq=False)
class PlayedPod:
    """A pod of the trace; ``since`` is when it began to wait or was bound. ``node`` may still be booting."""

    trace: TracePod
    size: NDArray[np.int64]
    pool: str
    since: int
    node: str = ""
    is_moved: bool = False


@dataclass(slots=True, eq=False)
class PlayedNode:
    """A node, from its launch.

    ``is_leaving``: a command removes it; ``is_reserved``: it is a replacement whose command isn't carried out yet.
    Neither takes pods. ``empty_since`` is None while it has pods or boots.
    """

    name: str
    row: int
    instance_type: str
    zone: str
    capacity_type: str
    pool: str
    price: float
    launched: int
    is_replacement: bool
    is_reserved: bool = False
    is_ready: bool = False
    is_leaving: bool = False
    initialized: int = 0
    last_pod_event: int = 0
    empty_since: int | None = None
    pods: dict[str, PlayedPod] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """The bill of one node: seconds since the start from the launch to the instance's end."""

    instance_type: str
    zone: str
    capacity_type: str
    launched: int
    terminated: int


@dataclass
class Played:
    """What happened: the nodes' spans, seconds that pods waited for a node, and pods that the rule moved."""

    spans: list[NodeSpan] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    moved_waits: list[int] = field(default_factory=list)
    moved: int = 0
    commands: int = 0
    invalid: int = 0
    unschedulable: int = 0


RunningNodes: TypeAlias = "Mapping[tuple[str, str, str], int]"
"""How many nodes run at a moment, by instance type, zone and capacity type."""


def changes(spans: Sequence[NodeSpan]) -> list[tuple[int, dict[tuple[str, str, str], int]]]:
    """The running nodes from each moment (seconds) on at which they change."""
    events: dict[int, list[tuple[tuple[str, str, str], int]]] = {}
    for span in spans:
        offering = span.instance_type, span.zone, span.capacity_type
        events.setdefault(span.launched, []).append((offering, 1))
        events.setdefault(span.terminated, []).append((offering, -1))
    running: dict[tuple[str, str, str], int] = {}
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
        total += rate(running) * (end - start) / _SECONDS_AN_HOUR
    return total


def list_price(catalog: Catalog) -> Callable[[RunningNodes], float]:
    """The rate without commitments: the sum of the offerings' prices."""
    prices: dict[tuple[str, str, str], float] = {}
    for offerings in catalog.offerings.values():
        for type_ in offerings.types:
            for o in type_.offerings:
                prices[type_.name, o.zone, o.capacity_type] = o.price
    return lambda running: sum(prices[offering] * number for offering, number in running.items())
