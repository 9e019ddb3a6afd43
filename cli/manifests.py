"""``tenon manifests``: the cluster side as YAML, for ``kubectl apply`` or GitOps."""

from __future__ import annotations

from typing import Annotated

import typer

from infra import cluster_manifests as made


def manifests(
    cluster: Annotated[str, typer.Argument(help="The EKS cluster's name.")],
    region: Annotated[str, typer.Option(help="The cluster's AWS Region.")] = "us-east-1",
    image: Annotated[str, typer.Option(help="The relay's image, built from relay/Dockerfile.")] = "",
) -> None:
    """Print what belongs into the cluster: CustomResourceDefinitions, RBAC and, with --image, the relay.

    For example:

      tenon manifests prod --region eu-central-1 --image REGISTRY/tenon-relay:0.1.0 | kubectl apply -f -
    """
    objects = [*made.kinds(), *made.access()]
    if image:
        objects += made.relay(cluster=cluster, bus=made.bus_name(cluster), region=region, image=image)
    typer.echo(made.to_yaml(objects))
