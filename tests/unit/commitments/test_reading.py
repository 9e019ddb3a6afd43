"""Which commitments and instances count, from AWS's answers, and what is said about those that can't be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shared.commitments import reading
from shared.commitments.commitment import ReservedInstances, SavingsPlan

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
LATER = NOW + timedelta(days=100)
REGION = "eu-central-1"
YEAR = 31_536_000


def reserved(**changes: object) -> dict[str, Any]:
    """A purchase as DescribeReservedInstances describes it; None leaves a field out."""
    description = {
        "ReservedInstancesId": "ri-1",
        "InstanceType": "m6i.large",
        "InstanceCount": 3,
        "ProductDescription": "Linux/UNIX",
        "InstanceTenancy": "default",
        "State": "active",
        "Scope": "Region",
        "Start": NOW - timedelta(days=265),
        "End": LATER,
        "Duration": YEAR,
        "FixedPrice": 0.0,
        "UsagePrice": 0.0,
        "RecurringCharges": [{"Amount": 0.06, "Frequency": "Hourly"}],
        **changes,
    }
    return {key: value for key, value in description.items() if value is not None}


def plan(**changes: object) -> dict[str, Any]:
    """A Savings Plan as DescribeSavingsPlans describes it; None leaves a field out."""
    description = {
        "savingsPlanId": "sp-1",
        "savingsPlanType": "Compute",
        "state": "active",
        "start": "2026-03-04T15:00:00.000Z",
        "end": "2027-03-04T14:59:59.000Z",
        "currency": "USD",
        "commitment": "1.50000000",
        "productTypes": ["EC2", "Fargate", "Lambda"],
        **changes,
    }
    return {key: value for key, value in description.items() if value is not None}


def rate(instance_type: str, value: str, **changes: object) -> dict[str, Any]:
    """A rate as DescribeSavingsPlanRates describes it; the changes are of its properties or its fields."""
    properties = {
        "region": REGION,
        "instanceType": instance_type,
        "instanceFamily": instance_type.partition(".")[0],
        "productDescription": "Linux/UNIX",
        "tenancy": "shared",
    }
    fields: dict[str, Any] = {
        "rate": value,
        "currency": "USD",
        "unit": "Hrs",
        "productType": "EC2",
        "serviceCode": "AmazonEC2",
        "usageType": f"EUC1-BoxUsage:{instance_type}",
        "operation": "RunInstances",
    }
    fields |= {key: value for key, value in changes.items() if key in fields}
    properties |= {key: str(value) for key, value in changes.items() if key not in fields}
    return {**fields, "properties": [{"name": name, "value": text} for name, text in properties.items()]}


def instance(**changes: object) -> InstanceTypeDef:
    """A running instance as DescribeInstances describes it."""
    described: Any = {
        "InstanceId": "i-1",
        "InstanceType": "m6i.large",
        "PlatformDetails": "Linux/UNIX",
        "Placement": {"AvailabilityZone": f"{REGION}a", "Tenancy": "default"},
        **changes,
    }
    return described  # type: ignore[no-any-return]


def read_reserved(*described: dict[str, Any]) -> tuple[tuple[ReservedInstances, ...], list[str]]:
    problems: list[str] = []
    return reading.reserved_instances(described, now=NOW, problems=problems), problems


def read_plans(*described: dict[str, Any]) -> tuple[tuple[SavingsPlan, ...], list[str]]:
    problems: list[str] = []
    return reading.savings_plans(described, region=REGION, now=NOW, problems=problems), problems


def test_a_regional_purchase_has_no_zone_even_if_ec2_names_one() -> None:
    (read,), problems = read_reserved(reserved(AvailabilityZone=f"{REGION}a"))
    assert read == ReservedInstances(id="ri-1", instance_type="m6i.large", count=3, hourly=0.06, ends=LATER)
    assert problems == []


def test_a_zonal_purchase_has_its_zone() -> None:
    (read,), _ = read_reserved(reserved(Scope="Availability Zone", AvailabilityZone=f"{REGION}b"))
    assert read.zone == f"{REGION}b"


def test_upfront_payments_are_spread_over_the_term() -> None:
    (partial,), _ = read_reserved(reserved(FixedPrice=876.0))
    (all_upfront,), _ = read_reserved(reserved(FixedPrice=876.0, RecurringCharges=[]))
    assert partial.hourly == pytest.approx(0.16)
    assert all_upfront.hourly == pytest.approx(0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"State": "payment-pending"},
        {"State": "retired"},
        {"State": "queued"},
        {"State": None},
        {"End": NOW},
        {"InstanceTenancy": "dedicated"},
        {"ProductDescription": "Windows"},
        {"ProductDescription": "Red Hat Enterprise Linux"},
        {"ProductDescription": None},
        {"InstanceCount": 0},
    ],
)
def test_other_purchases_do_not_count(changes: dict[str, object]) -> None:
    read, problems = read_reserved(reserved(**changes), reserved(ReservedInstancesId="ri-2"))
    assert ([r.id for r in read], problems) == (["ri-2"], [])


def test_purchases_for_a_vpc_count() -> None:
    read, _ = read_reserved(reserved(ProductDescription="Linux/UNIX (Amazon VPC)"))
    assert len(read) == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"InstanceType": None}, "Reserved Instances ri-1 can't be counted: it has no InstanceType"),
        ({"End": None}, "Reserved Instances ri-1 can't be counted: End is None"),
        ({"Scope": "Availability Zone"}, "Reserved Instances ri-1 can't be counted: it has no AvailabilityZone"),
        (
            {"FixedPrice": 100.0, "Duration": None},
            "Reserved Instances ri-1 can't be counted: it has a FixedPrice and no Duration",
        ),
        (
            {"ReservedInstancesId": None},
            "Reserved Instances (without id) can't be counted: it has no ReservedInstancesId",
        ),
    ],
)
def test_a_purchase_that_can_not_be_read_is_a_problem_and_the_rest_counts(
    changes: dict[str, object], problem: str
) -> None:
    read, problems = read_reserved(reserved(**changes), reserved(ReservedInstancesId="ri-2"))
    assert ([r.id for r in read], problems) == (["ri-2"], [problem])


def test_plans_of_both_kinds_count() -> None:
    family = plan(savingsPlanId="sp-0", savingsPlanType="EC2Instance", region=REGION, ec2InstanceFamily="m6i")
    ends = datetime(2027, 3, 4, 14, 59, 59, tzinfo=UTC)
    assert read_plans(plan(), family) == (
        (
            SavingsPlan(id="sp-0", kind="EC2Instance", family="m6i", commitment=1.5, rates={}, ends=ends),
            SavingsPlan(id="sp-1", kind="Compute", commitment=1.5, rates={}, ends=ends),
        ),
        [],
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "queued"},
        {"state": "payment-pending"},
        {"state": "returned"},
        {"state": None},
        {"end": "2026-11-24T12:00:00.000Z"},
        {"savingsPlanType": "SageMaker"},
        {"savingsPlanType": "Database"},
        {"savingsPlanType": None},
        {"savingsPlanType": "EC2Instance", "region": "us-east-1", "ec2InstanceFamily": "m6i"},
    ],
)
def test_other_plans_do_not_count(changes: dict[str, object]) -> None:
    read, problems = read_plans(plan(**changes), plan(savingsPlanId="sp-2"))
    assert ([p.id for p in read], problems) == (["sp-2"], [])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"commitment": "a lot"}, "Savings Plan sp-1 can't be counted: commitment is 'a lot'"),
        ({"commitment": "NaN"}, "Savings Plan sp-1 can't be counted: commitment is 'NaN'"),
        ({"commitment": None}, "Savings Plan sp-1 can't be counted: commitment is None"),
        ({"end": "tomorrow"}, "Savings Plan sp-1 can't be counted: end is 'tomorrow'"),
        ({"currency": "EUR"}, "Savings Plan sp-1 can't be counted: its currency is EUR, and prices are in USD"),
        ({"savingsPlanId": None}, "Savings Plan (without id) can't be counted: it has no savingsPlanId"),
        (
            {"savingsPlanType": "EC2Instance", "region": REGION},
            "Savings Plan sp-1 can't be counted: it has no ec2InstanceFamily",
        ),
    ],
)
def test_a_plan_that_can_not_be_read_is_a_problem_and_the_rest_counts(changes: dict[str, object], problem: str) -> None:
    read, problems = read_plans(plan(**changes), plan(savingsPlanId="sp-2"))
    assert ([p.id for p in read], problems) == (["sp-2"], [problem])


def test_rates_are_of_running_linux_instances_with_shared_tenancy() -> None:
    results = [
        rate("m6i.large", "0.0700000000"),
        rate("m6i.xlarge", "0.14", tenancy="Shared", usageType="BoxUsage:m6i.xlarge"),
        rate("m6i.large", "0.0010", usageType="EUC1-UnusedBox:m6i.large"),
        rate("m6i.large", "0.0020", tenancy="dedicated", usageType="EUC1-DedicatedUsage:m6i.large"),
        rate("m6i.large", "0.0030", usageType="EUC1-HostBoxUsage:m6i"),
        rate("m6i.large", "0.0040", productDescription="Windows (Amazon VPC)"),
        rate("m6i.large", "0.0050", region="us-east-1"),
        rate("m6i.large", "0.0060", productType="Fargate"),
        rate("m6i.large", "0.0070", unit="Lambda-GB-Second"),
        rate("c6i.large", "unknown"),
        {"rate": "0.01"},
        {},
    ]
    assert reading.rates(results, region=REGION) == {"m6i.large": 0.07, "m6i.xlarge": 0.14}


@pytest.mark.parametrize(
    ("changes", "is_covered"),
    [
        ({}, True),
        ({"CapacityReservationId": "cr-1"}, True),
        ({"Placement": {"AvailabilityZone": f"{REGION}a"}, "PlatformDetails": "Linux/UNIX"}, True),
        ({"InstanceLifecycle": "spot"}, False),
        ({"InstanceLifecycle": "capacity-block"}, False),
        ({"PlatformDetails": "Windows"}, False),
        ({"PlatformDetails": "Red Hat Enterprise Linux"}, False),
        ({"Placement": {"AvailabilityZone": f"{REGION}a", "Tenancy": "dedicated"}}, False),
    ],
)
def test_commitments_cover_on_demand_linux_instances_with_shared_tenancy(
    changes: dict[str, object], *, is_covered: bool
) -> None:
    assert reading.is_covered(instance(**changes)) is is_covered


@pytest.mark.parametrize(
    ("tags", "cluster"),
    [
        ({"eks:eks-cluster-name": "prod", "kubernetes.io/cluster/prod": "owned"}, "prod"),
        ({"aws:eks:cluster-name": "prod"}, "prod"),
        ({"eks:cluster-name": "prod", "eks:nodegroup-name": "workers"}, "prod"),
        ({"kubernetes.io/cluster/prod": "owned"}, "prod"),
        ({"kubernetes.io/cluster/prod": "shared", "Name": "bastion"}, "prod"),
        ({"kubernetes.io/cluster/prod": "shared", "kubernetes.io/cluster/dev": "shared"}, ""),
        ({"Name": "database"}, ""),
        ({}, ""),
    ],
)
def test_the_cluster_of_an_instance_is_in_its_tags(tags: dict[str, str], cluster: str) -> None:
    described = instance(Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    assert reading.cluster_of(described) == cluster
