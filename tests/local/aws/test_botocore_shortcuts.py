"""An answer that was parsed before is as good as a new one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import boto3
import pytest

from local.aws.cloud import Cloud

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 24, tzinfo=UTC)


@pytest.fixture(autouse=True)
def cloud() -> Iterator[Cloud]:
    with Cloud(now=lambda: NOW, sleep=lambda _seconds: None) as entered:
        yield entered


def test_a_change_is_in_the_next_answer() -> None:
    ec2 = boto3.client("ec2")
    assert ec2.describe_vpcs()["Vpcs"] == ec2.describe_vpcs()["Vpcs"]
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    assert vpc in [v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"]]
    ec2.delete_vpc(VpcId=vpc)
    assert vpc not in [v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"]]


def test_what_a_caller_does_to_its_answer_is_in_no_other() -> None:
    ec2 = boto3.client("ec2")
    first = ec2.describe_vpcs()
    vpcs = [vpc["VpcId"] for vpc in first["Vpcs"]]
    first["Vpcs"].clear()
    second = ec2.describe_vpcs()
    assert [vpc["VpcId"] for vpc in second["Vpcs"]] == vpcs
    assert second["ResponseMetadata"]["HTTPStatusCode"] == 200
