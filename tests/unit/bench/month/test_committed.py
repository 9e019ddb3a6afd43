"""A month with commitments: the optimum of small cases is known, and no bill is lower than the optimum."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.month import bill, committed, price_bound, purchases
from bench.month.capacity_program import CapacityProgram
from bench.month.catalog import DEFAULT_POOL, RESOURCES, START, ZONES, Catalog, Offerings, month_catalog
from bench.month.load_generator import HOUR
from bench.month.simulated_cluster import SimulatedCluster
from bench.month.tenon_rules import TenonRules
from shared.base.struct import with_fields
from shared.commitments.commitment import Commitments, ReservedInstances, SavingsPlan
from shared.instance_types.instance_type import InstanceType, Offering

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

LATER = START.replace(year=START.year + 1)
ON_DEMAND, SPOT = "on-demand", "spot"
PRICES = {"m5.large": 0.1, "m5.xlarge": 0.2, "c5.large": 0.08}
VCPUS = {"m5.large": 2, "m5.xlarge": 4, "c5.large": 2}


def catalog(spot: Mapping[str, float] | None = None, zones: tuple[str, ...] = ZONES) -> Catalog:
    """These types in these zones, with spot offerings at these prices; c5 has half the memory of m5."""
    types = tuple(
        InstanceType(
            name=name,
            labels={},
            capacity={"cpu": vcpus * 1000, "memory": vcpus * (2 if name.startswith("c") else 4) * 2**30, "pods": 100},
            overhead={},
            offerings=tuple(
                Offering(zone=zone, capacity_type=capacity_type, price=price)
                for zone in zones
                for capacity_type, price in ((ON_DEMAND, PRICES[name]), (SPOT, (spot or {}).get(name)))
                if price is not None
            ),
        )
        for name, vcpus in VCPUS.items()
    )
    offerings = Offerings(types=types, capacity_types=(SPOT, ON_DEMAND))
    return Catalog(pools=(), offerings={DEFAULT_POOL: offerings})


def need(*, vcpus: float, gib: float) -> NDArray[np.float64]:
    return np.array([[vcpus * 1000, gib * 2**30, 0, 0]])


def reserved(instance_type: str, count: int, zone: str = "") -> Commitments:
    bought = ReservedInstances(id="r", instance_type=instance_type, zone=zone, count=count, hourly=0.06, ends=LATER)
    return Commitments(fetched_at=START, reserved=(bought,))


def plan(commitment: float, discount: float = 0.5, family: str = "") -> Commitments:
    rates = {t: p * (1 - discount) for t, p in PRICES.items() if not family or t.startswith(f"{family}.")}
    bought = SavingsPlan(
        id="p",
        kind="EC2Instance" if family else "Compute",
        family=family,
        commitment=commitment,
        rates=rates,
        ends=LATER,
    )
    return Commitments(fetched_at=START, plans=(bought,))


NOTHING = Commitments(fetched_at=START)
TWO_LARGE = need(vcpus=4, gib=16)


def test_without_commitments_the_cheapest_offering_is_bought() -> None:
    assert CapacityProgram(catalog(), NOTHING).least_rate(TWO_LARGE) == pytest.approx(0.2)
    with_spot = CapacityProgram(catalog(spot={"m5.large": 0.03}), NOTHING)
    assert with_spot.least_rate(TWO_LARGE) == pytest.approx(0.06)
    # four vCPUs with 12 GiB: one of each is cheaper than two of m5
    assert CapacityProgram(catalog(), NOTHING).least_rate(need(vcpus=4, gib=12)) == pytest.approx(0.18)


def test_an_instance_that_a_commitment_covers_costs_nothing_more_even_next_to_cheap_spot_capacity() -> None:
    program = CapacityProgram(catalog(spot={"m5.large": 0.03}), reserved("m5.large", 1))
    assert program.least_rate(need(vcpus=2, gib=8)) == pytest.approx(0)
    assert program.least_rate(TWO_LARGE) == pytest.approx(0.03)
    assert sum(n for column, n in program.solution().items() if column.commitment) == pytest.approx(1)


def test_regional_reserved_instances_cover_other_sizes_and_zonal_ones_only_their_type_in_their_zone() -> None:
    without_large = with_fields(catalog(), offerings={DEFAULT_POOL: _only("m5.xlarge")})
    two = need(vcpus=8, gib=32)
    assert CapacityProgram(without_large, reserved("m5.large", 2)).least_rate(two) == pytest.approx(0.2)
    assert CapacityProgram(without_large, reserved("m5.large", 2, ZONES[0])).least_rate(two) == pytest.approx(0.4)
    assert CapacityProgram(without_large, reserved("m5.xlarge", 1, ZONES[0])).least_rate(two) == pytest.approx(0.2)
    elsewhere = catalog(zones=ZONES[1:])
    assert CapacityProgram(elsewhere, reserved("m5.xlarge", 1, ZONES[0])).least_rate(two) == pytest.approx(0.4)


def _only(name: str) -> Offerings:
    offerings = catalog().offerings[DEFAULT_POOL]
    return with_fields(offerings, types=tuple(t for t in offerings.types if t.name == name))


def test_a_savings_plan_pays_what_its_rates_allow_and_the_rest_has_its_list_price() -> None:
    # 0.075 USD per hour pay one and a half instances at 0.05
    assert CapacityProgram(catalog(), plan(0.075)).least_rate(TWO_LARGE) == pytest.approx(0.05)
    # half of it is unused, which changes nothing: it is paid in any case
    assert CapacityProgram(catalog(), plan(0.2)).least_rate(TWO_LARGE) == pytest.approx(0)
    of_family = CapacityProgram(catalog(), plan(1.0, family="c5"))
    assert of_family.least_rate(need(vcpus=4, gib=8)) == pytest.approx(0)
    assert of_family.least_rate(TWO_LARGE) == pytest.approx(0)  # four of c5 have the memory
    assert CapacityProgram(catalog(), plan(1.0, family="m6i")).least_rate(TWO_LARGE) == pytest.approx(0.2)


def test_what_no_type_has_costs_infinitely_much() -> None:
    program = CapacityProgram(catalog(), NOTHING)
    gpu = need(vcpus=1, gib=1)
    gpu[0, RESOURCES.index("nvidia.com/gpu")] = 1
    assert program.least_rate(gpu) == float("inf")
    assert program.least_rate(TWO_LARGE) == pytest.approx(0.2)  # and is solved again afterwards


SECONDS = 4 * HOUR


def test_commitments_are_worth_their_share_of_the_usage_and_used_before_spot() -> None:
    both, seconds = month_catalog(committed.BOTH), SECONDS
    prices = purchases.on_demand_prices(both)
    trace = committed.generate("services", seed=1, seconds=seconds)
    uncommitted = SimulatedCluster(trace, month_catalog((ON_DEMAND,)), TenonRules(), seed=1, seconds=seconds).run()
    commitments = purchases.commitments_for(uncommitted.spans, prices, share=0.4, seconds=seconds)
    usage = bill.dollars(uncommitted.spans, bill.list_price(both))
    assert purchases.worth(commitments, prices) * seconds / HOUR == pytest.approx(0.4 * usage, rel=0.01)
    assert {p.kind for p in commitments.plans} == {"Compute", "EC2Instance"}
    assert commitments.reserved[0].count > 0

    rules = TenonRules(commitments=commitments)
    spans = SimulatedCluster(trace, both, rules, seed=1, seconds=seconds).run().spans
    assert {s.capacity_type for s in spans} == {SPOT, ON_DEMAND}
    on_demand = committed.on_demand_bill(commitments, prices)
    fees = on_demand({}).committed * seconds / HOUR
    assert bill.dollars(spans, lambda running: on_demand(running).unused) < 0.1 * fees

    program, total = CapacityProgram(both, commitments), committed.rate(commitments, both)
    fee = on_demand({}).committed
    steps = dict(enumerate(price_bound.needs(trace, seconds=seconds).transpose(1, 0, 2)))
    for (start, running), (end, _) in pairwise(bill.changes(spans)):
        optimum = fee + program.least_rate(committed.capacity(both, running))
        assert optimum <= total(running) + 1e-6
        for step in range(-(-start // price_bound.STEP), end // price_bound.STEP):
            assert program.least_rate(np.ascontiguousarray(steps[step])) <= total(running) - fee + 1e-6


def test_pods_of_the_load_of_whole_nodes_fill_a_node_of_the_largest_size_each() -> None:
    offerings = month_catalog(committed.BOTH).offerings[DEFAULT_POOL]
    pods = committed.generate(committed.WHOLE_NODES, seed=1, seconds=HOUR).pods
    shapes = {(p.cpu, p.memory) for p in pods}
    assert len(shapes) == 2
    largest = offerings.free[:, 0].max()
    for cpu, mib in shapes:
        fitting = (offerings.free[:, 0] >= cpu) & (offerings.free[:, 1] >= mib * 2**20)
        assert cpu == largest
        assert fitting.any()
        assert not ((offerings.free[fitting, 1] >= 2 * mib * 2**20) & (offerings.free[fitting, 0] >= 2 * cpu)).any()


def test_an_outcome_is_saved_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed, "RESULTS", tmp_path / "saved.json")
    outcome = committed.simulate("batch", seed=1, seconds=SECONDS)
    assert outcome.capacity_bound <= outcome.dollars + 1e-6
    assert outcome.requests_bound <= outcome.dollars + 1e-6
    assert outcome.committed_share == pytest.approx(0.4, abs=0.01)
    committed.save(outcome)
    rows = committed.run()
    assert [r["target"] for r in rows] == ["at most 102%", "-", "-", "-"]
    assert rows[0]["measurement"].startswith("batch: ")
