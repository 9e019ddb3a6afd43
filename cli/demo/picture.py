"""The demo's picture: nodes with how full they are and what they cost, and the pods that wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shared.api import labels as names
from shared.api.kubernetes import Node, Pod
from shared.api.nodeclaim import NodeClaim
from shared.api.pods import is_terminal, requests
from shared.api.quantity import CPU, MEMORY, add, parse_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from rich.console import RenderableType

    from local.world import World

_BAR_WIDTH = 8
_WIDE = 100


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """One claim with or without its node. Fills are shares of allocatable, 0 to 1; price is USD per hour."""

    name: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float
    pods: int
    cpu: float
    memory: float
    state: str


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The world at one moment."""

    now: datetime
    nodes: tuple[NodeRow, ...]
    running: int
    pending: int

    @property
    def cost(self) -> float:
        """USD per hour of everything that is launched."""
        return sum(n.price for n in self.nodes)


def take(world: World, price: Callable[[str, str, str], float]) -> Picture:
    """The picture of a world now."""
    claims = [msgspec.convert(c, NodeClaim) for c in world.claims()]
    nodes = {n.spec.provider_id: n for n in (msgspec.convert(n, Node) for n in world.nodes())}
    pods = [p for p in (msgspec.convert(p, Pod) for p in world.pods()) if not is_terminal(p)]
    on: dict[str, list[Pod]] = {}
    for pod in pods:
        on.setdefault(pod.spec.node_name, []).append(pod)
    return Picture(
        now=world.clock.now(),
        nodes=tuple(_row(c, nodes.get(c.status.provider_id), on, price) for c in sorted(claims, key=lambda c: c.name)),
        running=sum(1 for p in pods if p.status.phase == "Running"),
        pending=len(on.get("", ())),
    )


def _row(
    claim: NodeClaim, node: Node | None, on: Mapping[str, list[Pod]], price: Callable[[str, str, str], float]
) -> NodeRow:
    labels = claim.metadata.labels
    kind = (labels.get(names.INSTANCE_TYPE, ""), labels.get(names.ZONE, ""), labels.get(names.CAPACITY_TYPE, ""))
    pods = on.get(node.metadata.name, []) if node is not None else []
    asked = add(*(requests(p) for p in pods))
    size = parse_resources(node.status.allocatable if node is not None else claim.status.allocatable)
    return NodeRow(
        name=node.metadata.name if node is not None else claim.name,
        instance_type=kind[0],
        zone=kind[1],
        capacity_type=kind[2],
        price=price(*kind) if claim.status.provider_id else 0.0,
        pods=len(pods),
        cpu=asked.get(CPU, 0) / size[CPU] if size.get(CPU) else 0.0,
        memory=asked.get(MEMORY, 0) / size[MEMORY] if size.get(MEMORY) else 0.0,
        state=_state(claim, node),
    )


def _state(claim: NodeClaim, node: Node | None) -> str:
    if claim.metadata.deletion_timestamp is not None:
        return "leaving"
    if not claim.status.provider_id:
        return "asked for"
    if node is None:
        return "starting"
    return "ready" if node.metadata.labels.get(names.INITIALIZED) == "true" else "joining"


_STATE_STYLES = {"ready": "green", "leaving": "red", "asked for": "yellow", "starting": "yellow", "joining": "yellow"}


def render(picture: Picture, *, start: datetime, step: str, width: int) -> RenderableType:
    """The picture for a terminal of so many columns; below 100 the bars are left out."""
    seconds = (picture.now - start).total_seconds()
    head = Text.assemble(
        (f" {step} ", "reverse"),
        f"  {int(seconds // 60)}:{seconds % 60:04.1f}  {picture.running} pods running, ",
        (f"{picture.pending} pending", "bold yellow" if picture.pending else ""),
        f"  {len(picture.nodes)} nodes  ",
        (f"${picture.cost:.4f}/h", "bold"),
    )
    if not picture.nodes:
        return Group(Text(), head)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("node", "type", "zone", "capacity"):
        table.add_column(column, no_wrap=True)
    table.add_column("$/h", no_wrap=True, justify="right")
    for column in ("cpu", "memory"):
        table.add_column(column, justify="right")
    table.add_column("pods", no_wrap=True, justify="right")
    table.add_column("state", no_wrap=True)
    for node in picture.nodes:
        table.add_row(
            node.name.partition(".")[0],
            node.instance_type,
            node.zone.rpartition("-")[2],
            node.capacity_type,
            f"{node.price:.4f}" if node.price else "",
            _bar(node.cpu, wide=width >= _WIDE),
            _bar(node.memory, wide=width >= _WIDE),
            str(node.pods),
            Text(node.state, style=_STATE_STYLES.get(node.state, "")),
        )
    return Group(Text(), head, table)


def _bar(share: float, *, wide: bool) -> RenderableType:
    if not wide:
        return f"{share:.0%}"
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=_BAR_WIDTH)
    grid.add_column(width=4, justify="right")
    grid.add_row(ProgressBar(total=1.0, completed=min(share, 1.0), width=_BAR_WIDTH), f"{share:.0%}")
    return grid
