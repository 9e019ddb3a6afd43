"""``tenon nodes``: a table of the nodes, updated until Ctrl-C."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.cluster import source
from cli.errors import UsageError, errors_as_one_line
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.nodes.rows import NodeRows, Row

SORTS = ("name", "pool", "type", "zone", "price", "age", "cpu", "memory", "pods", "state")


def _complete_sort(incomplete: str) -> list[str]:
    return [s for s in (*SORTS, *(f"-{s}" for s in SORTS)) if s.startswith(incomplete)]


def nodes(
    file: source.File = None,
    selector: Annotated[
        str, typer.Option("--selector", "-l", metavar="LABELS", help="Label selector, as in kubectl.")
    ] = "",
    sort: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help=f"Sort by {', '.join(SORTS)}; a leading - reverses the order.",
            autocompletion=_complete_sort,
        ),
    ] = "name",
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.5, help="Time between updates.")] = 2.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Show the nodes with requested resources, price and state, updated until Ctrl-C.

    NodeClaims without a node are shown too, and nodes that node groups are about to add.

    With --file, or if the output is not a terminal, the table is printed once.

    For example:

      tenon nodes
      tenon nodes --sort -cpu -l karpenter.sh/nodepool=default
      tenon nodes --once --json
    """
    with errors_as_one_line("nodes"):
        select = _selection(selector, sort)
        with source.open_cluster(file, context=context, cluster=cluster, region=region, aws=aws) as observed:
            with progress("Computing what is requested of the nodes"):
                from cli import terminal  # noqa: PLC0415 (slow to import)
                from cli.nodes import table, watch  # noqa: PLC0415 (the same)

                console = terminal.console()
                rows = watch.read_rows(observed)
            if as_json:
                typer.echo(json.dumps(_as_json(observed, rows, select(rows))))
            elif once or observed.refresh is None or not console.is_terminal:
                console.print(
                    table.render(rows, select(rows), name=observed.name, width=console.width, pauses=observed.pauses)
                )
            else:
                watch.watch(console, observed, observed.refresh, select, interval=interval)


def _selection(selector: str, sort: str) -> Callable[[NodeRows], list[Row]]:
    """Returns the rows that match the label selector, sorted."""
    from local.kubernetes.errors import ApiError  # noqa: PLC0415 (slow to import)
    from local.kubernetes.selectors import matches, parse_labels  # noqa: PLC0415 (the same)

    column = sort.removeprefix("-")
    if column not in SORTS:
        raise UsageError(f'--sort "{sort}" is none of {", ".join(SORTS)}')
    try:
        label_selector = parse_labels(selector)
    except ApiError as error:
        raise UsageError(f'--selector "{selector}" is not a label selector: {error.message}') from error

    def select(rows: NodeRows) -> list[Row]:
        from cli.nodes.rows import SORT_KEYS  # noqa: PLC0415 (slow to import)

        matching = [r for r in rows.rows if matches(label_selector, r.labels)]
        return sorted(matching, key=SORT_KEYS[column], reverse=sort.startswith("-"))

    return select


def _as_json(observed: ObservedCluster, rows: NodeRows, selected: Sequence[Row]) -> dict[str, Any]:
    """The rows as JSON values; cpu and memory are requested shares, prices USD per hour."""
    from shared.api.quantity import CPU, MEMORY, format_resources  # noqa: PLC0415 (slow to import)

    return {
        "cluster": observed.name,
        "at": rows.now.isoformat(),
        "pauses": list(observed.pauses),
        "costPerHour": round(rows.cost, 6),
        "pods": {"running": rows.running, "pending": rows.pending},
        "nodes": [
            {
                "name": r.name,
                "nodePool": r.pool,
                "nodeGroup": r.group,
                "instanceType": r.instance_type,
                "zone": r.zone,
                "capacityType": r.capacity_type,
                "price": r.price,
                "created": r.created.isoformat() if r.created else None,
                "pods": r.pods,
                "chunks": r.chunks,
                "cpu": r.requested_share(CPU),
                "memory": r.requested_share(MEMORY),
                "requested": format_resources(r.requested),
                "allocatable": format_resources(r.allocatable),
                "state": r.state,
                "why": r.why,
            }
            for r in selected
        ],
    }
