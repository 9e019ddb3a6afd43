"""``tenon rollback``: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import FAILED, errors_as_one_line
from cli.progress import progress

Version = Annotated[str, typer.Argument(metavar="VERSION", help="The version to go back to, such as 1.36.")]


@examples("tenon rollback 1.36", "tenon rollback 1.36 --json")
def rollback(
    version: Version,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Check whether the control plane may go back to an older minor version, and say what to do next.

    No node may be newer than the control plane. Nodes that are newer are listed, each with what it waits for.

    Exits with 1 until no node is newer. Nothing is written.
    """
    with errors_as_one_line("rollback"):
        with progress("Reading nodes"):
            from cli.rollback import run

            outcome = run.check(ClusterReference(context=context, cluster=cluster, region=region), version)
        run.show(outcome, as_json=as_json)
        if not outcome.ready:
            raise typer.Exit(FAILED)
