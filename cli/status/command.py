"""``tenon status``: its options."""

from __future__ import annotations

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import FAILED, errors_as_one_line
from cli.progress import progress


@examples("tenon status", "tenon status --cluster prod --region eu-central-1 --json")
def status(
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Show the health of Tenon itself: functions, queues, rules, alarms, and conditions of NodePools and classes.

    Exit code 0: healthy; 1: something needs attention. It only reads.
    """
    with errors_as_one_line("status"):
        with progress("Reading the cluster and AWS"):
            from cli.status import run

            read = run.read(ClusterReference(context=context, cluster=cluster, region=region))
        run.show(read, as_json=as_json)
    raise typer.Exit(0 if read.healthy else FAILED)
