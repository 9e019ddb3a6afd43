"""``tenon nodes``: a table of the nodes, updated until ``q`` or Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.cluster import source
from cli.errors import errors_as_one_line
from cli.progress import progress

SORTS = ("name", "pool", "type", "zone", "price", "age", "cpu", "memory", "pods", "state")
FILTERS = ("not-ready", "disrupting", "empty", "drifted", "cordoned", "spot", "on-demand", "reserved")


def _complete_sort(incomplete: str) -> list[str]:
    return [s for s in (*SORTS, *(f"-{s}" for s in SORTS)) if s.startswith(incomplete)]


def _complete_filter(incomplete: str) -> list[str]:
    return [name for name in FILTERS if name.startswith(incomplete)]


def nodes(
    file: source.File = None,
    *,
    selector: Annotated[
        str, typer.Option("--selector", "-l", metavar="LABELS", help="Label selector, as in kubectl.")
    ] = "",
    nodepool: Annotated[
        list[str] | None,
        typer.Option(
            "--nodepool",
            "-p",
            metavar="NAMES",
            help="Only nodes of these NodePools (or node groups), separated by commas; repeatable.",
        ),
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="STATE",
            help=f"Only nodes that are {', '.join(FILTERS)}; of several, all must hold; repeatable.",
            autocompletion=_complete_filter,
        ),
    ] = None,
    label_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--label-columns",
            "-L",
            metavar="LABELS",
            help="Labels to show as columns, separated by commas, as in kubectl; repeatable.",
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort-by",
            "--sort",
            metavar="COLUMN",
            help=f"Sort by {', '.join(SORTS)}; a leading - reverses the order.",
            autocompletion=_complete_sort,
        ),
    ] = "name",
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.5, help="Time between updates.")] = 2.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Show the nodes with requested resources, price and state, updated until q or Ctrl-C.

    NodeClaims without a node are shown too, and nodes that node groups are about to add.

    Arrow keys, j, k, PgUp, PgDn, Home and End scroll; / filters by text.

    With --file, or if the output is not a terminal, the table is printed once.

    For example:

      tenon nodes
      tenon nodes --sort-by -cpu -p default -L team,topology.kubernetes.io/zone
      tenon nodes --filter spot --filter disrupting
      tenon nodes --once --json
    """
    with errors_as_one_line("nodes"):
        from cli.nearest import split  # noqa: PLC0415 (next to its use)
        from cli.nodes import selection  # noqa: PLC0415 (slow to import)

        selected = selection.parse(
            selector=selector,
            pools=split(nodepool),
            filters=split(filters),
            sort=sort,
            label_columns=split(label_columns),
        )
        with source.open_cluster(file, context=context, cluster=cluster, region=region, aws=aws) as observed:
            with progress("Computing what is requested of the nodes"):
                from cli import json_output, terminal  # noqa: PLC0415 (slow to import)
                from cli.nodes import json_nodes, table, watch  # noqa: PLC0415 (the same)

                console = terminal.console()
                rows = watch.read_rows(observed)
            selected.check_pools(
                {p.name for p in observed.snapshot.node_pools} | {n for r in rows.rows for n in (r.pool, r.group) if n}
            )
            shown, columns = selected.of(rows), selected.label_columns
            if as_json:
                output = json_nodes.output(observed, rows, shown, label_columns=columns)
                typer.echo(json_output.text("nodes", output))
            elif once or observed.refresh is None or not console.is_terminal:
                width, pauses = console.width, observed.pauses
                console.print(
                    table.render(rows, shown, name=observed.name, width=width, pauses=pauses, label_columns=columns)
                )
            else:
                watch.watch(console, observed, observed.refresh, selected, interval=interval)
