"""Applies Tenon's objects to the cluster during a deployment: CustomResourceDefinitions, RBAC and the relay.

The CDK's kubectl function applies them. It is a cluster administrator, because RBAC only lets a user grant rights that
it has. With ``-c clusterSide=printed`` the stack leaves it out, and users apply the output of ``tenon manifests``,
which is the same. Before the CustomResourceDefinitions are applied, a function of its own checks that no other product
owns those that are there (kinds_check.py). Deleting the stack deletes the relay and RBAC but keeps the definitions,
because deleting them would delete all NodePools, NodeClaims and nodes.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from aws_cdk import CfnElement, CustomResource, RemovalPolicy, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_ecr_assets import DockerImageAsset, Platform
from constructs import Construct, IConstruct

from infra.cluster import permissions
from infra.cluster.functions import into_vpc
from infra.cluster.kubernetes import cluster_manifests, deployment_access
from infra.cluster.kubernetes.deployment_function import DeploymentFunction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from infra.cluster.kubernetes.cluster_access import ClusterAccess
    from infra.options.stack_options import Architecture, StackOptions

_IMAGE = ("relay", "shared")
"""The files that the relay's Dockerfile copies."""
_CHECK_ACCESS = "OwnerCheckAccess"
_WEBHOOK_ACCESS = "WebhookAccess"


class KubectlApply(Construct):
    """The objects as custom resources, the ``provider`` that applies them, and logical ids of its resources."""

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
        condition = handler.node.find_child("HasEcrPublic")
        assert isinstance(condition, CfnElement)
        self.public_registry_id = Stack.of(self).get_logical_id(condition)
        if options.subnets:
            into_vpc(handler, options)
            self.provider.role.add_to_policy(permissions.join_network())
        kubectl_cluster = eks.Cluster.from_cluster_attributes(
            self, "Reached", cluster_name=options.cluster, kubectl_provider=self.provider, prune=False
        )
        definitions = cluster_manifests.kinds(capacity_buffers=options.capacity_buffers) if options.kinds else []
        self.kinds_check: KindsCheck | None = None
        self.webhook_access: eks.KubernetesManifest | None = None
        """RBAC of the function that applies the webhook's configuration."""
        dependencies: list[IConstruct] = [administrator, access]
        for name, objects, policy in (
            (
                _CHECK_ACCESS,
                deployment_access.kinds_check() if options.kinds else [],
                RemovalPolicy.DESTROY,
            ),
            ("Kinds", definitions, RemovalPolicy.RETAIN),
            (
                "Access",
                cluster_manifests.access_of(options),
                RemovalPolicy.DESTROY,
            ),
            ("Relay", self._relay(options, access, checkout), RemovalPolicy.DESTROY),
            (
                _WEBHOOK_ACCESS,
                deployment_access.webhook() if options.relay == "webhook" else [],
                RemovalPolicy.DESTROY,
            ),
        ):
            if not objects:
                continue
            manifest = eks.KubernetesManifest(
                self, name, cluster=kubectl_cluster, manifest=objects, overwrite=True, removal_policy=policy
            )
            manifest.node.add_dependency(*dependencies)
            dependencies = [manifest]
            if name == _CHECK_ACCESS:
                self.kinds_check = KindsCheck(self, "OwnerCheck", options=options, checkout=checkout)
                self.kinds_check.result.node.add_dependency(manifest)
                dependencies = [self.kinds_check.result]
            if name == _WEBHOOK_ACCESS:
                self.webhook_access = manifest

    def _relay(self, options: StackOptions, access: ClusterAccess, checkout: Path) -> list[cluster_manifests.Obj]:
        """The relay where it runs in the cluster."""
        if access.relay is None:
            return []
        return cluster_manifests.relay(
            cluster=options.cluster,
            bus=cluster_manifests.bus_name(options.cluster),
            region=Stack.of(self).region,
            image=options.relay_image or _image(self, checkout, options.relay_architectures),
            architecture=options.relay_architectures[0] if len(options.relay_architectures) == 1 else "",
            role_arn=access.relay.role_arn if options.oidc_provider else "",
            tolerations=options.relay_tolerations,
        )


class KindsCheck(DeploymentFunction):
    """The function that checks who owns the cluster's definitions, and its ``result`` as a custom resource.

    The resource's id follows from the definitions, so that new ones are checked by a new resource: a refused deployment
    is rolled back by deleting it, and not by a check that fails once more.
    """

    def __init__(self, scope: Construct, id_: str, *, options: StackOptions, checkout: Path) -> None:
        super().__init__(
            scope,
            id_,
            module="kinds_check",
            purpose=f"who owns the CustomResourceDefinitions of EKS cluster {options.cluster}",
            group=cluster_manifests.group(deployment_access.KINDS_CHECK),
            options=options,
            checkout=checkout,
        )
        definitions = cluster_manifests.kinds(capacity_buffers=options.capacity_buffers)
        digest = hashlib.sha256(json.dumps(definitions, sort_keys=True).encode()).hexdigest()[:12]
        self.result = CustomResource(
            self,
            f"Definitions{digest}",
            resource_type="Custom::TenonKindsCheck",
            service_token=self.function.function_arn,
            properties={"Names": [definition["metadata"]["name"] for definition in definitions]},
        )
        self.result.node.add_dependency(self.entry)


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
