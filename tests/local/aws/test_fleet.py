from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from local.aws.prices import Prices, on_demand

if TYPE_CHECKING:
    from local.aws.account import Account
    from tests.local.aws.environment import Environment, Json

IMAGE = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/{}/standard/recommended/image_id"


@pytest.fixture
def account(env: Environment) -> Account:
    prepared = env.cloud.prepare(
        cluster="demo", version="1.34", endpoint="https://127.0.0.1:1", certificate_authority="Y2E="
    )
    image = boto3.client("ssm").get_parameter(Name=IMAGE.format("x86_64"))["Parameter"]["Value"]
    boto3.client("ec2").create_launch_template(
        LaunchTemplateName="tenon",
        LaunchTemplateData={
            "ImageId": image,
            "UserData": "aGVsbG8=",
            "SecurityGroupIds": [prepared.security_group_id],
            "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 33, "VolumeType": "gp3"}}],
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        },
    )
    return prepared


def request(account: Account, *types: str, count: int = 1, name: str = "t", kind: str = "on-demand") -> dict[str, Any]:
    overrides = [{"InstanceType": name, "SubnetId": subnet} for name in types for subnet in account.subnets.values()]
    strategy = "price-capacity-optimized" if kind == "spot" else "lowest-price"
    options = {"SpotOptions" if kind == "spot" else "OnDemandOptions": {"AllocationStrategy": strategy}}
    return {
        "Type": "instant",
        "ClientToken": name,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "tenon", "Version": "$Latest"},
                "Overrides": overrides,
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": kind},
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "who", "Value": "tenon"}]}],
        **options,
    }


def create(params: dict[str, Any]) -> Json:
    return boto3.client("ec2").create_fleet(**params)


def ids(answer: Json) -> list[str]:
    return [instance_id for group in answer["Instances"] for instance_id in group["InstanceIds"]]


def test_the_cheapest_type_is_launched_on_demand(account: Account) -> None:
    answer = create(request(account, "m5.large", "c5.large", "m5.xlarge"))
    assert [group["InstanceType"] for group in answer["Instances"]] == ["c5.large"]
    assert answer["Errors"] == []


def test_the_same_token_launches_nothing_more_and_answers_the_same(account: Account, env: Environment) -> None:
    params = request(account, "m5.large", count=3)
    assert ids(create(params)) == ids(create(params))
    assert len(env.cloud.instances.all) == 3
    assert [call.replayed for call in env.cloud.fleets.calls] == [False, True]


def test_the_same_token_with_other_parameters_is_refused(account: Account) -> None:
    create(request(account, "m5.large"))
    with pytest.raises(ClientError) as refused:
        create(request(account, "m5.large", count=2))
    assert refused.value.response["Error"]["Code"] == "IdempotentParameterMismatch"


def test_a_partial_fill_names_type_and_zone_of_what_was_lacking(account: Account, env: Environment) -> None:
    env.cloud.capacity.set("on-demand", "m5.large", "*", 0)
    env.cloud.capacity.set("on-demand", "m5.large", "us-east-1b", 2)
    answer = create(request(account, "m5.large", count=5))
    assert len(ids(answer)) == 2
    lacking = {
        (error["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"], error["ErrorCode"])
        for error in answer["Errors"]
    }
    assert lacking == {("m5.large", "InsufficientInstanceCapacity")}
    subnets = {error["LaunchTemplateAndOverrides"]["Overrides"]["SubnetId"] for error in answer["Errors"]}
    assert subnets == set(account.subnets.values())


def test_without_capacity_in_one_pool_the_next_is_used(account: Account, env: Environment) -> None:
    env.cloud.capacity.set("spot", "c5.large", "*", 0)
    answer = create(request(account, "m5.large", "c5.large", kind="spot"))
    assert [group["InstanceType"] for group in answer["Instances"]] == ["m5.large"]
    assert answer["Instances"][0]["Lifecycle"] == "spot"


def test_terminated_instances_give_their_capacity_back(account: Account, env: Environment) -> None:
    env.cloud.capacity.set("on-demand", "m5.large", "*", 2)
    (instance_id,) = ids(create(request(account, "m5.large")))
    assert env.cloud.capacity.remaining(("on-demand", "m5.large", "us-east-1a")) == 1
    boto3.client("ec2").terminate_instances(InstanceIds=[instance_id])
    assert env.cloud.capacity.remaining(("on-demand", "m5.large", "us-east-1a")) == 2


def test_two_subnets_of_one_zone_are_refused(account: Account) -> None:
    params = request(account, "m5.large")
    params["LaunchTemplateConfigs"][0]["Overrides"] *= 2
    with pytest.raises(ClientError) as refused:
        create(params)
    assert refused.value.response["Error"]["Code"] == "InvalidFleetConfig"


