"""``tenon shadow``: reports of shadow mode."""

from __future__ import annotations

from datetime import date
from pathlib import Path  # noqa: TC003 (typer reads the annotations when it runs)
from typing import Annotated

import typer

from cli.cluster import source  # noqa: TC001 (the same)
from cli.command_help import Command, Group
from cli.errors import UsageError, errors_as_one_line
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

    For example:

      tenon shadow report --cluster prod --region eu-central-1
      tenon shadow report --days 14 --html shadow.html
    """
    with errors_as_one_line("shadow report"):
        with progress("Reading the record of shadow mode"):
            from cli import json_output  # noqa: PLC0415 (slow to import, and --help doesn't need it)
            from cli.cluster import live_reader  # noqa: PLC0415 (the same)
            from cli.cluster.cluster_reference import ClusterReference, resolve  # noqa: PLC0415 (next to its use)
            from cli.shadow import days as shadow_days  # noqa: PLC0415 (the same)
            from cli.shadow import json_report, output, page  # noqa: PLC0415 (slow to import)
            from cli.terminal import console  # noqa: PLC0415 (the same)
            from shared.base import runtime  # noqa: PLC0415 (the same)

            if day:
                _check(day)
            reference = resolve(ClusterReference(context=context, cluster=cluster, region=region))
            if not reference.cluster:
                raise UsageError(live_reader.NO_CLUSTER_NAME)
            with live_reader.read_only_aws(reference):
                read = shadow_days.read(reference.cluster, now=runtime.current().now(), days=days, day=day)
            if html is not None:
                page.save(read, html)
        if as_json:
            typer.echo(json_output.text("shadow report", json_report.output(read)))
        else:
            output.show(console(), read)


def _check(day: str) -> None:
    try:
        date.fromisoformat(day)
    except ValueError as error:
        raise UsageError(f"--day {day}: must be a day such as 2026-03-31") from error
