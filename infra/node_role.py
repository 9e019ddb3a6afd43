"""What nodes are on AWS: the role that their kubelets use, and the instance profile that gives it to them.

A cluster that has a node role already (from node groups, or from Karpenter) keeps it by ``-c nodeRole=NAME``; then only
the profile is made here. What running nodes live by stays when the stack is deleted: without their role they could pull
no image, and without its access entry the cluster would not know them.
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

POLICIES = (
    # What AWS asks of every EKS node: https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    # A shell on a node without SSH keys or open ports.
    "AmazonSSMManagedInstanceCore",
)


class Nodes(Construct):
    """``role`` (its ARN and name), ``profile`` (its name), and whether the role was ``made`` here."""

    def __init__(self, scope: Construct, id_: str, *, existing_role: str = "") -> None:
        super().__init__(scope, id_)
        self.made = not existing_role
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
            self.role.apply_removal_policy(RemovalPolicy.RETAIN)
        self.profile = iam.CfnInstanceProfile(self, "Profile", roles=[self.role.role_name])
        self.profile.apply_removal_policy(RemovalPolicy.RETAIN)
