"""What is applied to the cluster by the stack itself: kinds, RBAC and the relay, by kubectl in a Lambda of the CDK's.

That Lambda is the cluster's administrator, because only who has a right can give it away; whoever doesn't want that
says ``-c clusterSide=printed`` and applies what ``tenon manifests`` prints, which is the same. Deleting the stack takes
the relay and the rights away but never the kinds: with those would go every pool, claim and node of the cluster.
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
    from pathlib import Path

    from infra.cluster_access import ClusterAccess
    from infra.stack_options import Options

_IMAGE = ("relay", "shared")
"""What the relay's Dockerfile takes from the checkout."""
_ARCHITECTURE = "arm64"
"""Of the image that is built here, and so of the nodes that the relay can run on; a named one may have several."""


class ClusterSide(Construct):
    """The manifests as custom resources, the ``provider`` that applies them, and its function's logical id."""

    def __init__(self, scope: Construct, id_: str, *, options: Options, access: ClusterAccess, checkout: Path) -> None:
        super().__init__(scope, id_)
        # Unpacking kubectl takes seconds: only for those who apply by it.
        from aws_cdk.lambda_layer_kubectl_v34 import KubectlV34Layer  # noqa: PLC0415

        named = eks.Cluster.from_cluster_attributes(self, "Cluster", cluster_name=options.cluster, prune=False)
        self.provider = eks.KubectlProvider(
            self, "Kubectl", cluster=named, kubectl_layer=KubectlV34Layer(self, "KubectlLayer")
        )
        assert isinstance(self.provider.role, iam.Role)
        administrator = eks.AccessEntry(
            self,
            "KubectlEntry",
            cluster=named,
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
        reached = eks.Cluster.from_cluster_attributes(
            self, "Reached", cluster_name=options.cluster, kubectl_provider=self.provider, prune=False
        )
        stack = Stack.of(self)
        relay = cluster_manifests.relay(
            cluster=options.cluster,
            bus=cluster_manifests.bus_name(options.cluster),
            region=stack.region,
            image=options.relay_image or _image(self, checkout),
            architecture="" if options.relay_image else _ARCHITECTURE,
        )
        before: list[Construct] = [administrator, access]
        for name, objects, policy in (
            ("Kinds", cluster_manifests.kinds() if options.kinds else [], RemovalPolicy.RETAIN),
            ("Access", cluster_manifests.access(), RemovalPolicy.DESTROY),
            ("Relay", relay, RemovalPolicy.DESTROY),
        ):
            if not objects:
                continue
            applied = eks.KubernetesManifest(
                self, name, cluster=reached, manifest=objects, overwrite=True, removal_policy=policy
            )
            applied.node.add_dependency(*before)
            before = [applied]


def _image(scope: Construct, checkout: Path) -> str:
    wanted = [f"!{path}" for path in _IMAGE]
    image = DockerImageAsset(
        scope,
        "Image",
        directory=str(checkout),
        file="relay/Dockerfile",
        exclude=["*", *wanted, "**/__pycache__"],
        platform=Platform.LINUX_ARM64,
    )
    return image.image_uri
