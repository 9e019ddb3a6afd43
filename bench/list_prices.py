"""AWS's list prices in us-east-1 that a month of Tenon is reckoned with, and where each is said. No free tiers."""

from __future__ import annotations

from dataclasses import dataclass

REGION = "us-east-1"
AS_OF = "as of 2025"


@dataclass(frozen=True)
class Price:
    """USD for one unit, and the page that says so."""

    usd: float
    unit: str
    page: str


_LAMBDA = "aws.amazon.com/lambda/pricing"
_SQS = "aws.amazon.com/sqs/pricing"
_CLOUDWATCH = "aws.amazon.com/cloudwatch/pricing"
_DYNAMODB = "aws.amazon.com/dynamodb/pricing/on-demand"
_S3 = "aws.amazon.com/s3/pricing"
_FARGATE = "aws.amazon.com/fargate/pricing"
_EC2 = "aws.amazon.com/ec2/pricing/on-demand"

GB_SECOND = Price(0.0000133334, "GB-second, arm64", _LAMBDA)
INVOCATION = Price(0.20e-6, "invocation", _LAMBDA)
STANDARD_REQUEST = Price(0.40e-6, "request, standard queue", _SQS)
FIFO_REQUEST = Price(0.50e-6, "request, FIFO queue", _SQS)
EVENT = Price(1.00e-6, "event", "aws.amazon.com/eventbridge/pricing")
TABLE_WRITE = Price(0.625e-6, "write request unit", _DYNAMODB)
TABLE_READ = Price(0.125e-6, "read request unit", _DYNAMODB)
OBJECT_PUT = Price(0.005e-3, "PUT request", _S3)
OBJECT_GET = Price(0.0004e-3, "GET request", _S3)
LOG_GB = Price(0.50, "GB of logs taken in", _CLOUDWATCH)
LOG_GB_MONTH = Price(0.03, "GB of logs kept for a month", _CLOUDWATCH)
METRIC = Price(0.30, "metric for a month, by the hour", _CLOUDWATCH)
ALARM = Price(0.10, "metric that an alarm looks at, for a month", _CLOUDWATCH)
DASHBOARD = Price(3.00, "dashboard for a month", _CLOUDWATCH)
FARGATE_VCPU = Price(0.04048, "vCPU-hour, Fargate", _FARGATE)
FARGATE_GB = Price(0.004445, "GB-hour, Fargate", _FARGATE)
NODE_HOUR = Price(0.0725, "hour of a c7g.large (2 vCPU, 4 GiB), on-demand", _EC2)
NODE_VCPUS, NODE_GIB = 2.0, 4.0

ALL = tuple(value for value in globals().values() if isinstance(value, Price))