def test_a_missing_launch_template_is_an_error(account: Account) -> None:
    params = request(account, "m5.large")
    params["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["LaunchTemplateName"] = "gone"
    with pytest.raises(ClientError) as refused:
        create(params)
    assert refused.value.response["Error"]["Code"] == "InvalidLaunchTemplateName.NotFoundException"


def test_a_type_that_the_image_does_not_run_on_is_an_error(account: Account) -> None:
    answer = create(request(account, "m6g.large"))
    assert answer["Instances"] == []
    assert {error["ErrorCode"] for error in answer["Errors"]} == {"InvalidParameterValue"}


def test_an_instance_has_the_attributes_of_its_launch_template(account: Account, env: Environment) -> None:
    (instance_id,) = ids(create(request(account, "m5.large", kind="spot")))
    ec2 = boto3.client("ec2")

    def seen() -> Json:
        return ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]

    assert seen()["State"]["Name"] == "pending"
    assert seen()["InstanceLifecycle"] == "spot"
    assert seen()["SecurityGroups"][0]["GroupId"] == account.security_group_id
    assert seen()["MetadataOptions"]["HttpTokens"] == "required"
    assert {"Key": "who", "Value": "tenon"} in seen()["Tags"]
    env.clock.skip_to(env.clock.now() + timedelta(seconds=2))
    for actor in (env.cloud.instances,):
        actor.step(env.clock.now())
    assert seen()["State"]["Name"] == "running"
    (instance,) = env.cloud.instances.running.values()
    assert instance.user_data.decode() == "hello"
    ec2.terminate_instances(InstanceIds=[instance_id])
    assert seen()["State"]["Name"] == "shutting-down"
    assert env.cloud.instances.running == {}
    env.clock.skip_to(env.clock.now() + timedelta(seconds=30))
    env.cloud.instances.step(env.clock.now())
    assert seen()["State"]["Name"] == "terminated"


@pytest.mark.usefixtures("account")
def test_the_newest_image_is_the_recommended_one() -> None:
    ssm, ec2 = boto3.client("ssm"), boto3.client("ec2")
    for architecture in ("x86_64", "arm64"):
        image = ssm.get_parameter(Name=IMAGE.format(architecture))["Parameter"]["Value"]
        (described,) = ec2.describe_images(ImageIds=[image])["Images"]
        assert described["Architecture"] == architecture
        candidates = ec2.describe_images(
            Filters=[{"Name": "name", "Values": [f"amazon-eks-node-al2023-{architecture}-standard-1.34-*"]}]
        )["Images"]
        assert described["CreationDate"] == max(candidate["CreationDate"] for candidate in candidates)


@pytest.mark.usefixtures("account")
def test_amazon_linux_2_ended_with_kubernetes_1_32() -> None:
    with pytest.raises(ClientError) as refused:
        boto3.client("ssm").get_parameter(
            Name="/aws/service/eks/optimized-ami/1.34/amazon-linux-2/recommended/image_id"
        )
    assert refused.value.response["Error"]["Code"] == "ParameterNotFound"


def test_the_price_list_has_awss_format(env: Environment) -> None:
    assert env.cloud.region == "us-east-1"
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in (("instanceType", "m5.large"), ("tenancy", "Shared"), ("operatingSystem", "Linux"))
    ]
    answer = boto3.client("pricing", region_name="us-east-1").get_products(ServiceCode="AmazonEC2", Filters=filters)  # type: ignore[arg-type]  # a list of plain dicts
    (product,) = [json.loads(text) for text in answer["PriceList"]]
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert dimension["pricePerUnit"]["USD"] == "0.0960000000"
    assert dimension["unit"] == "Hrs"


def test_spot_prices_differ_by_zone_and_have_the_clocks_time(env: Environment) -> None:
    history = boto3.client("ec2").describe_spot_price_history(
        InstanceTypes=["m5.large"], ProductDescriptions=["Linux/UNIX"]
    )["SpotPriceHistory"]
    prices = {item["AvailabilityZone"]: float(item["SpotPrice"]) for item in history}
    assert len(set(prices.values())) > 1
    assert all(0.02 < price < 0.06 for price in prices.values())
    assert all(env.clock.now() - item["Timestamp"] < timedelta(hours=1) for item in history)


def test_prices_have_a_realistic_order() -> None:
    assert on_demand("t3.large") < on_demand("m5.large") < on_demand("m5.xlarge")
    assert on_demand("c5.large") < on_demand("m5.large") < on_demand("r5.large")
    assert on_demand("m6g.large") < on_demand("m5.large")
    assert on_demand("m5a.large") < on_demand("m5.large")
    assert on_demand("g4dn.xlarge") > on_demand("m5.xlarge")


@given(seed=st.integers(), zone=st.sampled_from("abcdef"))
def test_spot_is_always_a_quarter_to_a_half_of_on_demand(seed: int, zone: str) -> None:
    share = Prices(seed=seed).spot("m5.4xlarge", f"us-east-1{zone}") / on_demand("m5.4xlarge")
    assert 0.24 < share < 0.51
