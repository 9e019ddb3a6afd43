"""Where a NodeOverlay sets a price, EC2 is given priorities, because it would choose by its own prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shared.api import labels
from shared.base.struct import with_fields
from shared.cloud_provider import LaunchedInstance
from shared.instance_types.overlays import apply_overlays
from tests.unit.instance_types.node_overlays import overlay

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType

    Types = tuple[InstanceType, ...]

Account = Any
"""The fixture's class: tests can't import from conftest."""

ON_DEMAND = (labels.CAPACITY_TYPE, "In", ["on-demand"])
SPOT = (labels.CAPACITY_TYPE, "In", ["spot"])


@pytest.fixture
def types(account: Account) -> Types:
    return (
        account.instance_type("m5.large", spot=0.030, on_demand=0.096),
        account.instance_type("m5a.large", spot=0.0301, on_demand=0.086),
        account.instance_type("r5.large", spot=0.0302, on_demand=0.126),
    )


def with_price(types: Types, name: str, price: str) -> Types:
    overlays = (overlay("o", (labels.INSTANCE_TYPE, "In", [name]), price=price),)
    return apply_overlays({"default": types}, {"default": {}}, overlays).instance_types["default"]


def priorities(request: dict[str, Any]) -> dict[str, set[float]]:
    by_type: dict[str, set[float]] = {}
    for config in request["LaunchTemplateConfigs"]:
        for override in config["Overrides"]:
            by_type.setdefault(override["InstanceType"], set()).add(override["Priority"])
    return by_type


def test_on_demand_instances_are_launched_by_the_priority_of_the_overlaid_price(account: Account, types: Types) -> None:
    (result,) = account.launch([account.claim("web", ON_DEMAND)], with_price(types, "r5.large", "0.05"))
    (request,) = account.fleets.requests
    assert request["OnDemandOptions"] == {"AllocationStrategy": "prioritized"}
    assert priorities(request) == {"r5.large": {0.0}, "m5a.large": {1.0}, "m5.large": {2.0}}
    assert isinstance(result, LaunchedInstance)
    assert result.price == 0.05


def test_spot_instances_are_launched_by_capacity_and_priority(account: Account, types: Types) -> None:
    account.launch([account.claim("web", SPOT)], with_price(types, "r5.large", "0.0299"))
    (request,) = account.fleets.requests
    assert request["SpotOptions"] == {"AllocationStrategy": "capacity-optimized-prioritized"}
    assert priorities(request) == {"r5.large": {0.0}, "m5.large": {1.0}, "m5a.large": {2.0}}


def test_a_call_without_overlaid_offerings_is_as_without_overlays(account: Account, types: Types) -> None:
    not_offered = with_price(types, "r5.large", "9")
    account.launch([account.claim("web", ON_DEMAND)], tuple(t for t in not_offered if t.name != "r5.large"))
    (request,) = account.fleets.requests
    assert request["OnDemandOptions"] == {"AllocationStrategy": "lowest-price"}
    assert all(
        override.keys() == {"InstanceType", "SubnetId", "AvailabilityZone"}
        for config in request["LaunchTemplateConfigs"]
        for override in config["Overrides"]
    )


def test_extended_resources_of_an_overlay_are_on_the_claim_before_there_is_a_node(
    account: Account, types: Types
) -> None:
    overlays = (overlay("o", capacity={"example.com/device": "4"}),)
    overlaid = apply_overlays({"default": types}, {"default": {}}, overlays).instance_types["default"]
    (result,) = account.launch([account.claim("web", ON_DEMAND)], overlaid)
    assert isinstance(result, LaunchedInstance)
    assert result.capacity["example.com/device"] == result.allocatable["example.com/device"] == 4
    assert with_fields(overlaid[0], capacity=types[0].capacity) == types[0]
