"""What EC2 keeps free for an account, what it fails to start, and what its machines have, as the local cloud has it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.aws.cloud import Cloud
from local.clock import Clock
from local.world.ec2_machines import Ec2Machines
from tests.local.aws.environment import START

if TYPE_CHECKING:
    from local.aws.account import Account
    from tests.local.aws.environment import Environment

IMAGE = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"


@pytest.fixture
def account(env: Environment) -> Account:
    return env.cloud.prepare(
        cluster="demo", version="1.34", endpoint="https://127.0.0.1:1", certificate_authority="YQ=="
    )


def launch(account: Account, instance_type: str, zone: str, *, count: int = 1, **template: Any) -> dict[str, Any]:
    ec2, ssm = boto3.client("ec2"), boto3.client("ssm")
    name = f"tenon-{len(ec2.describe_launch_templates()['LaunchTemplates'])}"
    image = ssm.get_parameter(Name=IMAGE)["Parameter"]["Value"]
    data: Any = {"ImageId": image, **template}
    ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    config: Any = {
        "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"},
        "Overrides": [{"InstanceType": instance_type, "SubnetId": account.subnets[zone]}],
    }
    answer = ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[config],
        TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": "on-demand"},
    )
    return dict(answer)


def ids(answer: dict[str, Any]) -> list[str]:
    return [instance_id for group in answer["Instances"] for instance_id in group["InstanceIds"]]


def free() -> list[int]:
    described = boto3.client("ec2").describe_capacity_reservations()["CapacityReservations"]
    return [r["AvailableInstanceCount"] for r in described]


def into(reservation: str) -> dict[str, Any]:
    return {"CapacityReservationTarget": {"CapacityReservationId": reservation}}


def test_a_reservation_is_described_to_those_whose_filters_it_meets(env: Environment) -> None:
    reservation = env.cloud.reservations.add(
        "m5.large", "us-east-1b", total=2, now=env.clock.now(), tags={"team": "web"}
    )
    cases: list[tuple[Any, list[str]]] = [
        ([], [reservation]),
        ([{"Name": "tag:team", "Values": ["web"]}, {"Name": "state", "Values": ["active"]}], [reservation]),
        ([{"Name": "tag-key", "Values": ["team"]}], [reservation]),
        ([{"Name": "tag:team", "Values": ["other"]}], []),
        ([{"Name": "instance-match-criteria", "Values": ["open"]}], []),
    ]
    for filters, expected in cases:
        described = boto3.client("ec2").describe_capacity_reservations(Filters=filters)["CapacityReservations"]
        assert [r["CapacityReservationId"] for r in described] == expected, filters


def test_launches_into_a_reservation_use_it_up_and_give_it_back(account: Account, env: Environment) -> None:
    zone = "us-east-1b"
    reservation = env.cloud.reservations.add("m5.large", zone, total=2, now=env.clock.now())
    answer = launch(account, "m5.large", zone, count=3, CapacityReservationSpecification=into(reservation))
    assert len(ids(answer)) == 2
    assert [e["ErrorCode"] for e in answer["Errors"]] == ["ReservationCapacityExceeded"]
    assert free() == [0]
    boto3.client("ec2").terminate_instances(InstanceIds=ids(answer)[:1])
    assert free() == [1]


def test_a_reservation_is_for_its_own_type_and_zone(account: Account, env: Environment) -> None:
    reservation = env.cloud.reservations.add("m5.large", "us-east-1b", total=2, now=env.clock.now())
    for instance_type, zone in (("m5.large", "us-east-1a"), ("c5.large", "us-east-1b")):
        assert not ids(launch(account, instance_type, zone, CapacityReservationSpecification=into(reservation)))


def test_an_instance_that_fails_to_start_is_terminated(account: Account, env: Environment) -> None:
    env.deploy()
    env.cloud.instances.fail_starts("m5.large", "*", 1)
    broken, whole = ids(launch(account, "m5.large", "us-east-1a", count=2))
    env.run_for(timedelta(seconds=20))
    described = boto3.client("ec2").describe_instances(InstanceIds=[broken, whole])["Reservations"]
    states = {i["InstanceId"]: i["State"]["Name"] for r in described for i in r["Instances"]}
    assert states == {broken: "terminated", whole: "running"}


def test_a_missing_instance_profile_is_refused_by_name(account: Account) -> None:
    answer = launch(account, "m5.large", "us-east-1a", IamInstanceProfile={"Name": "nobody"})
    assert "nobody" in answer["Errors"][0]["ErrorMessage"]
    assert ids(launch(account, "m5.large", "us-east-1a", IamInstanceProfile={"Name": "KarpenterInstanceProfile"}))


DEVICES = {
    "m5.large": {"vpc.amazonaws.com/pod-eni": 9},
    "c7i.2xlarge": {"vpc.amazonaws.com/pod-eni": 38},
    "t3.medium": {},
    "g4dn.xlarge": {"nvidia.com/gpu": 1},
    "inf2.xlarge": {"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2},
    "inf1.24xlarge": {"aws.amazon.com/neuron": 16, "aws.amazon.com/neuroncore": 64},
}


def test_a_machine_has_the_devices_of_its_type_and_the_fabric_it_was_launched_with(
    account: Account, env: Environment
) -> None:
    env.deploy()
    for instance_type in DEVICES:
        launch(account, instance_type, "us-east-1a")
    efa = {"DeviceIndex": 0, "InterfaceType": "efa", "Groups": [account.security_group_id]}
    launch(account, "g4dn.8xlarge", "us-east-1a", NetworkInterfaces=[efa])
    env.run_for(timedelta(seconds=5))
    machines = {m.instance_type: m.devices for m in Ec2Machines(env.cloud.instances).running()}
    for instance_type, devices in DEVICES.items():
        assert devices.items() <= machines[instance_type].items(), instance_type
        assert "vpc.amazonaws.com/efa" not in machines[instance_type]
    assert machines["t3.medium"] == {}
    assert machines["g4dn.8xlarge"]["vpc.amazonaws.com/efa"] == 1


@pytest.mark.parametrize(
    ("region", "zones"), [("ap-northeast-2", "abc"), ("us-west-1", "ab"), ("ap-northeast-1", "acd")]
)
def test_an_account_of_any_region_has_subnets_in_the_regions_own_zones(region: str, zones: str) -> None:
    clock = Clock(START)
    with Cloud(now=clock.now, sleep=clock.sleep, region=region) as cloud:
        prepared = cloud.prepare(
            cluster="demo", version="1.34", endpoint="https://127.0.0.1:1", certificate_authority="YQ=="
        )
        assert list(prepared.subnets) == [f"{region}{letter}" for letter in zones]
