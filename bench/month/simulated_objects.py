"""The objects of a simulated cluster: pods, nodes, commands, and the record of what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.month.catalog import ZONES
from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bench.month.bill import NodeSpan
    from bench.month.load_trace import TracePod


class Launch(Struct):
    """A node to launch, the names of the pods that it is for, and for how many expected pods it has room."""

    instance_type: str
    zone: str
    capacity_type: str
    pool: str
    pods: tuple[str, ...]
    expected: int = 0


class Command(Struct):
    """Nodes to remove (names), and what replaces them. ``details`` are the rules' own."""

    nodes: tuple[str, ...]
    launches: tuple[Launch, ...] = ()
    details: object = None


class Placement(Struct):
    """The node by pod, of nodes that are being launched, and the nodes to launch."""

    existing: Mapping[str, str]
    launches: tuple[Launch, ...]


class SimulatedPod(MutableStruct):
    """A pod of the trace; ``since`` is when it began to wait or was bound. ``node`` may still be booting."""

    trace: TracePod
    size: NDArray[np.int64]
    pool: str
    since: int
    node: str = ""
    is_moved: bool = False

    def allowed_zones(self, counts: Mapping[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
        """The ZONES in which one more pod of its workload keeps maxSkew; ``counts`` are pods by zone of workloads."""
        by_zone = counts.get(self.trace.workload) if self.trace.zone_spread else None
        if by_zone is None:
            return np.ones(len(ZONES), np.bool_)
        allowed: NDArray[np.bool_] = by_zone + 1 - by_zone.min() <= self.trace.zone_spread
        return allowed


class SimulatedNode(MutableStruct):
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
    expected: int = 0
    is_reserved: bool = False
    is_ready: bool = False
    is_leaving: bool = False
    initialized: int = 0
    last_pod_event: int = 0
    empty_since: int | None = None
    pods: dict[str, SimulatedPod] = {}


class Record(MutableStruct, eq=True):
    """What happened: the nodes' spans, seconds that pods waited for a node, and pods that the rules moved."""

    spans: list[NodeSpan] = []
    waits: list[int] = []
    moved_waits: list[int] = []
    moved: int = 0
    commands: int = 0
    invalid: int = 0
    unschedulable: int = 0
