"""Applies Tenon's objects to the cluster during a deployment: CustomResourceDefinitions, RBAC and the relay.

The CDK's kubectl function applies them. It is a cluster administrator, because RBAC only lets a user grant rights that
it has. With ``-c clusterSide=printed`` the stack leaves it out, and users apply the output of ``tenon manifests``,
which is the same. Deleting the stack deletes the relay and RBAC but keeps the CustomResourceDefinitions, because
deleting them would delete all NodePools, NodeClaims and nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnElement, RemovalPolicy, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_ecr_assets import DockerImageAsset, Platform
from constructs import Construct

from infra import cluster_manifests, permissions
from infra.functions import into_vpc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from infra.cluster_access import ClusterAccess
    from infra.stack_options import Architecture, StackOptions

_IMAGE = ("relay", "shared")
"""The files that the relay's Dockerfile copies."""


class KubectlApply(Construct):
    """The objects as custom resources, the ``provider`` that applies them, and its function's logical id."""

    def __init__(
        self, scope: Construct, id_: str, *, options: StackOptions, access: ClusterAccess, checkout: Path
    ) -> None:
        super().__init__(scope, id_)
        # Imported here, because unpacking kubectl takes seconds.
        from aws_cdk.lambda_layer_kubectl_v34 import KubectlV34Layer  # noqa: PLC0415

        cluster = eks.Cluster.from_cluster_attributes(self, "Cluster", cluster_name=options.cluster, prune=False)
        self.provider = eks.KubectlProvider(
            self, "Kubectl", cluster=cluster, kubectl_layer=KubectlV34Layer(self, "KubectlLayer")
        )
        assert isinstance(self.provider.role, iam.Role)
        administrator = eks.AccessEntry(
            self,
            "KubectlEntry",
            cluster=cluster,
            principal=self.provider.role.role_arn,
            access_policies=[
                eks.AccessPolicy.from_access_policy_name(
                    "AmazonEKSClusterAdminPolicy", access_scope_type=eks.AccessScopeType.CLUSTER
                )
            ],
        )
        handler = self.provider.node.find_child("Handler")
        assert isinstance(handler, lambda_.Function)
        resource = handler.node.default_child
        assert isinstance(resource, CfnElement)
        self.handler_id = Stack.of(self).get_logical_id(resource)
        if options.subnets:
            into_vpc(handler, options)
            self.provider.role.add_to_policy(permissions.join_network())
        kubectl_cluster = eks.Cluster.from_cluster_attributes(
            self, "Reached", cluster_name=options.cluster, kubectl_provider=self.provider, prune=False
        )
        stack = Stack.of(self)
        relay = cluster_manifests.relay(
            cluster=options.cluster,
            bus=cluster_manifests.bus_name(options.cluster),
            region=stack.region,
            image=options.relay_image or _image(self, checkout, options.relay_architectures),
            architecture=options.relay_architectures[0] if len(options.relay_architectures) == 1 else "",
            role_arn=access.relay.role_arn if options.oidc_provider else "",
            tolerations=options.relay_tolerations,
        )
        dependencies: list[Construct] = [administrator, access]
        for name, objects, policy in (
            ("Kinds", cluster_manifests.kinds() if options.kinds else [], RemovalPolicy.RETAIN),
            ("Access", cluster_manifests.access(), RemovalPolicy.DESTROY),
            ("Relay", relay, RemovalPolicy.DESTROY),
        ):
            if not objects:
                continue
            manifest = eks.KubernetesManifest(
                self, name, cluster=kubectl_cluster, manifest=objects, overwrite=True, removal_policy=policy
            )
            manifest.node.add_dependency(*dependencies)
            dependencies = [manifest]


def _image(scope: Construct, checkout: Path, architectures: Sequence[Architecture]) -> str:
    """The URI of an image for these architectures: one manifest list, so that any node pulls its own."""
    included = [f"!{path}" for path in _IMAGE]
    image = DockerImageAsset(
        scope,
        "Image",
        directory=str(checkout),
        file="relay/Dockerfile",
        exclude=["*", *included, "**/__pycache__"],
        platform=Platform.custom(",".join(f"linux/{architecture}" for architecture in architectures)),
    )
    return image.image_uri
