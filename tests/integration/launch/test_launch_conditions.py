"""What launches and interruptions have shown is read together, and some of it need not be readable."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from shared.base import aws, runtime
from shared.instance_types import interruption_rates, unavailable_offerings
from shared.launch import boot_failures
from shared.launch.ec2_cloud_provider import read_conditions
from shared.launch.node_class import free_addresses
from shared.launch.resolved_node_pools import LaunchConditions


def _refuse(partition: str) -> None:
    def refuse(params: dict[str, Any], **_: object) -> None:
        if params["ExpressionAttributeValues"][":partition"]["S"] == partition:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Query")

    aws.dynamodb_with_errors().meta.events.register("provide-client-params.dynamodb.Query", refuse)


def test_without_rows_there_are_no_conditions(table: str) -> None:
    read = read_conditions(aws.dynamodb_with_errors(), table, commitments=None, now=runtime.current().now())
    assert read == LaunchConditions()


@pytest.mark.parametrize("partition", [interruption_rates.PARTITION, free_addresses.PARTITION])
def test_rates_and_short_subnets_that_cannot_be_read_are_none(table: str, partition: str) -> None:
    _refuse(partition)
    read = read_conditions(aws.dynamodb_with_errors(), table, commitments=None, now=runtime.current().now())
    assert read == LaunchConditions()


@pytest.mark.parametrize("partition", [unavailable_offerings.PARTITION, boot_failures.PARTITION])
def test_what_failed_must_be_readable(table: str, partition: str) -> None:
    _refuse(partition)
    with pytest.raises(ClientError):
        read_conditions(aws.dynamodb_with_errors(), table, commitments=None, now=runtime.current().now())
