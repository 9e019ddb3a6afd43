"""Runs ``tenon nodes``: the table once, as JSON, or updated until ``q`` or Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import json_output, terminal
from cli.cluster.reader import open_cluster
from cli.nodes import json_nodes, table, watch
from cli.printable import echo
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.cluster.cluster_reference import ClusterReference
    from cli.nodes.selection import Selection


def run(
    files: Sequence[Path] | None,
    reference: ClusterReference,
    selected: Selection,
    *,
    interval: float | None,
    aws: bool,
    as_json: bool,
) -> None:
    """Show the selected nodes, every ``interval`` seconds, or once."""
    with open_cluster(files, reference, aws=aws) as observed:
        with progress("Computing what is requested of the nodes"):
            console = terminal.console()
            rows = watch.read_rows(observed)
        selected.check_pools(
            {p.name for p in observed.snapshot.node_pools} | {n for r in rows.rows for n in (r.pool, r.group) if n}
        )
        shown, columns = selected.of(rows), selected.label_columns
        if as_json:
            output = json_nodes.output(observed, rows, shown, label_columns=columns)
            echo(json_output.text("nodes", output))
        elif interval is None or observed.refresh is None or not console.is_terminal:
            width, pauses = console.width, observed.pauses
            console.print(
                table.render(rows, shown, name=observed.name, width=width, pauses=pauses, label_columns=columns)
            )
        else:
            watch.watch(console, observed, observed.refresh, selected, interval=interval)
