"""``tenon upgrade-check``: its options."""

from __future__ import annotations

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import FAILED, errors_as_one_line
from cli.progress import progress


@examples("tenon upgrade-check", "tenon upgrade-check --cluster prod --json")
def upgrade_check(
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Compare the deployed Tenon with this one: versions, CustomResourceDefinitions, and rights in the cluster.

    It says what deploying this version changes, and what to do for it. Exits with 1 if this version must not be
    deployed as it is. Nothing is written.
    """
    with errors_as_one_line("upgrade-check"):
        with progress("Reading the deployment"):
            from cli.upgrade import run

            outcome = run.check(ClusterReference(context=context, cluster=cluster, region=region))
        run.show(outcome, as_json=as_json)
        if outcome.obstacles:
            raise typer.Exit(FAILED)
