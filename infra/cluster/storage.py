"""Storage outside the cluster: a table for data that may be lost, and a bucket for the catalog.

Unavailable offerings, the call budget, idempotency records and the decision log expire, and the catalog can be fetched
again. So there is no point-in-time recovery.
"""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

CATALOG_DAYS = 30
"""A catalog that was not refreshed for this many days belongs to a deleted stack."""
SHADOW_DAYS = 90
"""How long the days of shadow mode are kept, as the decision log is."""


class Storage(Construct):
    """The table and the catalog bucket."""

    def __init__(self, scope: Construct, id_: str, *, catalog: s3.IBucket | None) -> None:
        """``catalog`` is the fleet's bucket, None without a fleet."""
        super().__init__(scope, id_)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute="expires",
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.catalog = catalog or catalog_bucket(self)


def catalog_bucket(scope: Construct, *, days: int = CATALOG_DAYS) -> s3.Bucket:
    """The bucket of the catalog, whose objects expire after that many days."""
    return s3.Bucket(
        scope,
        "Catalog",
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        encryption=s3.BucketEncryption.S3_MANAGED,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        lifecycle_rules=[
            s3.LifecycleRule(expiration=Duration.days(days), abort_incomplete_multipart_upload_after=Duration.days(1))
        ],
        # CloudFormation can't delete a bucket with objects; the objects expire.
        removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    )
