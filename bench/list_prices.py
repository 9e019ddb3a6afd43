"""AWS's list prices in us-east-1 that the cost model uses, and their sources. Free tiers are not counted.

Most of AWS's pricing pages fill their tables in the browser, so their text has no figures. Besides AWS's own page, each
price names a public page with the figure, or none if no page has it.
"""

from __future__ import annotations

from shared.base.struct import Struct

REGION = "us-east-1"
AS_OF = "from public pages of 2025 and 2026"


class Price(Struct):
    """USD for one unit, AWS's page, and the page with the figure ("" if there is none)."""

    usd: float
    unit: str
    page: str
    seen: str = ""


_LAMBDA = "aws.amazon.com/lambda/pricing"
_SQS = "aws.amazon.com/sqs/pricing"
_CLOUDWATCH = "aws.amazon.com/cloudwatch/pricing"
_DYNAMODB = "aws.amazon.com/dynamodb/pricing/on-demand"
_S3 = "aws.amazon.com/s3/pricing"
_FARGATE = "aws.amazon.com/fargate/pricing"
_EC2 = "aws.amazon.com/ec2/pricing/on-demand"

_OF_QUEUES = "cloudburn.io/blog/amazon-sqs-pricing"
_OF_TABLES = "airbyte.com/data-engineering-resources/dynamodb-pricing"
_OF_LOGS = "c3x.dev/blog/cloudwatch-logs-cost-optimization"
_OF_FARGATE = "vantage.sh/blog/fargate-pricing"

# Lambda's own page has these in its examples for us-east-1.
GB_SECOND = Price(0.0000133334, "GB-second, arm64", _LAMBDA, _LAMBDA)
INVOCATION = Price(0.20e-6, "invocation", _LAMBDA, _LAMBDA)
SNAPSHOT_GB_SECOND = Price(0.0000015046, "GB-second of a cached SnapStart snapshot", _LAMBDA, _LAMBDA)
SNAPSHOT_RESTORED_GB = Price(0.0001397998, "GB of a restored SnapStart snapshot", _LAMBDA, _LAMBDA)
STANDARD_REQUEST = Price(0.40e-6, "request, standard queue", _SQS, _OF_QUEUES)
FIFO_REQUEST = Price(0.50e-6, "request, FIFO queue", _SQS, _OF_QUEUES)
EVENT = Price(1.00e-6, "event", "aws.amazon.com/eventbridge/pricing", "cloudburn.io/blog/amazon-eventbridge-pricing")
TABLE_WRITE = Price(0.625e-6, "write request unit", _DYNAMODB, _OF_TABLES)
TABLE_READ = Price(0.125e-6, "read request unit", _DYNAMODB, _OF_TABLES)
OBJECT_PUT = Price(0.005e-3, "PUT request", _S3)
OBJECT_GET = Price(0.0004e-3, "GET request", _S3)
LOG_GB = Price(0.50, "GB of ingested logs", _CLOUDWATCH, _OF_LOGS)
LOG_GB_MONTH = Price(0.03, "GB-month of stored logs", _CLOUDWATCH, _OF_LOGS)
METRIC = Price(0.30, "metric-month, by the hour", _CLOUDWATCH, "signoz.io/guides/cloudwatch-pricing")
# For each metric, not for each alarm: "you incur a cost for each alarm-metric that's referenced in the metric math
# expression" (docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_billing.html).
ALARM = Price(0.10, "metric-month of an alarm", _CLOUDWATCH, "c3x.dev/resources/aws/aws_cloudwatch_metric_alarm")
CLOUDWATCH_REQUEST = Price(0.01e-3, "CloudWatch API request", _CLOUDWATCH)
DASHBOARD = Price(
    3.00,
    "dashboard-month",
    _CLOUDWATCH,
    "factualminds.com/blog/amazon-cloudwatch-pricing-metrics-logs-alarms-dashboards",
)
FARGATE_VCPU = Price(0.04048, "vCPU-hour, Fargate", _FARGATE, _OF_FARGATE)
FARGATE_GB = Price(0.004445, "GB-hour, Fargate", _FARGATE, _OF_FARGATE)
NODE_HOUR = Price(0.0725, "hour of a c7g.large (2 vCPU, 4 GiB), on-demand", _EC2)
NODE_VCPUS, NODE_GIB = 2.0, 4.0

ALL = tuple(value for value in globals().values() if isinstance(value, Price))
