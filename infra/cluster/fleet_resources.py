"""The resources of a fleet's stack, as the stacks of its clusters refer to them.

A cluster's stack names the function, the queue and the table, whose names are known before. It imports the bucket's,
which CloudFormation chooses (the bucket stays when the stack goes, and would be in the way of the next fleet of that
name). The import is also why the fleet's stack can only be deleted after all of its clusters'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Fn, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs

from infra import function_sizes
from infra.cluster import resource_names
from shared.base.struct import Struct

if TYPE_CHECKING:
    from constructs import Construct

CATALOG_BUCKET = "CatalogBucket"
"""The output with the bucket's name."""
UNDELIVERED = "undelivered"
SWEEPS = "sweeps"
"""The purposes in the names of the queue and the table."""


class FleetResources(Struct):
    """What a cluster's stack uses of its fleet's, by name; ``scope`` is in the cluster's stack."""

    fleet: str
    scope: Construct

    @property
    def owner(self) -> str:
        """What names have in place of a cluster's."""
        return resource_names.of_fleet(self.fleet)

    def undelivered(self) -> sqs.IQueue:
        """The queue of undelivered events."""
        name = resource_names.queue(self.owner, UNDELIVERED, fifo=False)
        arn = Stack.of(self.scope).format_arn(service="sqs", resource=name)
        return sqs.Queue.from_queue_attributes(self.scope, "FleetUndelivered", queue_arn=arn, fifo=False)

    def catalog(self) -> s3.IBucket:
        """The bucket of the catalog."""
        name = Fn.import_value(resource_names.export(self.fleet, CATALOG_BUCKET))
        return s3.Bucket.from_bucket_name(self.scope, "FleetCatalog", name)

    @property
    def catalog_finding(self) -> str:
        """The bucket's ARN as cdk-nag's findings have it."""
        return f"arn:<AWS::Partition>:s3:::{resource_names.export(self.fleet, CATALOG_BUCKET)}"

    def catalog_function(self) -> lambda_.IFunction:
        """The catalog function, which allows the rules of clusters itself."""
        name = resource_names.function(self.owner, function_sizes.CATALOG)
        arn = Stack.of(self.scope).format_arn(service="lambda", resource=f"function:{name}")
        return lambda_.Function.from_function_attributes(
            self.scope, "FleetCatalogFunction", function_arn=arn, skip_permissions=True
        )

    @property
    def sweeps_table(self) -> str:
        """The name of the table with the clusters' last sweeps."""
        return resource_names.table(self.owner, SWEEPS)
