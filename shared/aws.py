"""Clients for AWS, made once a process and the same everywhere.

Retries are boto3's standard mode with few attempts: a function that is throttled hands its message back to the queue,
where waiting costs nothing, instead of multiplying calls. CreateFleet is never retried here (``shared.launch``
decides).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from shared import host

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_eks import EKSClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

_RETRIES = 3
_CONNECT_SECONDS = 3
_READ_SECONDS = 20


def _config() -> Config:
    return Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _RETRIES},
        user_agent_extra="tenon",
    )


def ec2() -> EC2Client:
    """EC2."""
    return host.current().once("aws:ec2", lambda: boto3.client("ec2", config=_config()))


def hurried() -> EC2Client:
    """EC2 for a look that nobody waits long for: asked once, and given up after two seconds."""
    once = Config(connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 1})
    return host.current().once("aws:hurried", lambda: boto3.client("ec2", config=_config().merge(once)))


def fleet() -> EC2Client:
    """EC2 without any retry: for CreateFleet, the scarce call."""
    once = _config().merge(Config(retries={"mode": "standard", "total_max_attempts": 1}))
    return host.current().once("aws:fleet", lambda: boto3.client("ec2", config=once))


def ssm() -> SSMClient:
    """Systems Manager, for public parameters."""
    return host.current().once("aws:ssm", lambda: boto3.client("ssm", config=_config()))


def iam() -> IAMClient:
    """IAM, for instance profiles."""
    return host.current().once("aws:iam", lambda: boto3.client("iam", config=_config()))


def eks() -> EKSClient:
    """EKS, for the cluster's endpoint."""
    return host.current().once("aws:eks", lambda: boto3.client("eks", config=_config()))


def sqs() -> SQSClient:
    """SQS."""
    return host.current().once("aws:sqs", lambda: boto3.client("sqs", config=_config()))


def events() -> EventBridgeClient:
    """EventBridge."""
    return host.current().once("aws:events", lambda: boto3.client("events", config=_config()))


def dynamodb() -> DynamoDBClient:
    """DynamoDB."""
    return host.current().once("aws:dynamodb", lambda: boto3.client("dynamodb", config=_config()))


def s3() -> S3Client:
    """S3, for the catalog."""
    return host.current().once("aws:s3", lambda: boto3.client("s3", config=_config()))


def pricing() -> PricingClient:
    """The price list, which is served in three Regions only."""
    return host.current().once(
        "aws:pricing", lambda: boto3.client("pricing", region_name="us-east-1", config=_config())
    )
