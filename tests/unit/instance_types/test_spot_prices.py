"""Spot risk in the prices that decisions compare, and the limit of a spot price by the on-demand price."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import consolidation as sample
from shared.api import labels
from shared.base.struct import with_fields
from shared.instance_types.instance_type import InstanceType, Offering
from shared.instance_types.interruption_rates import DEFAULT_RATE, rate
from shared.instance_types.provider import InstanceTypeCache
from shared.instance_types.spot_risk import RESTART_HOURS, price_factor, spot_risk
from shared.instance_types.withheld_offerings import spot_above
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.scheduling.decision import Decision

NOW = datetime(2026, 11, 24, tzinfo=UTC)
A, B = sample.ZONES[:2]


def with_spot(instance_type: InstanceType, share: float = 0.4) -> InstanceType:
    """The type with spot offerings at a share of the on-demand price, a little more in each next zone."""
    spot = tuple(
        Offering(zone=o.zone, capacity_type=labels.SPOT, price=share * o.price * (1 + 0.01 * i))
        for i, o in enumerate(instance_type.offerings)
    )
    return with_fields(instance_type, offerings=(*instance_type.offerings, *spot))


TYPES = tuple(with_spot(t) for t in sample.instance_types())
POOLS = [(t.name, zone) for t in TYPES for zone in sample.ZONES]


def with_risk(types: tuple[InstanceType, ...], rates: Mapping[tuple[str, str], float]) -> tuple[InstanceType, ...]:
    risk = spot_risk(rates)
    return types if risk is None else risk.of(types)


def decision(types: tuple[InstanceType, ...], *sizes: tuple[int, int]) -> Decision:
    pods = tuple(sample.pod(f"web-{i}", size) for i, size in enumerate(sizes))
    snapshot = Snapshot(taken_at=NOW, pods=pods, node_pools=(sample.pool(),))
    return schedule(Problem(snapshot=snapshot, instance_types={"default": types}))


def spot_prices(types: tuple[InstanceType, ...], name: str) -> dict[str, float]:
    (named,) = (t for t in types if t.name == name)
    return {o.zone: o.effective_price for o in named.offerings if o.capacity_type == labels.SPOT}


def test_nothing_seen_changes_no_price() -> None:
    assert spot_risk({}) is None
    assert spot_risk(dict.fromkeys(POOLS, DEFAULT_RATE)) is None
    assert price_factor(rate(0, 0)) == price_factor(rate(1, 100_000)) == 1


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(100, 4000), st.integers(128, 8192)), min_size=1, max_size=12),
    st.dictionaries(st.sampled_from(POOLS), st.floats(0, DEFAULT_RATE)),
)
def test_without_more_interruptions_than_the_default_decisions_are_the_same(
    sizes: list[tuple[int, int]], rates: dict[tuple[str, str], float]
) -> None:
    before, after = decision(TYPES, *sizes), decision(with_risk(TYPES, rates), *sizes)
    assert (before.new_node_claims, before.pod_errors) == (after.new_node_claims, after.pod_errors)


def test_the_factor_is_the_additional_rate_times_the_restart_cost() -> None:
    assert price_factor(DEFAULT_RATE + 0.01) == pytest.approx(1 + 0.01 * RESTART_HOURS, abs=1e-4)
    ten_of_ten = price_factor(rate(10, 10))  # ten notices to ten instances in their first hour
    assert ten_of_ten == pytest.approx(1.029, abs=1e-3)


def test_only_spot_offerings_of_the_pool_cost_more_and_the_price_stays() -> None:
    name = TYPES[0].name
    risky = with_risk(TYPES, {(name, A): 0.1})
    factor = price_factor(0.1)
    before, after = spot_prices(TYPES, name), spot_prices(risky, name)
    assert after == {**before, A: pytest.approx(before[A] * factor)}
    assert [o.price for t in risky for o in t.offerings] == [o.price for t in TYPES for o in t.offerings]
    on_demand = [o for t in risky for o in t.offerings if o.capacity_type == labels.ON_DEMAND]
    assert all(o.adjusted_price is None for o in on_demand)


def test_the_factor_multiplies_an_adjusted_price() -> None:
    offering = Offering(zone=A, capacity_type=labels.SPOT, price=1.0, adjusted_price=0.5)
    (risky,) = with_risk((with_fields(TYPES[0], offerings=(offering,)),), {(TYPES[0].name, A): 0.1})
    assert risky.offerings[0].effective_price == pytest.approx(0.5 * price_factor(0.1))


def test_equal_inputs_give_the_identical_types() -> None:
    cache = InstanceTypeCache()
    rates = {(TYPES[0].name, A): 0.1}

    def risky(rates: Mapping[tuple[str, str], float]) -> tuple[InstanceType, ...]:
        risk = spot_risk(rates)
        assert risk is not None
        return cache.adjusted("default", TYPES, risk)

    first = risky(rates)
    assert risky({**rates, (TYPES[0].name, B): DEFAULT_RATE}) is first
    assert risky({(TYPES[0].name, A): 0.2}) != first
    assert risky(rates) is first
    limited = cache.adjusted("default", TYPES, spot_above(0.5))
    assert cache.adjusted("default", TYPES, spot_above(0.5)) is limited


def test_pods_go_to_a_zone_without_interruptions() -> None:
    (calm,) = decision(TYPES, (1000, 1024)).new_node_claims
    chosen = calm.cheapest
    assert (chosen.zone, chosen.capacity_type) == (A, labels.SPOT)
    rates = {(t.name, A): 0.1 for t in TYPES}
    (moved,) = decision(with_risk(TYPES, rates), (1000, 1024)).new_node_claims
    assert (moved.cheapest.zone, moved.cheapest.instance_type) == (B, chosen.instance_type)


def test_spot_offerings_above_the_share_are_not_available() -> None:
    limited = spot_above(0.402).of(TYPES)
    available = {(o.zone, o.capacity_type) for t in limited for o in t.offerings if o.available}
    assert available == {(A, labels.SPOT), *((z, labels.ON_DEMAND) for z in sample.ZONES)}
    (claim,) = decision(spot_above(0.1).of(TYPES), (1000, 1024)).new_node_claims
    assert claim.cheapest.capacity_type == labels.ON_DEMAND


def test_a_type_without_an_on_demand_price_keeps_its_spot_offerings() -> None:
    spot_only = with_fields(TYPES[0], offerings=tuple(o for o in TYPES[0].offerings if o.capacity_type == labels.SPOT))
    assert spot_above(0.01).of((spot_only,)) == (spot_only,)
