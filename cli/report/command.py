"""``tenon report``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import errors_as_one_line
from cli.progress import progress


@examples(
    "tenon demo --record run.json && tenon report run.json -o run.html",
    "tenon report --days 2 -o cluster.html",
    "tenon report --cost-label team",
)
def report(
    recording: Annotated[
        Path | None,
        typer.Argument(metavar="RECORDING", help="A file of `tenon demo --record`; default: the live cluster."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    days: Annotated[
        float, typer.Option(metavar="NUMBER", min=0.01, max=90, help="Days of the decision log to show.")
    ] = 7.0,
    cost_label: Annotated[
        str,
        typer.Option(metavar="KEY", help="Split the cost of namespaces by this label of pods, too; of a live cluster."),
    ] = "",
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Write one HTML page: nodes over time, cost with its lower bound, pending pods, and decisions with reasons.

    Prints what namespaces cost now, of a live cluster. The page makes no network requests. The cluster is only read.
    """
    with errors_as_one_line("report"):
        with progress(source.reading(None)):
            from cli.report.run import run

        reference = ClusterReference(context=context, cluster=cluster, region=region)
        run(recording, reference, output=output, days=days, cost_label=cost_label, as_json=as_json)
