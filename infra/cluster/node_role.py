"""The IAM role of nodes, and the instance profile for it.

A cluster that already has a node role (of node groups, or of Karpenter) keeps it with ``-c nodeRole=NAME``; then only
the profile is created. Both stay when the stack is deleted, because running nodes need them: without the role they
can't pull images, and without its access entry the cluster rejects them.
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

POLICIES = (
    # AWS requires these for EKS nodes: https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    # Shell access without SSH keys or open ports.
    "AmazonSSMManagedInstanceCore",
)


class NodeRole(Construct):
    """``role``, its instance ``profile``, and whether the role was ``created`` by this stack."""

    def __init__(self, scope: Construct, id_: str, *, existing_role: str = "") -> None:
        super().__init__(scope, id_)
        self.created = not existing_role
        self.role: iam.IRole
        if existing_role:
            self.role = iam.Role.from_role_name(self, "Role", existing_role)
        else:
            self.role = iam.Role(
                self,
                "Role",
                assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
                description="Nodes launched by Tenon",
                managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in POLICIES],
            )
            self.role.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        self.profile = iam.CfnInstanceProfile(self, "Profile", roles=[self.role.role_name])
        self.profile.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
