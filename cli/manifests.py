"""``tenon manifests``: the objects that Tenon needs in the cluster, as YAML for ``kubectl apply`` or GitOps."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors import UsageError, errors_as_one_line
from infra import cluster_manifests, function_sizes, stack_options


def manifests(
    cluster: Annotated[str, typer.Argument(help="The EKS cluster's name.")],
    region: Annotated[str, typer.Option(help="The cluster's AWS Region.")] = "us-east-1",
    image: Annotated[str, typer.Option(help="The relay's image, built from relay/Dockerfile.")] = "",
    role_arn: Annotated[
        str, typer.Option(help="The relay's role if it gets it by IRSA: the stack's output RelayRoleArn.")
    ] = "",
    tolerations: Annotated[
        str, typer.Option(help="Taints that the relay tolerates, KEY[=VALUE][:EFFECT] separated by commas; * for all.")
    ] = "",
    *,
    buffers: Annotated[
        bool,
        typer.Option("--buffers", help="With RBAC of the function for -c bufferQueues, bufferAlarms, bufferEvents."),
    ] = False,
) -> None:
    """Print the objects for the cluster: CustomResourceDefinitions, RBAC and, with --image, the relay.

    For example:

      tenon manifests prod --region eu-central-1 --image REGISTRY/tenon-relay:0.1.0 | kubectl apply -f -
    """
    with errors_as_one_line("manifests"):
        tolerated = _tolerations(tolerations)
    functions = function_sizes.ALL if buffers else function_sizes.FUNCTIONS
    objects = [*cluster_manifests.kinds(), *cluster_manifests.access(functions)]
    if image:
        objects += cluster_manifests.relay(
            cluster=cluster,
            bus=cluster_manifests.bus_name(cluster),
            region=region,
            image=image,
            role_arn=role_arn,
            tolerations=tolerated,
        )
    typer.echo(cluster_manifests.to_yaml(objects))


def _tolerations(text: str) -> tuple[dict[str, str], ...]:
    """The tolerations of the option.

    Raises:
        UsageError: they can't be parsed.
    """
    try:
        return stack_options.tolerations([part for part in text.split(",") if part], option="--tolerations")
    except stack_options.OptionError as error:
        raise UsageError(str(error)) from error
