"""``tenon manifests``: the objects that Tenon needs in the cluster, as YAML for ``kubectl apply`` or GitOps."""

from __future__ import annotations

from typing import Annotated

import typer

from infra import cluster_manifests


def manifests(
    cluster: Annotated[str, typer.Argument(help="The EKS cluster's name.")],
    region: Annotated[str, typer.Option(help="The cluster's AWS Region.")] = "us-east-1",
    image: Annotated[str, typer.Option(help="The relay's image, built from relay/Dockerfile.")] = "",
) -> None:
    """Print the objects for the cluster: CustomResourceDefinitions, RBAC and, with --image, the relay.

    For example:

      tenon manifests prod --region eu-central-1 --image REGISTRY/tenon-relay:0.1.0 | kubectl apply -f -
    """
    objects = [*cluster_manifests.kinds(), *cluster_manifests.access()]
    if image:
        objects += cluster_manifests.relay(
            cluster=cluster, bus=cluster_manifests.bus_name(cluster), region=region, image=image
        )
    typer.echo(cluster_manifests.to_yaml(objects))
