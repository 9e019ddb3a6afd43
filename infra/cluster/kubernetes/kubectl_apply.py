"""Applies Tenon's objects to the cluster during a deployment: CustomResourceDefinitions, RBAC and the relay.

The CDK's kubectl function applies them. It is a cluster administrator, because RBAC only lets a user grant rights that
it has. With ``-c clusterSide=printed`` the stack leaves it out, and users apply the output of ``tenon manifests``,
which is the same. Another function waits until the cluster knows the administrator (administrator_wait.py). Before the
CustomResourceDefinitions are applied, a third checks that no other product owns those that are there (kinds_check.py).
Deleting the stack deletes the relay and RBAC but keeps the definitions, because deleting them would delete all
NodePools, NodeClaims and nodes.
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

from infra import installation
from infra.cluster import permissions
from infra.cluster.functions import into_vpc
from infra.cluster.kubernetes import cluster_manifests, deployment_access, flow_schemas
from infra.cluster.kubernetes.deployment_function import DeploymentFunction, make_function, make_log_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.cluster.kubernetes.cluster_access import ClusterAccess
    from infra.cluster.kubernetes.cluster_manifests import Obj
    from infra.options.stack_options import Architecture, StackOptions

_IMAGE = ("relay", "shared")
"""The files that the relay's Dockerfile copies."""


class KubectlApply(Construct):
    """The objects as custom resources, and the ``provider`` that applies them, each after the previous."""

    def __init__(self, scope: Construct, id_: str, *, options: StackOptions, access: ClusterAccess) -> None:
        super().__init__(scope, id_)
        cluster = eks.Cluster.from_cluster_attributes(self, "Cluster", cluster_name=options.cluster, prune=False)
        self.provider = self._provider(cluster)
        self.wait = AdministratorWait(self, "AdministratorWait", role=self._role, options=options)
        self.wait.result.node.add_dependency(self._administrator(cluster))
        self._after: list[IConstruct] = [self.wait.result, access]
        if options.subnets:
            into_vpc(self._handler, options)
            self._role.add_to_policy(permissions.join_network())
        self._cluster = eks.Cluster.from_cluster_attributes(
            self, "Reached", cluster_name=options.cluster, kubectl_provider=self.provider, prune=False
        )
        self.kinds_check = self._kinds(options) if options.kinds else None
        flows = flow_schemas.of_deployment(options)
        self._apply("Access", [*cluster_manifests.access_of(options), *flows])
        if access.relay is not None:
            self._apply("Relay", self._relay(options, access.relay))
        self.webhook_access: eks.KubernetesManifest | None = None
        """RBAC of the function that applies the webhook's configuration."""
        if options.relay == "webhook":
            self.webhook_access = self._apply("WebhookAccess", deployment_access.webhook())

    @property
    def handler_id(self) -> str:
        """The logical id of the CDK's kubectl function."""
        resource = self._handler.node.default_child
        assert isinstance(resource, CfnElement)
        return Stack.of(self).get_logical_id(resource)

    @property
    def public_registry_id(self) -> str:
        """The logical id of the condition that the partition has a public registry."""
        condition = self._handler.node.find_child("HasEcrPublic")
        assert isinstance(condition, CfnElement)
        return Stack.of(self).get_logical_id(condition)

    @property
    def _handler(self) -> lambda_.Function:
        handler = self.provider.node.find_child("Handler")
        assert isinstance(handler, lambda_.Function)
        return handler

    @property
    def _role(self) -> iam.Role:
        assert isinstance(self.provider.role, iam.Role)
        return self.provider.role

    def _provider(self, cluster: eks.ICluster) -> eks.KubectlProvider:
        # Imported here, because unpacking kubectl takes seconds.
        from aws_cdk.lambda_layer_kubectl_v34 import KubectlV34Layer  # noqa: PLC0415

        layer = KubectlV34Layer(self, "KubectlLayer")
        return eks.KubectlProvider(self, "Kubectl", cluster=cluster, kubectl_layer=layer)

    def _administrator(self, cluster: eks.ICluster) -> eks.AccessEntry:
        policy = eks.AccessPolicy.from_access_policy_name(
            "AmazonEKSClusterAdminPolicy", access_scope_type=eks.AccessScopeType.CLUSTER
        )
        return eks.AccessEntry(
            self, "KubectlEntry", cluster=cluster, principal=self._role.role_arn, access_policies=[policy]
        )

    def _apply(
        self, id_: str, objects: list[Obj], *, policy: RemovalPolicy = RemovalPolicy.DESTROY
    ) -> eks.KubernetesManifest:
        manifest = eks.KubernetesManifest(
            self, id_, cluster=self._cluster, manifest=objects, overwrite=True, removal_policy=policy
        )
        manifest.node.add_dependency(*self._after)
        self._after = [manifest]
        return manifest

    def _kinds(self, options: StackOptions) -> KindsCheck:
        """The CustomResourceDefinitions, once it is checked who owns those that are there."""
        check_access = self._apply("OwnerCheckAccess", deployment_access.kinds_check())
        check = KindsCheck(self, "OwnerCheck", options=options)
        check.result.node.add_dependency(check_access)
        self._after = [check.result]
        definitions = cluster_manifests.kinds(capacity_buffers=options.capacity_buffers)
        self._apply("Kinds", definitions, policy=RemovalPolicy.RETAIN)
        return check

    def _relay(self, options: StackOptions, role: iam.Role) -> list[Obj]:
        """The relay as a pod."""
        return cluster_manifests.relay(
            cluster=options.cluster,
            region=Stack.of(self).region,
            image=options.relay_image or _image(self, options.relay_architectures),
            architecture=options.relay_architectures[0] if len(options.relay_architectures) == 1 else "",
            role_arn=role.role_arn if options.oidc_provider else "",
            tolerations=options.relay_tolerations,
        )


class AdministratorWait(Construct):
    """The function that waits until the cluster knows the kubectl function's ``role``, and its ``result``."""

    def __init__(self, scope: Construct, id_: str, *, role: iam.Role, options: StackOptions) -> None:
        super().__init__(scope, id_)
        function = make_function(
            self,
            module="administrator_wait",
            purpose=f"waits until EKS cluster {options.cluster} knows the deployment's role",
            role=role,
            log_group=make_log_group(self),
            options=options,
        )
        self.result = CustomResource(
            self, "Access", resource_type="Custom::TenonAdministratorWait", service_token=function.function_arn
        )


class KindsCheck(DeploymentFunction):
    """The function that checks who owns the cluster's definitions, and its ``result`` as a custom resource.

    The resource's id follows from the definitions, so that new ones are checked by a new resource: a refused deployment
    is rolled back by deleting it, and not by a check that fails once more.
    """

    def __init__(self, scope: Construct, id_: str, *, options: StackOptions) -> None:
        super().__init__(
            scope,
            id_,
            module="kinds_check",
            purpose=f"who owns the CustomResourceDefinitions of EKS cluster {options.cluster}",
            group=cluster_manifests.group(deployment_access.KINDS_CHECK),
            options=options,
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


def _image(scope: Construct, architectures: Sequence[Architecture]) -> str:
    """The URI of an image for these architectures: one manifest list, so that any node pulls its own."""
    included = [f"!{path}" for path in _IMAGE]
    image = DockerImageAsset(
        scope,
        "Image",
        directory=str(installation.ROOT),
        file="relay/Dockerfile",
        exclude=["*", *included, "**/__pycache__"],
        platform=Platform.custom(",".join(f"linux/{architecture}" for architecture in architectures)),
    )
    return image.image_uri
