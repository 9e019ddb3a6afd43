"""``tenon pause`` and ``tenon resume``: their options."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import UsageError, errors_as_one_line
from cli.progress import progress

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The EKS cluster's name, as --cluster; default: from the context.")
]
For = Annotated[
    str, typer.Option("--for", metavar="TIME", help="How long, such as 30m or 2h; default: until `tenon resume`.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is shown with the pause.")]


@examples('tenon pause prod --for 2h --reason "incident 4711"')
def pause(
    name: Name = "",
    for_: For = "",
    reason: Reason = "",
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Pause the cluster: nothing is launched, disrupted or terminated, unless an interruption forces it.

    Drains that have begun continue, and nodes that you delete go. Pausing again changes the end and the reason.
    """
    with errors_as_one_line("pause"):
        with progress("Pausing"):
            from cli.pause import run

            outcome = run.pause(_reference(name, context=context, cluster=cluster, region=region), for_, reason=reason)
        run.show("pause", outcome, as_json=as_json)


@examples("tenon resume prod")
def resume(
    name: Name = "",
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """End the cluster's pause, and close the circuit breaker of launches; Tenon continues within a minute.

    Pauses of single NodePools (annotation tenon.sh/paused) stay.
    """
    with errors_as_one_line("resume"):
        with progress("Resuming"):
            from cli.pause import run

            outcome = run.resume(_reference(name, context=context, cluster=cluster, region=region))
        run.show("resume", outcome, as_json=as_json)


def _reference(name: str, *, context: str, cluster: str, region: str) -> ClusterReference:
    """The cluster that the options name.

    Raises:
        UsageError: they name two.
    """
    if name and cluster and name != cluster:
        raise UsageError(f'NAME "{name}" and --cluster "{cluster}" differ')
    return ClusterReference(context=context, cluster=name or cluster, region=region)
