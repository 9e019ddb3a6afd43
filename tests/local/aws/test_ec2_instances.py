"""The states of local EC2 instances over time, and the reasons that EC2 gives for them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError

from local.aws.ec2_instances import INVALID_KMS_KEY
from shared.base.aws import error_code
from tests.local.aws.test_fleet import account, create, ids, request

if TYPE_CHECKING:
    from local.aws.account import Account
    from tests.local.aws.environment import Environment, Json

__all__ = ["account"]


def described(instance_id: str) -> Json:
    (reservation,) = boto3.client("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"]
    return reservation["Instances"][0]


def state(instance_id: str) -> str:
    return str(described(instance_id)["State"]["Name"])


def test_an_instance_whose_key_ec2_may_not_use_dies_at_boot_and_says_so(env: Environment, account: Account) -> None:
    env.deploy()
    env.cloud.instances.fail_starts("*", "*", 1, reason=INVALID_KMS_KEY)
    answer = create(request(account, "m5.large"))
    assert answer["Errors"] == []
    (instance,) = ids(answer)
    assert state(instance) == "pending"
    env.run_for(timedelta(seconds=3))
    assert state(instance) == "terminated"
    assert described(instance)["StateReason"] == {
        "Code": "Client.InvalidKMSKey.InvalidState",
        "Message": "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state",
    }


def test_an_instance_is_shutting_down_as_long_as_its_operating_system_takes(env: Environment, account: Account) -> None:
    env.deploy()
    env.cloud.instances.stop_duration = timedelta(seconds=60)
    (instance,) = ids(create(request(account, "m5.large")))
    env.run_for(timedelta(seconds=10))
    boto3.client("ec2").terminate_instances(InstanceIds=[instance])
    env.run_for(timedelta(seconds=55))
    assert state(instance) == "shutting-down"
    env.run_for(timedelta(seconds=10))
    assert state(instance) == "terminated"


def test_a_reclaimed_spot_instance_says_so(env: Environment, account: Account) -> None:
    env.deploy()
    (instance,) = ids(create(request(account, "m5.large", kind="spot")))
    env.run_for(timedelta(seconds=10))
    env.cloud.instances.reclaim([instance])
    env.run_for(timedelta(seconds=140))
    assert described(instance)["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_a_stopped_instance_starts_again_under_its_address_and_frees_its_capacity_meanwhile(
    env: Environment, account: Account
) -> None:
    env.deploy()
    ec2 = boto3.client("ec2")
    (instance,) = ids(create(request(account, "m5.large")))
    env.run_for(timedelta(seconds=3))
    before = described(instance)
    zone = before["Placement"]["AvailabilityZone"]
    pool = ("on-demand", "m5.large", zone)
    env.cloud.capacity.set(*pool, 3)
    ec2.stop_instances(InstanceIds=[instance])
    assert state(instance) == "stopping"
    env.run_for(timedelta(seconds=10))
    assert (state(instance), env.cloud.capacity.remaining(pool)) == ("stopped", 4)
    ec2.stop_instances(InstanceIds=[instance])
    ec2.start_instances(InstanceIds=[instance])
    ec2.start_instances(InstanceIds=[instance])
    assert (state(instance), env.cloud.capacity.remaining(pool)) == ("pending", 3)
    env.run_for(timedelta(seconds=10))
    after = described(instance)
    assert after["State"]["Name"] == "running"
    assert after["PrivateDnsName"] == before["PrivateDnsName"]
    assert after["LaunchTime"] > before["LaunchTime"]


def test_a_reboot_is_answered_at_once_and_the_instance_stays_running(env: Environment, account: Account) -> None:
    env.deploy()
    ec2 = boto3.client("ec2")
    (instance,) = ids(create(request(account, "m5.large")))
    with pytest.raises(ClientError) as error:
        ec2.reboot_instances(InstanceIds=[instance])
    assert error_code(error.value) == "IncorrectInstanceState"
    env.run_for(timedelta(seconds=3))
    ec2.reboot_instances(InstanceIds=[instance])
    assert (state(instance), env.cloud.instances.reboots[instance]) == ("running", 1)
    ec2.terminate_instances(InstanceIds=[instance])
    ec2.reboot_instances(InstanceIds=[instance])
    assert (state(instance), env.cloud.instances.reboots[instance]) == ("shutting-down", 1)
    with pytest.raises(ClientError) as error:
        ec2.reboot_instances(InstanceIds=["i-0123456789abcdef0"])
    assert error_code(error.value) == "InvalidInstanceID.NotFound"


def test_a_start_fails_for_lack_of_capacity_at_once_or_later(env: Environment, account: Account) -> None:
    env.deploy()
    ec2 = boto3.client("ec2")
    instances = ids(create(request(account, "m5.large", count=2)))
    env.run_for(timedelta(seconds=3))
    ec2.stop_instances(InstanceIds=instances)
    with pytest.raises(ClientError) as error:
        ec2.start_instances(InstanceIds=instances)
    assert error_code(error.value) == "IncorrectInstanceState"
    env.run_for(timedelta(seconds=10))
    env.cloud.capacity.set("on-demand", "m5.large", "*", 1)
    with pytest.raises(ClientError) as error:
        ec2.start_instances(InstanceIds=instances)
    assert error_code(error.value) == "InsufficientInstanceCapacity"
    assert {state(i) for i in instances} == {"stopped"}
    env.cloud.instances.fail_restarts(1)
    ec2.start_instances(InstanceIds=instances[:1])
    env.run_for(timedelta(seconds=10))
    assert state(instances[0]) == "stopped"
    assert described(instances[0])["StateReason"]["Code"] == "Server.InsufficientInstanceCapacity"


def test_a_spot_instance_of_a_fleet_of_type_instant_cant_be_stopped(env: Environment, account: Account) -> None:
    env.deploy()
    (instance,) = ids(create(request(account, "m5.large", kind="spot")))
    env.run_for(timedelta(seconds=3))
    with pytest.raises(ClientError) as error:
        boto3.client("ec2").stop_instances(InstanceIds=[instance])
    assert error_code(error.value) == "UnsupportedOperation"
