"""The first request for spot instances has only the pools of nearly the least expected price; the next one has all."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import labels
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.spot import SpotOptions
from shared.base import aws
from shared.base.struct import with_fields
from shared.cloud_provider import LaunchedInstance
from shared.instance_types.interruption_rates import rate

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType

    Types = tuple[InstanceType, ...]

Account = Any
"""The fixture's class: tests can't import from conftest."""

SPOT = (labels.CAPACITY_TYPE, "In", ["spot"])
A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"


def by_zone(instance_type: InstanceType, prices: dict[str, float]) -> InstanceType:
    """The type with another spot price in each zone."""
    offerings = tuple(with_fields(o, price=prices[o.zone]) for o in instance_type.offerings)
    return with_fields(instance_type, offerings=offerings)


@pytest.fixture
def types(account: Account) -> Types:
    return (
        by_zone(account.instance_type("m5.large", spot=1.0), {A: 0.0300, B: 0.0304, C: 0.0310}),
        by_zone(account.instance_type("c5.large", spot=1.0), {A: 0.0303, B: 0.0400, C: 0.0400}),
    )


def test_only_pools_of_nearly_the_least_price_are_requested_first(account: Account, types: Types) -> None:
    account.launch([account.claim("web", SPOT)], types)
    assert account.offered() == {("m5.large", A), ("m5.large", B), ("c5.large", A)}
    assert account.fleets.calls == 1


def test_a_pool_with_interruptions_is_left_out_when_they_cost_more_than_it_saves(
    account: Account, types: Types
) -> None:
    account.launch([account.claim("web", SPOT)], types, interruption_rates={("m5.large", A): rate(2, 50)})
    assert account.offered() == {("m5.large", B), ("c5.large", A)}


def test_min_values_and_replacements_keep_every_pool(account: Account, types: Types) -> None:
    distinct = account.claim("distinct", SPOT, group="one")
    two_types = NodeSelectorRequirement(key=labels.INSTANCE_TYPE, operator="Exists", values=[], min_values=2)
    spec = with_fields(distinct.spec, requirements=[*distinct.spec.requirements, two_types])
    replacement = account.claim("replacement", SPOT, group="two")
    replacement.metadata.annotations[labels.REPLACES] = "decision"
    for claim in (with_fields(distinct, spec=spec), replacement):
        account.launch([claim], types)
        assert len(account.offered()) == 6


def test_at_least_as_many_pools_are_requested_as_the_nodepool_says(account: Account, types: Types) -> None:
    def offered(diversity: int) -> set[tuple[str, str]]:
        claim = account.claim("web", SPOT, group=f"group-{diversity}")
        account.launch([claim], types, spot_options=SpotOptions(diversity=diversity))
        return set(account.offered())

    narrow = {("m5.large", A), ("m5.large", B), ("c5.large", A)}
    assert offered(2) == offered(3) == narrow
    assert offered(4) == {*narrow, ("m5.large", C)}
    assert len(offered(60)) == 6


def test_ec2_chooses_by_capacity_among_all_pools_if_the_nodepool_says_so(account: Account, types: Types) -> None:
    def strategy() -> str:
        return str(account.fleets.requests[-1]["SpotOptions"]["AllocationStrategy"])

    account.launch([account.claim("web", SPOT)], types)
    assert strategy() == "price-capacity-optimized"
    options = SpotOptions(allocation_strategy="capacity-optimized")
    account.launch([account.claim("web-2", SPOT, group="two")], types, spot_options=options)
    assert strategy() == "capacity-optimized"
    assert len(account.offered()) == 6


def test_without_capacity_in_the_cheapest_pools_the_others_are_requested_at_once(
    account: Account, types: Types
) -> None:
    account.fleets.without_capacity = {("spot", "m5.large", A), ("spot", "m5.large", B), ("spot", "c5.large", A)}
    results = account.launch([account.claim(f"web-{i}", SPOT) for i in range(3)], types)
    assert {(r.instance_type, r.zone) for r in results} <= {("m5.large", C), ("c5.large", B), ("c5.large", C)}
    assert account.offered() == {("m5.large", C), ("c5.large", B), ("c5.large", C)}
    assert account.fleets.calls == 2
    assert all(set(r.unavailable) == account.fleets.without_capacity for r in results)


def test_a_partly_filled_request_is_completed_from_the_other_pools(account: Account, types: Types) -> None:
    account.fleets.limits = {("spot", "m5.large", A): 2}
    account.fleets.without_capacity = {("spot", "m5.large", B), ("spot", "c5.large", A)}
    results = account.launch([account.claim(f"web-{i}", SPOT) for i in range(5)], types)
    assert all(isinstance(r, LaunchedInstance) for r in results)
    assert sum((r.instance_type, r.zone) == ("m5.large", A) for r in results) == 2
    assert len(account.running()) == 5


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("moment", ["before-call", "after-call"])
def test_dying_between_the_two_requests_leaves_one_instance_a_claim(
    account: Account, types: Types, moment: str, call: int
) -> None:
    account.fleets.limits = {("spot", "m5.large", A): 2}
    account.fleets.without_capacity = {("spot", "m5.large", B), ("spot", "c5.large", A)}
    claims, node_class = [account.claim(f"web-{i}", SPOT) for i in range(5)], account.ready()
    seen = 0

    class Died(Exception):  # noqa: N818 (the process, not an error)
        pass

    def die(**_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == call:
            raise Died

    aws.ec2_without_retries().meta.events.register_last(f"{moment}.ec2.CreateFleet", die)
    with contextlib.suppress(Died):
        account.launch(claims, types, node_class=node_class)
    account.restart()
    after = account.launch(claims, types, node_class=node_class)
    assert all(isinstance(r, LaunchedInstance) for r in after)
    assert len({r.instance_id for r in after}) == len(account.running()) == 5
    cheaper = (by_zone(types[0], {A: 0.0300, B: 0.0200, C: 0.0310}), types[1])
    assert [r.instance_id for r in account.launch(claims, cheaper, node_class=node_class)] == [
        r.instance_id for r in after
    ]
    assert len(account.running()) == 5
