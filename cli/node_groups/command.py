"""``tenon node-groups``: its options."""

from __future__ import annotations

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import errors_as_one_line
from cli.progress import progress


@examples("tenon node-groups", "tenon node-groups --cluster prod --json")
def node_groups(
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Show the cluster's node groups: their sizes, the node that each would add, and what can't be used.

    These are the Auto Scaling groups with Cluster Autoscaler's tags, and managed node groups. It only reads; a
    deployment with -c nodeGroups=on scales them.
    """
    with errors_as_one_line("node-groups"):
        with progress("Reading the cluster and its node groups"):
            from cli.node_groups import run

            name, described = run.read(ClusterReference(context=context, cluster=cluster, region=region))
        run.show(name, described, as_json=as_json)
