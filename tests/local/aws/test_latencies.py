"""How long calls take: by the table, the same with the same seed, and only those of functions."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import median, quantiles
from typing import TYPE_CHECKING

import boto3
import pytest

from local.aws import latencies
from local.aws.calls import CALLER
from local.aws.cloud import Cloud
from local.aws.latencies import Latencies
from local.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

START = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    clock = Clock(START, elapsed=lambda: 0.0)
    with Cloud(now=clock.now, sleep=clock.sleep, latencies=Latencies(latencies.table()), clock=clock) as entered:
        yield entered


@pytest.fixture
def function() -> Iterator[None]:
    """Calls are those of a function."""
    token = CALLER.set("lifecycle")
    yield
    CALLER.reset(token)


def draws(count: int = 2000, *, seed: int = 0, operation: str = "CreateTags", items: int = 1) -> list[float]:
    drawn = Latencies(latencies.table(), seed=seed)
    parameters = {f"ResourceId.{number}": "i-1" for number in range(items)}
    return [drawn.next("ec2", operation, parameters) for _ in range(count)]


def test_latencies_have_the_median_and_the_tail_of_the_table() -> None:
    row = latencies.table()["ec2", "CreateTags"]
    assert median(draws()) == pytest.approx(row.median, rel=0.1)
    assert quantiles(draws(), n=100)[98] == pytest.approx(row.p99, rel=0.2)


def test_the_same_seed_draws_the_same_whatever_else_is_called() -> None:
    drawn = Latencies(latencies.table())
    mixed = []
    for _ in range(20):
        drawn.next("dynamodb", "Query", {})
        mixed.append(drawn.next("ec2", "CreateTags", {}))
    assert mixed == draws(20)
    assert draws(20) != draws(20, seed=1)


@pytest.mark.parametrize(("operation", "items"), [("CreateTags", 101), ("Unheard", 1)])
def test_further_items_take_longer_and_every_operation_has_a_latency(operation: str, items: int) -> None:
    further = draws(1, operation=operation, items=items)[0] - draws(1, operation=operation)[0]
    assert further == pytest.approx((items - 1) * 0.001)


def test_each_row_has_a_source_and_a_tail_that_is_longer_than_its_median() -> None:
    rows = latencies.table().values()
    assert all(row.source and row.p99 > row.median > 0 for row in rows)
    assert len(rows) > 20


@pytest.mark.usefixtures("function")
def test_a_functions_call_takes_its_time_on_the_clock(cloud: Cloud) -> None:
    boto3.client("ec2").describe_availability_zones()
    call = cloud.calls.all[-1]
    assert call.at == START
    assert call.latency == pytest.approx(Latencies(latencies.table()).next("ec2", "DescribeAvailabilityZones", {}))


def test_calls_of_others_take_no_time(cloud: Cloud) -> None:
    boto3.client("ec2").describe_availability_zones()
    assert cloud.calls.all[-1].latency == 0


@pytest.mark.usefixtures("function")
@pytest.mark.parametrize("instances", [1, 51])
def test_a_fleet_takes_longer_by_each_instance(cloud: Cloud, instances: int) -> None:
    ec2 = boto3.client("ec2")
    subnet = ec2.describe_subnets(MaxResults=5)["Subnets"][0]["SubnetId"]
    image = ec2.register_image(Name="image")["ImageId"]
    ec2.create_launch_template(LaunchTemplateName="nodes", LaunchTemplateData={"ImageId": image})
    ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "nodes", "Version": "1"},
                "Overrides": [{"InstanceType": "m5.large", "SubnetId": subnet}],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": instances, "DefaultTargetCapacityType": "on-demand"},
    )
    first = Latencies(latencies.table()).next("ec2", "CreateFleet", {})
    assert cloud.calls.all[-1].latency == pytest.approx(first + (instances - 1) * 0.02)
