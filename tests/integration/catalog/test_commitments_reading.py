"""What the catalog function reads of an account's commitments, in the local AWS, and what it says when it can't."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.aws.cloud import Cloud
from local.clock import Clock
from local.faults import Fault
from shared.base import aws, runtime
from shared.commitments import reading
from shared.commitments.commitment import Commitments, ReservedInstances

if TYPE_CHECKING:
    from collections.abc import Iterator

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
REGION = "eu-central-1"
NO_PERMISSION = "the catalog function has no permission for"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    clock = Clock(START, elapsed=lambda: 0.0)
    with (
        Cloud(now=clock.now, sleep=clock.sleep, region=REGION) as local,
        runtime.using(runtime.Runtime(environ={}, now=clock.now, sleep=lambda _: None)),
    ):
        yield local


def read(previous: Commitments | None = None, *, now: datetime = START) -> Commitments:
    return reading.read(aws, previous, region=REGION, now=now)


def calls(cloud: Cloud, operation: str) -> int:
    return sum(1 for call in cloud.calls.all if call.operation == operation)


def run(cloud: Cloud, instance_type: str, count: int, tags: dict[str, str], **more: Any) -> list[str]:
    """Run instances with these tags in the account; returns their ids."""
    ec2 = boto3.client("ec2")
    image = ec2.register_image(Name=f"image-{len(cloud.calls.all)}", RootDeviceName="/dev/xvda")["ImageId"]
    specification: Any = {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
    answer = ec2.run_instances(
        ImageId=image,
        InstanceType=instance_type,  # type: ignore[arg-type]  # any type of moto's
        MinCount=count,
        MaxCount=count,
        TagSpecifications=[specification] if tags else [],
        **more,
    )
    return [instance["InstanceId"] for instance in answer["Instances"]]


def test_an_account_without_commitments_has_none_and_no_problem(cloud: Cloud) -> None:
    assert read() == Commitments(fetched_at=START)
    assert calls(cloud, "DescribeSavingsPlanRates") == 0


def test_purchases_are_read_as_they_were_bought(cloud: Cloud) -> None:
    regional = cloud.purchases.reserve("m6i.large", 3, discount=0.5)
    zonal = cloud.purchases.reserve("c6i.xlarge", 1, zone=f"{REGION}a", discount=0.5)
    upfront = cloud.purchases.reserve("c6i.xlarge", 1, fixedPrice=876.0, recurringCharges=[])
    cloud.purchases.reserve("m6i.large", 1, state="retired")
    ends = START + timedelta(days=365)
    *hourly, paid = read().reserved
    assert hourly == [
        ReservedInstances(id=regional, instance_type="m6i.large", count=3, hourly=0.048, ends=ends),
        ReservedInstances(id=zonal, instance_type="c6i.xlarge", zone=f"{REGION}a", count=1, hourly=0.085, ends=ends),
    ]
    assert paid.id == upfront
    assert paid.hourly == pytest.approx(0.1)


def test_rates_of_all_pages_are_those_of_linux_with_shared_tenancy(cloud: Cloud) -> None:
    compute = cloud.purchases.commit(2.0, discount=0.25)
    family = cloud.purchases.commit(1.0, family="m6i", discount=0.5)
    commitments = read()
    plans = {plan.id: plan for plan in commitments.plans}
    assert plans[compute].rates["m6i.large"] == pytest.approx(0.75 * cloud.prices.on_demand("m6i.large"))
    assert plans[compute].rates["z1d.metal"] == pytest.approx(0.75 * cloud.prices.on_demand("z1d.metal"))
    assert {name.partition(".")[0] for name in plans[family].rates} == {"m6i"}
    assert calls(cloud, "DescribeSavingsPlanRates") > len(plans)
    assert commitments.problem == ""


def test_rates_are_read_once_for_each_plan(cloud: Cloud) -> None:
    cloud.purchases.commit(1.0, family="m6i")
    first = read()
    before = calls(cloud, "DescribeSavingsPlanRates")
    added = cloud.purchases.commit(1.0, family="c6i")
    second = read(first, now=START + timedelta(hours=1))
    assert [plan.id for plan in second.plans] == [first.plans[0].id, added]
    assert second.plans[0] == first.plans[0]
    assert calls(cloud, "DescribeSavingsPlanRates") == before + 1


def test_rates_of_many_new_plans_are_read_in_several_hours(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_NEW_PLANS", 2)
    ids = [cloud.purchases.commit(1.0, family=family) for family in ("m6i", "c6i", "r6i")]
    first = read()
    assert [plan.id for plan in first.plans] == ids[:2]
    assert first.problem == f"rates of Savings Plans {ids[2]} aren't read: the next readings read them"
    second = read(first, now=START + timedelta(hours=1))
    assert ([plan.id for plan in second.plans], second.problem) == (ids, "")


def test_a_plan_without_rates_in_the_region_is_named(cloud: Cloud) -> None:
    id_ = cloud.purchases.commit(1.0, family="none9")
    commitments = read()
    problem = f"rates of Savings Plans {id_} aren't read: they have none for Linux with shared tenancy in {REGION}"
    assert (commitments.plans, commitments.problem) == ((), problem)


def test_running_instances_are_counted_by_cluster_type_and_zone(cloud: Cloud) -> None:
    placement = {"AvailabilityZone": f"{REGION}b"}
    run(cloud, "m6i.large", 2, {"kubernetes.io/cluster/blue": "owned"}, Placement=placement)
    run(cloud, "m6i.xlarge", 1, {"eks:cluster-name": "green"}, Placement=placement)
    run(cloud, "t3.micro", 1, {}, Placement=placement)
    run(cloud, "m6i.large", 1, {}, Placement=placement, InstanceMarketOptions={"MarketType": "spot"})
    stopped = run(cloud, "m6i.large", 1, {}, Placement=placement)
    boto3.client("ec2").terminate_instances(InstanceIds=stopped)
    assert read().usage == {
        "": {f"t3.micro/{REGION}b": 1},
        "blue": {f"m6i.large/{REGION}b": 2},
        "green": {f"m6i.xlarge/{REGION}b": 1},
    }


@pytest.mark.parametrize(
    ("service", "operation", "code", "problem"),
    [
        (
            "ec2",
            "DescribeReservedInstances",
            "UnauthorizedOperation",
            f"Reserved Instances aren't read: {NO_PERMISSION} ec2:DescribeReservedInstances",
        ),
        (
            "savingsplans",
            "DescribeSavingsPlans",
            "AccessDeniedException",
            f"Savings Plans aren't read: {NO_PERMISSION} savingsplans:DescribeSavingsPlans",
        ),
        (
            "savingsplans",
            "DescribeSavingsPlanRates",
            "AccessDeniedException",
            f"rates of Savings Plans sp-00000001 aren't read: {NO_PERMISSION} savingsplans:DescribeSavingsPlanRates",
        ),
        (
            "savingsplans",
            "DescribeSavingsPlans",
            "InternalServerException",
            "Savings Plans aren't read: savingsplans:DescribeSavingsPlans fails with InternalServerException: injected",
        ),
    ],
)
def test_what_is_denied_or_fails_is_named_and_the_rest_is_read(
    service: str, operation: str, code: str, problem: str, cloud: Cloud
) -> None:
    cloud.purchases.reserve("m6i.large", 1)
    cloud.purchases.commit(1.0, family="m6i")
    cloud.faults.inject_aws(service, operation, Fault(code=code), times=10)
    commitments = read()
    assert commitments.problem == problem
    assert (len(commitments.reserved), len(commitments.plans)) == ((0, 1) if service == "ec2" else (1, 0))


def test_without_running_instances_no_commitment_counts(cloud: Cloud) -> None:
    cloud.purchases.reserve("m6i.large", 1)
    cloud.faults.inject_aws("ec2", "DescribeInstances", Fault(code="UnauthorizedOperation"), times=10)
    problem = f"no commitment counts: running instances aren't read: {NO_PERMISSION} ec2:DescribeInstances"
    assert read() == Commitments(fetched_at=START, problem=problem)


def test_an_unreachable_endpoint_is_named(cloud: Cloud) -> None:
    cloud.purchases.reserve("m6i.large", 1)
    cloud.faults.inject_aws("savingsplans", "DescribeSavingsPlans", Fault(disconnect="before"), times=10)
    commitments = read()
    assert len(commitments.reserved) == 1
    assert commitments.problem.startswith("Savings Plans aren't read: Connection was closed")


def test_odd_answers_are_named_and_the_rest_is_read(cloud: Cloud) -> None:
    cloud.purchases.reserve("m6i.large", 1, instanceType="")
    cloud.purchases.commit(1.0, commitment="much")
    kept = cloud.purchases.reserve("c6i.large", 2), cloud.purchases.commit(1.0, family="c6i")
    commitments = read()
    assert (commitments.reserved[0].id, commitments.plans[0].id) == kept
    assert commitments.problem == (
        "Reserved Instances ri-00000000000000001 can't be counted: it has no InstanceType; "
        "Savings Plan sp-00000001 can't be counted: commitment is 'much'"
    )
