"""The demo's picture: where the story stands, then the nodes as ``tenon nodes`` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.text import Text

from cli.nodes import rows, table
from shared.api.kubernetes import Node, Pod
from shared.api.nodeclaim import NodeClaim

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rich.console import RenderableType

    from cli.nodes.rows import NodeRows
    from local.world import World


def take(world: World, price: Callable[[str, str, str], float]) -> NodeRows:
    """The world's nodes now."""
    return rows.build(
        [msgspec.convert(n, Node) for n in world.nodes()],
        [msgspec.convert(c, NodeClaim) for c in world.claims()],
        [msgspec.convert(p, Pod) for p in world.pods()],
        price=price,
        now=world.clock.now(),
    )


def render(taken: NodeRows, *, start: datetime, step: str, width: int) -> RenderableType:
    """The picture for a terminal of so many columns."""
    seconds = (taken.now - start).total_seconds()
    head = Text.assemble(
        (f" {step} ", "reverse"),
        f"  {int(seconds // 60)}:{seconds % 60:04.1f}  {taken.running} pods running, ",
        (f"{taken.pending} pending", "bold yellow" if taken.pending else ""),
        f"  {len(taken.rows)} nodes  ",
        (f"${taken.cost:.4f}/h", "bold"),
    )
    if not taken.rows:
        return Group(Text(), head)
    return Group(Text(), head, table.table(taken, taken.rows, width=width))
