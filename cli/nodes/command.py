"""``tenon nodes``: a table of the nodes, updated until ``q`` or Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.cluster import completion, source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import errors_as_one_line
from cli.progress import progress

SORTS = ("name", "pool", "type", "zone", "price", "age", "cpu", "memory", "pods", "state")
FILTERS = ("not-ready", "disrupting", "empty", "drifted", "cordoned", "spot", "on-demand", "reserved")


def _complete_sort(incomplete: str) -> list[str]:
    return [s for s in (*SORTS, *(f"-{s}" for s in SORTS)) if s.startswith(incomplete)]


def _complete_filter(incomplete: str) -> list[str]:
    return [name for name in FILTERS if name.startswith(incomplete)]


Selector = Annotated[str, typer.Option("--selector", "-l", metavar="LABELS", help="Label selector, as in kubectl.")]
NodePools = Annotated[
    list[str] | None,
    typer.Option(
        "--nodepool",
        "-p",
        metavar="NAMES",
        help="Only nodes of these NodePools (or node groups), separated by commas; repeatable.",
        autocompletion=completion.node_pools,
    ),
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="STATE",
        help=f"Only nodes that are {', '.join(FILTERS)}; of several, all must hold; repeatable.",
        autocompletion=_complete_filter,
    ),
]
LabelColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--label-columns",
        "-L",
        metavar="LABELS",
        help="Labels to show as columns, separated by commas, as in kubectl; repeatable.",
    ),
]
Sort = Annotated[
    str,
    typer.Option(
        "--sort-by",
        "--sort",
        metavar="COLUMN",
        help=f"Sort by {', '.join(SORTS)}; a leading - reverses the order.",
        autocompletion=_complete_sort,
    ),
]
Interval = Annotated[float, typer.Option(metavar="SECONDS", min=0.5, help="Time between updates.")]
Once = Annotated[bool, typer.Option("--once", help="Print the table once and exit.")]


@examples(
    "tenon nodes",
    "tenon nodes --sort-by -cpu -p default -L team,topology.kubernetes.io/zone",
    "tenon nodes --filter spot --filter disrupting",
    "tenon nodes --once --json",
)
def nodes(
    file: source.File = None,
    *,
    selector: Selector = "",
    nodepool: NodePools = None,
    filters: Filters = None,
    label_columns: LabelColumns = None,
    sort: Sort = "name",
    interval: Interval = 2.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    once: Once = False,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Show the nodes with requested resources, price and state, updated until q or Ctrl-C.

    NodeClaims without a node are shown too, and nodes that node groups are about to add.

    Arrow keys, j, k, PgUp, PgDn, Home and End scroll; / filters by text.

    With --file, or if the output is not a terminal, the table is printed once.
    """
    with errors_as_one_line("nodes"):
        with progress(source.reading(file)):
            from cli.nearest import split
            from cli.nodes import selection
            from cli.nodes.run import run

        selected = selection.parse(
            selector=selector,
            pools=split(nodepool),
            filters=split(filters),
            sort=sort,
            label_columns=split(label_columns),
        )
        reference = ClusterReference(context=context, cluster=cluster, region=region)
        run(file, reference, selected, interval=None if once else interval, aws=aws, as_json=as_json)
