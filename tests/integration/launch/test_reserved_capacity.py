"""Capacity reservations: those that the class selects are used first, and on-demand launches don't use them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shared.api import labels
from shared.api.meta import condition
from shared.api.nodeclass import CapacityReservationSelectorTerm
from shared.base import aws
from shared.base.struct import with_fields
from shared.cloud_provider import LaunchedInstance
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.instance_types.provider import build_instance_types

Account = Any
"""The fixture's class: tests can't import from conftest."""

ID = "cr-0123456789abcdef0"


@pytest.fixture
def reserved(account: Account) -> Account:
    """An account with one reservation, which moto has no notion of."""
    listed = [
        {
            "CapacityReservationId": ID,
            "InstanceType": "m5.large",
            "AvailabilityZone": "us-east-1b",
            "AvailableInstanceCount": 2,
            "InstancePlatform": "Linux/UNIX",
            "Tenancy": "default",
            "OwnerId": "111122223333",
        },
        {"CapacityReservationId": "cr-windows", "InstancePlatform": "Windows", "InstanceType": "m5.large"},
        {"CapacityReservationId": "cr-new", "ReservationType": "new-kind", "InstanceType": "p5.48xlarge"},
    ]

    def answer(**_: object) -> Any:
        metadata = {"ResponseMetadata": {"HTTPStatusCode": 200}}
        return SimpleNamespace(status_code=200), {"CapacityReservations": listed, **metadata}

    aws.ec2().meta.events.register("before-call.ec2.DescribeCapacityReservations", answer)
    return account


def raw(account: Account) -> InstanceTypeCatalog:
    hardware = Hardware(
        name="m5.large",
        arch="amd64",
        vcpus=2,
        memory_mib=8192,
        interfaces=3,
        addresses=10,
        capacity_types=("on-demand", "spot"),
    )
    now = account.now
    return InstanceTypeCatalog(
        region="us-east-1",
        types_at=now,
        prices_at=now,
        hardware=(hardware,),
        zones=dict.fromkeys(account.subnets, ""),
        offered={"m5.large": tuple(account.subnets)},
        on_demand={"m5.large": 0.096},
        spot={"m5.large": dict.fromkeys(account.subnets, 0.03)},
    )


def test_a_reserved_instance_is_launched_into_its_reservation(reserved: Account) -> None:
    node_class = reserved.ready(capacity_reservation_selector_terms=[CapacityReservationSelectorTerm(id=ID)])
    types = build_instance_types(raw(reserved), node_class, None, zones=reserved.subnets, unavailable=())
    (offering,) = [o for o in types[0].offerings if o.capacity_type == labels.RESERVED]
    assert offering.labels["karpenter.k8s.aws/capacity-reservation-id"] == ID
    assert offering.price < 0.000001
    (result,) = reserved.launch([reserved.claim("web")], types, node_class=node_class)
    assert isinstance(result, LaunchedInstance)
    assert (result.capacity_type, result.zone) == ("reserved", "us-east-1b")
    (request,) = reserved.fleets.requests
    assert request["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "on-demand"
    assert reserved.template_data()["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": ID},
    }


def test_an_interruptible_reservation_is_launched_as_such_and_after_the_rest(reserved: Account) -> None:
    node_class = reserved.ready(capacity_reservation_selector_terms=[CapacityReservationSelectorTerm(id=ID)])
    (usual,) = node_class.status.capacity_reservations
    interruptible = with_fields(usual, id="cr-interruptible", availability_zone="us-east-1a", interruptible=True)

    def first_request(*reservations: Any) -> dict[str, Any]:
        status = with_fields(node_class.status, capacity_reservations=list(reservations))
        selected = with_fields(node_class, status=status)
        types = build_instance_types(raw(reserved), selected, None, zones=reserved.subnets, unavailable=())
        before = len(reserved.fleets.requests)
        claim = reserved.claim(f"web-{len(reservations)}", group=reservations[0].id)
        reserved.launch([claim], types, node_class=selected)
        request: dict[str, Any] = reserved.fleets.requests[before]
        return request

    request = first_request(usual, interruptible)
    assert "ReservedCapacityOptions" not in request
    assert [o["AvailabilityZone"] for o in request["LaunchTemplateConfigs"][0]["Overrides"]] == ["us-east-1b"]

    request = first_request(interruptible)  # moto doesn't launch it
    assert [o["AvailabilityZone"] for o in request["LaunchTemplateConfigs"][0]["Overrides"]] == ["us-east-1a"]
    assert request["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "reserved-capacity"
    assert request["ReservedCapacityOptions"] == {"ReservationTypes": ["interruptible-capacity-reservation"]}
    assert "OnDemandOptions" not in request
    templates = [
        t["LaunchTemplateData"]
        for t in aws.ec2().describe_launch_template_versions(Versions=["$Latest"])["LaunchTemplateVersions"]
    ]
    (data,) = (t for t in templates if "InstanceMarketOptions" in t)
    assert data["InstanceMarketOptions"] == {"MarketType": "interruptible-capacity-reservation"}
    assert data["CapacityReservationSpecification"]["CapacityReservationTarget"] == {
        "CapacityReservationId": "cr-interruptible"
    }


def test_on_demand_leaves_the_reservation_to_claims_that_are_planned_for_it(reserved: Account) -> None:
    node_class = reserved.ready(capacity_reservation_selector_terms=[CapacityReservationSelectorTerm(id=ID)])
    on_demand = reserved.claim("web", (labels.CAPACITY_TYPE, "In", ["on-demand"]))
    reserved.launch([on_demand], [reserved.instance_type("m5.large", on_demand=0.096)], node_class=node_class)
    assert reserved.template_data()["CapacityReservationSpecification"] == {"CapacityReservationPreference": "none"}


def test_a_full_reservation_is_not_available(reserved: Account) -> None:
    node_class = reserved.ready(capacity_reservation_selector_terms=[CapacityReservationSelectorTerm(id=ID)])
    (reservation,) = node_class.status.capacity_reservations
    status = with_fields(
        node_class.status, capacity_reservations=[with_fields(reservation, available_instance_count=0)]
    )
    full = with_fields(node_class, status=status)
    types = build_instance_types(raw(reserved), full, None, zones=reserved.subnets, unavailable=())
    assert [o.available for o in types[0].offerings if o.capacity_type == labels.RESERVED] == [False]


def test_terms_that_select_no_reservation_are_reported_and_the_class_stays_ready(reserved: Account) -> None:
    term = CapacityReservationSelectorTerm(id="cr-none")
    status = reserved.status(reserved.node_class(capacity_reservation_selector_terms=[term]))
    reported = condition(status.conditions, "CapacityReservationsReady")
    assert reported is not None
    assert (reported.status, reported.reason) == ("True", "CapacityReservationsNotFound")
    assert 'spec.capacityReservationSelectorTerms[0].id "cr-none"' in reported.message
    ready = condition(status.conditions, "Ready")
    assert ready is not None
    assert ready.status == "True"


@pytest.mark.parametrize(
    ("id_", "why"), [("cr-new", "a new-kind, which Tenon can't launch into"), ("cr-windows", "for Windows")]
)
def test_an_unusable_reservation_is_reported_with_the_reason(reserved: Account, id_: str, why: str) -> None:
    term = CapacityReservationSelectorTerm(id=id_)
    status = reserved.status(reserved.node_class(capacity_reservation_selector_terms=[term]))
    reported = condition(status.conditions, "CapacityReservationsReady")
    assert reported is not None
    assert (reported.status, reported.reason) == ("True", "CapacityReservationsNotFound")
    assert f"{id_} is {why}" in reported.message
