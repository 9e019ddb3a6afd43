"""The AWS clients that launching needs. Each is created when it is first called for: creating one takes long.

:mod:`shared.base.aws` has them. What needs only one of them takes the client itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_eks import EKSClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_ssm import SSMClient


class NodeClassClients(Protocol):
    """What node classes are looked up with."""

    def ec2(self) -> EC2Client:
        """EC2, for descriptions, launch templates and tags."""
        ...

    def ssm(self) -> SSMClient:
        """Systems Manager, for public parameters."""
        ...

    def iam(self) -> IAMClient:
        """IAM, for instance profiles."""
        ...


class LaunchClients(NodeClassClients, Protocol):
    """What instances are launched with."""

    def ec2_without_retries(self) -> EC2Client:
        """EC2 without retries, for CreateFleet."""
        ...

    def dynamodb(self) -> DynamoDBClient:
        """DynamoDB, for what launches have shown."""
        ...

    def eks(self) -> EKSClient:
        """EKS, for the cluster's endpoint."""
        ...
