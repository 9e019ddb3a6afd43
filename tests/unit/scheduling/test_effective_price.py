"""Offerings whose price differs from what decisions compare: the effective price decides, the price is reported."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bench import consolidation as sample
from shared.api import labels
from shared.base.struct import with_fields
from shared.instance_types.instance_type import InstanceType, Offering
from shared.scheduling.decision import CheapestOffering, Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def priced(instance_type: InstanceType, price: float, adjusted: float | None = None) -> InstanceType:
    offering = Offering(zone="z-a", capacity_type=labels.ON_DEMAND, price=price, adjusted_price=adjusted)
    return with_fields(instance_type, offerings=(offering,))


def cheapest(*types: InstanceType) -> CheapestOffering:
    snapshot = Snapshot(taken_at=NOW, pods=(sample.pod("web", (1000, 1024)),), node_pools=(sample.pool(),))
    decision = schedule(Problem(snapshot=snapshot, instance_types={"default": types}))
    assert not decision.pod_errors
    return decision.new_node_claims[0].cheapest


def test_the_effective_price_decides_and_the_price_is_reported() -> None:
    small, large = sample.instance_types()[:2]
    assert cheapest(priced(small, 0.1), priced(large, 0.2)).instance_type == small.name
    paid = cheapest(priced(small, 0.1), priced(large, 0.2, adjusted=0.01))
    assert (paid.instance_type, paid.price, paid.effective_price) == (large.name, 0.2, 0.01)


def test_without_an_adjustment_both_are_the_same() -> None:
    offering = cheapest(priced(sample.instance_types()[0], 0.1))
    assert offering.adjusted_price is None
    assert offering.effective_price == pytest.approx(0.1) == offering.price
