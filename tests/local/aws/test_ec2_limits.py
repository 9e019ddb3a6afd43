"""The form of requests that EC2 refuses, and moto takes."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError

from local.aws.calls import CALLER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_ec2.type_defs import FilterTypeDef, FleetLaunchTemplateOverridesRequestTypeDef


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


@pytest.mark.usefixtures("env")
@pytest.mark.parametrize("name", ["x" * 129, "with space", "colon:name"])
def test_a_launch_template_has_a_name_that_ec2_allows(name: str) -> None:
    ec2 = boto3.client("ec2")
    ec2.create_launch_template(LaunchTemplateName="x" * 128, LaunchTemplateData={"ImageId": "ami-1"})
    with pytest.raises(ClientError, match="MalformedException"):
        ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-1"})


@pytest.mark.usefixtures("env")
def test_a_fleet_request_has_128_kilobytes_at_most() -> None:
    overrides: list[FleetLaunchTemplateOverridesRequestTypeDef] = [
        {"InstanceType": "m5.large", "SubnetId": f"subnet-{number:017x}"} for number in range(1000)
    ]
    with pytest.raises(ClientError, match=r"InvalidInput.*too large"):
        boto3.client("ec2").create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {"LaunchTemplateSpecification": {"LaunchTemplateName": "name"}, "Overrides": overrides}
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": 1},
        )


@pytest.mark.usefixtures("env", "function")
def test_a_function_that_lists_without_a_page_size_is_refused() -> None:
    ec2 = boto3.client("ec2")
    running: list[FilterTypeDef] = [{"Name": "instance-state-name", "Values": ["running"]}]
    with pytest.raises(ClientError, match="without MaxResults"):
        ec2.describe_instances(Filters=running)
    ec2.describe_instances(Filters=running, MaxResults=1000)
    ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": ["subnet-1"]}])


@pytest.mark.usefixtures("env")
@pytest.mark.parametrize(
    ("operation", "allowed", "refused"),
    [
        ("describe_launch_templates", 200, 1000),
        ("describe_instances", 1000, 1001),
        ("describe_instance_types", 100, 101),
        ("describe_subnets", 5, 4),
    ],
)
def test_a_page_has_the_size_that_the_operation_allows(operation: str, allowed: int, refused: int) -> None:
    describe = getattr(boto3.client("ec2"), operation)
    describe(MaxResults=allowed)
    with pytest.raises((ClientError, ParamValidationError), match=r"maxResults is invalid|valid min value"):
        describe(MaxResults=refused)


@pytest.mark.usefixtures("env")
def test_instances_are_described_by_ids_or_by_pages() -> None:
    with pytest.raises(ClientError, match="InvalidParameterCombination"):
        boto3.client("ec2").describe_instances(InstanceIds=["i-0123456789abcdef0"], MaxResults=5)


@pytest.mark.usefixtures("env")
def test_a_call_names_as_many_instances_as_the_operation_allows() -> None:
    ids = [f"i-{number:017x}" for number in range(1001)]
    with pytest.raises(ClientError, match="at most 1000"):
        boto3.client("ec2").terminate_instances(InstanceIds=ids)
    with pytest.raises(ClientError, match="at most 100 "):
        boto3.client("ec2").describe_instance_status(InstanceIds=ids[:101])


@pytest.mark.usefixtures("env")
@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ({f"key-{n}": "" for n in range(51)}, "TagLimitExceeded"),
        ({"k" * 129: ""}, "InvalidParameterValue"),
        ({"key": "v" * 257}, "InvalidParameterValue"),
        ({"aws:key": ""}, "InvalidParameterValue"),
    ],
)
def test_tags_have_limits(tags: dict[str, str], code: str) -> None:
    ec2 = boto3.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": f"key-{n}", "Value": "v" * 256} for n in range(50)])
    with pytest.raises(ClientError, match=code):
        ec2.create_tags(Resources=[vpc], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
