"""The demo's screen: the current step and totals, then the nodes as ``tenon nodes`` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.text import Text

from cli.nodes import rows, table
from shared.api.kubernetes import Node, Pod
from shared.api.labels import offering_key
from shared.api.nodeclaim import NodeClaim
from shared.base.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rich.console import RenderableType

    from cli.nodes.rows import NodeRows
    from local.world import World


def node_rows(world: World, price: Callable[[str, str, str], float]) -> NodeRows:
    """The local cluster's nodes."""
    return rows.build(
        [msgspec.convert(n, Node) for n in world.nodes()],
        [msgspec.convert(c, NodeClaim) for c in world.claims()],
        [msgspec.convert(p, Pod) for p in world.pods()],
        price=lambda labels: price(*offering_key(labels)),
        now=world.clock.now(),
    )


def render(shown: NodeRows, *, start: datetime, step: str, width: int) -> RenderableType:
    """The screen for a terminal of that many columns."""
    seconds = (shown.now - start).total_seconds()
    head = Text.assemble(
        (f" {step} ", "reverse"),
        f"  {int(seconds // 60)}:{seconds % 60:04.1f}  {plural(shown.running, 'pod')} running, ",
        (f"{shown.pending} pending", "bold yellow" if shown.pending else ""),
        f"  {plural(len(shown.rows), 'node')}  ",
        (f"${shown.cost:.4f}/h", "bold"),
    )
    if not shown.rows:
        return Group(Text(), head)
    return Group(Text(), head, table.table(shown, shown.rows, width=width))
