"""The form of requests that EC2 refuses, and moto takes."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError

from local.aws.calls import CALLER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_ec2.type_defs import FilterTypeDef


@pytest.fixture
def function() -> Iterator[None]:
    """Calls are those of a function."""
    token = CALLER.set("lifecycle")
    yield
    CALLER.reset(token)


@pytest.mark.usefixtures("env")
def test_all_filters_of_a_call_have_200_values_at_most() -> None:
    ec2 = boto3.client("ec2")
    states = ["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]
    by_state: FilterTypeDef = {"Name": "instance-state-name", "Values": states}
    ids = [f"i-{number:017x}" for number in range(195)]
    ec2.describe_instances(Filters=[by_state, {"Name": "instance-id", "Values": ids[:194]}])
    with pytest.raises(ClientError, match="FilterLimitExceeded"):
        ec2.describe_instances(Filters=[by_state, {"Name": "instance-id", "Values": ids}])


@pytest.mark.usefixtures("env")
def test_user_data_has_16_kilobytes_at_most() -> None:
    ec2 = boto3.client("ec2")

    def create(name: str, size: int) -> None:
        user_data = base64.b64encode(b"x" * size).decode()
        ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"UserData": user_data})

    create("fits", 16_384)
    with pytest.raises(ClientError, match="User data is limited to 16384 bytes"):
        create("is-too-large", 16_385)


@pytest.mark.usefixtures("env", "function")
def test_a_function_that_lists_without_a_page_size_is_refused() -> None:
    ec2 = boto3.client("ec2")
    running: list[FilterTypeDef] = [{"Name": "instance-state-name", "Values": ["running"]}]
    with pytest.raises(ClientError, match="without MaxResults"):
        ec2.describe_instances(Filters=running)
    ec2.describe_instances(Filters=running, MaxResults=1000)
    ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": ["subnet-1"]}])
