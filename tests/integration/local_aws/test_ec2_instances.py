"""The states of local EC2 instances over time, and the reasons that EC2 gives for them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import boto3

from local.aws.ec2_instances import INVALID_KMS_KEY
from tests.integration.local_aws.test_fleet import account, create, ids, request

if TYPE_CHECKING:
    from local.aws.account import Account
    from tests.integration.local_aws.rig import Json, Rig

__all__ = ["account"]


def described(instance_id: str) -> Json:
    (reservation,) = boto3.client("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"]
    return reservation["Instances"][0]


def state(instance_id: str) -> str:
    return str(described(instance_id)["State"]["Name"])


def test_an_instance_whose_key_ec2_may_not_use_dies_at_boot_and_says_so(rig: Rig, account: Account) -> None:
    rig.deploy()
    rig.cloud.instances.fail_starts("*", "*", 1, reason=INVALID_KMS_KEY)
    answer = create(request(account, "m5.large"))
    assert answer["Errors"] == []
    (instance,) = ids(answer)
    assert state(instance) == "pending"
    rig.run_for(timedelta(seconds=3))
    assert state(instance) == "terminated"
    assert described(instance)["StateReason"] == {
        "Code": "Client.InvalidKMSKey.InvalidState",
        "Message": "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state",
    }


def test_an_instance_is_shutting_down_as_long_as_its_operating_system_takes(rig: Rig, account: Account) -> None:
    rig.deploy()
    rig.cloud.instances.stop_duration = timedelta(seconds=60)
    (instance,) = ids(create(request(account, "m5.large")))
    rig.run_for(timedelta(seconds=10))
    boto3.client("ec2").terminate_instances(InstanceIds=[instance])
    rig.run_for(timedelta(seconds=55))
    assert state(instance) == "shutting-down"
    rig.run_for(timedelta(seconds=10))
    assert state(instance) == "terminated"


def test_a_reclaimed_spot_instance_says_so(rig: Rig, account: Account) -> None:
    rig.deploy()
    (instance,) = ids(create(request(account, "m5.large", kind="spot")))
    rig.run_for(timedelta(seconds=10))
    rig.cloud.instances.reclaim([instance])
    rig.run_for(timedelta(seconds=140))
    assert described(instance)["StateReason"]["Code"] == "Server.SpotInstanceTermination"
