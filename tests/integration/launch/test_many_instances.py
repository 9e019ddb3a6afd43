"""Questions about more instances than one call of EC2's may name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from local.aws.cloud import Cloud
from shared.base import aws, runtime
from shared.launch import instances

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 26, tzinfo=UTC)
UNKNOWN = [f"i-{number:017x}" for number in range(450)]


@pytest.fixture(autouse=True)
def cloud() -> Iterator[Cloud]:
    with (
        Cloud(now=lambda: NOW, sleep=lambda _: None) as entered,
        runtime.using(runtime.Runtime(environ={}, now=lambda: NOW)),
    ):
        yield entered


def test_instances_are_described_by_id_within_the_limit_of_filter_values() -> None:
    launched = aws.ec2().run_instances(ImageId="ami-12c6146b", MinCount=210, MaxCount=210)["Instances"]
    ids = [i["InstanceId"] for i in launched]
    assert [i.id for i in instances.get(aws.ec2(), [*UNKNOWN, *ids])] == sorted(ids)


def test_instances_are_listed_by_launch_group_within_the_limit_of_filter_values() -> None:
    groups = [f"group-{number}" for number in range(450)]
    assert instances.list_by_launch_group(aws.ec2(), "demo", groups) == ()


def launched_in_zones() -> dict[str, list[str]]:
    """Ids of three instances in each of two zones."""
    zones = {}
    for zone in ("us-east-1a", "us-east-1b"):
        answer = aws.ec2().run_instances(
            ImageId="ami-12c6146b", MinCount=3, MaxCount=3, Placement={"AvailabilityZone": zone}
        )
        zones[zone] = sorted(i["InstanceId"] for i in answer["Instances"])
    return zones


def test_while_a_zone_is_disrupted_instances_of_the_others_are_described_by_id(cloud: Cloud) -> None:
    """EC2 fails every call that may be about the zone; a filter by id names no instances."""
    zones = launched_in_zones()
    cloud.consistency.disrupted_zones = frozenset({"us-east-1b"})
    described = instances.get(aws.ec2(), [*zones["us-east-1a"], *zones["us-east-1b"], UNKNOWN[0]])
    assert [i.id for i in described] == zones["us-east-1a"]
    with pytest.raises(ClientError, match="Unavailable"):
        instances.get(aws.ec2(), zones["us-east-1b"])


def test_while_a_zone_is_disrupted_the_others_instances_are_listed_and_the_zone_is_named(cloud: Cloud) -> None:
    zones = launched_in_zones()
    cloud.consistency.disrupted_zones = frozenset({"us-east-1b"})
    with pytest.raises(ClientError, match="Unavailable"):
        instances.list_by_cluster(aws.ec2(), "demo")
    answer = instances.list_by_zone(aws.ec2(), {**zones, "us-east-1c": [UNKNOWN[0]]})
    assert [i.id for i in answer.instances] == zones["us-east-1a"]
    assert answer.unanswered == {"us-east-1b"}
