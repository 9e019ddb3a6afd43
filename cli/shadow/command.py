"""``tenon shadow``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import Command, Group, examples
from cli.errors import errors_as_one_line
from cli.kubectl_plugin import with_kubeconfig
from cli.progress import progress

shadow = typer.Typer(
    name="shadow",
    cls=Group,
    help="What Tenon would have done and cost next to the autoscaler that runs (-c mode=shadow).",
    no_args_is_help=True,
)


@shadow.callback()
def _group() -> None:
    """What Tenon would have done and cost next to the autoscaler that runs (-c mode=shadow)."""


@shadow.command(cls=Command)
@with_kubeconfig
@examples(
    "tenon shadow report --cluster prod --region eu-central-1", "tenon shadow report --days 14 --html shadow.html"
)
def report(
    day: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="Only this day (UTC).")] = "",
    days: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=90, help="The last days (UTC), today among them.")
    ] = 2,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one HTML page to this file, too.")] = None,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Compare what ran with what Tenon would have run: dollars, instance-hours, launches, moved pods.

    It only reads.
    """
    with errors_as_one_line("shadow report"):
        with progress("Reading the record of shadow mode"):
            from cli.shadow import page, run

            reference = ClusterReference(context=context, cluster=cluster, region=region)
            read = run.read(reference, days=days, day=day)
            if html is not None:
                page.save(read, html)
        run.show(read, as_json=as_json)
