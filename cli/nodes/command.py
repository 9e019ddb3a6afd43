"""``tenon nodes``: reads the cluster every few seconds and draws it, until Ctrl-C."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.cluster import source
from cli.errors import UsageError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cli.cluster.observed_cluster import Facts
    from cli.nodes.rows import Row, Table

SORTS = ("name", "pool", "type", "zone", "price", "age", "cpu", "memory", "pods", "state")


def _complete_sort(incomplete: str) -> list[str]:
    return [s for s in (*SORTS, *(f"-{s}" for s in SORTS)) if s.startswith(incomplete)]


def nodes(
    file: source.File = None,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Only nodes with these labels, as kubectl takes them.")
    ] = "",
    sort: Annotated[
        str,
        typer.Option(
            help=f"By {', '.join(SORTS)}; with - before it the other way round.", autocompletion=_complete_sort
        ),
    ] = "name",
    interval: Annotated[float, typer.Option(min=0.5, help="Seconds between looks.")] = 2.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    once: Annotated[bool, typer.Option("--once", help="Show them once and end.")] = False,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Show the nodes live: how full they are, what they cost, and what becomes of them.

    Claims on their way are shown too. In a pipe or a file, and of files, it shows them once.

    For example:

      tenon nodes

      tenon nodes --sort -cpu -l karpenter.sh/nodepool=default

      tenon nodes --once --json
    """
    with one_line("nodes"):
        order, chosen = _order(sort), _chosen(selector)
        with source.facts(file, context=context, cluster=cluster, region=region, aws=aws) as facts:
            from cli import terminal  # noqa: PLC0415 (slow to import)
            from cli.nodes import table, watch  # noqa: PLC0415 (slow to import)

            console = terminal.console()
            taken = watch.table(facts)
            if as_json:
                typer.echo(json.dumps(answer(facts, taken, order(chosen(taken)))))
                return
            if once or facts.look is None or not console.is_terminal:
                console.print(table.render(taken, order(chosen(taken)), name=facts.name, width=console.width))
                return
            watch.watch(console, facts, facts.look, lambda now: order(chosen(now)), interval=interval)


def _order(sort: str) -> Callable[[Sequence[Row]], list[Row]]:
    name = sort.removeprefix("-")
    if name not in SORTS:
        raise UsageError(f'--sort "{sort}" is none of {", ".join(SORTS)}')

    def ordered(rows: Sequence[Row]) -> list[Row]:
        from cli.nodes.rows import SORTS as KEYS  # noqa: PLC0415 (slow to import)

        return sorted(rows, key=KEYS[name], reverse=sort.startswith("-"))

    return ordered


def _chosen(selector: str) -> Callable[[Table], list[Row]]:
    from local.kubernetes.errors import ApiError  # noqa: PLC0415 (slow to import)
    from local.kubernetes.selectors import matches, parse_labels  # noqa: PLC0415 (the same)

    try:
        wanted = parse_labels(selector)
    except ApiError as error:
        raise UsageError(f'--selector "{selector}" is no selector: {error.message}') from error
    return lambda taken: [r for r in taken.rows if matches(wanted, r.labels)]


def answer(facts: Facts, taken: Table, shown: Sequence[Row]) -> dict[str, Any]:
    """The rows as plain JSON values; fills are shares, prices USD per hour."""
    from shared.api.quantity import CPU, MEMORY, format_resources  # noqa: PLC0415 (slow to import)

    return {
        "cluster": facts.name,
        "at": taken.now.isoformat(),
        "costPerHour": round(taken.cost, 6),
        "pods": {"running": taken.running, "pending": taken.pending},
        "nodes": [
            {
                "name": r.name,
                "nodePool": r.pool,
                "instanceType": r.instance_type,
                "zone": r.zone,
                "capacityType": r.capacity_type,
                "price": r.price,
                "created": r.since.isoformat() if r.since else None,
                "pods": r.pods,
                "cpu": r.fill(CPU),
                "memory": r.fill(MEMORY),
                "requested": format_resources(r.used),
                "allocatable": format_resources(r.size),
                "state": r.state,
                "why": r.why,
            }
            for r in shown
        ],
    }
