"""EKS access entries of functions and nodes, and the role of the relay as a pod, by EKS Pod Identity or IRSA.

An access entry only names a Kubernetes group. RBAC (cluster_manifests.py) says what the group may do, so cluster
administrators review and change it with kubectl. Functions that never call the cluster have no entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests
from infra.cluster.permission_scope import of_source
from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_events as events

    from infra.cluster.node_role import NodeRole
    from infra.options.stack_options import StackOptions


class ClusterAccess(Construct):
    """Access entries for the functions and nodes, and the identity of the relay's pods."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        options: StackOptions,
        functions: Mapping[str, iam.Role],
        nodes: NodeRole,
        bus: events.IEventBus,
    ) -> None:
        super().__init__(scope, id_)
        cluster = options.cluster
        for function, role in functions.items():
            if function in function_sizes.WITHOUT_CLUSTER:
                continue
            eks.CfnAccessEntry(
                self,
                f"{function.capitalize()}Entry",
                cluster_name=cluster,
                principal_arn=role.role_arn,
                kubernetes_groups=[cluster_manifests.group(function)],
                type="STANDARD",
            )
        if nodes.created:  # an existing role already has an access entry, and EKS rejects a second one
            entry = eks.CfnAccessEntry(
                self, "NodeEntry", cluster_name=cluster, principal_arn=nodes.role.role_arn, type="EC2_LINUX"
            )
            # Running nodes need it after the stack is deleted.
            entry.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        self.relay = self._relay_role(cluster, bus, options.oidc_provider) if options.relay == "pod" else None
        """The role of the relay as a pod."""

    def _relay_role(self, cluster: str, bus: events.IEventBus, oidc_provider: str) -> iam.Role:
        role = iam.Role(
            self,
            "Relay",
            description="The relay in the cluster: only puts hints on the event bus",
            assumed_by=self._irsa(oidc_provider) if oidc_provider else self._pod_identity(cluster),
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="PutHints",
                actions=["events:PutEvents"],
                resources=[bus.event_bus_arn],
                conditions=of_source(hints.RELAY),
            )
        )
        if not oidc_provider:
            eks.CfnPodIdentityAssociation(
                self,
                "RelayIdentity",
                cluster_name=cluster,
                namespace=cluster_manifests.NAMESPACE,
                service_account=cluster_manifests.RELAY,
                role_arn=role.role_arn,
            )
        return role

    def _pod_identity(self, cluster: str) -> iam.PrincipalBase:
        # The session tags are EKS's: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-abac.html
        return iam.PrincipalWithConditions(
            iam.ServicePrincipal("pods.eks.amazonaws.com"),
            {
                "StringEquals": {
                    "aws:RequestTag/eks-cluster-arn": Stack.of(self).format_arn(
                        service="eks", resource="cluster", resource_name=cluster
                    ),
                    "aws:RequestTag/kubernetes-namespace": cluster_manifests.NAMESPACE,
                    "aws:RequestTag/kubernetes-service-account": cluster_manifests.RELAY,
                }
            },
        ).with_session_tags()

    def _irsa(self, provider: str) -> iam.PrincipalBase:
        # https://docs.aws.amazon.com/eks/latest/userguide/associate-service-account-role.html
        arn = Stack.of(self).format_arn(service="iam", region="", resource="oidc-provider", resource_name=provider)
        subject = f"system:serviceaccount:{cluster_manifests.NAMESPACE}:{cluster_manifests.RELAY}"
        return iam.WebIdentityPrincipal(
            arn, {"StringEquals": {f"{provider}:sub": subject, f"{provider}:aud": cluster_manifests.TOKEN_AUDIENCE}}
        )
