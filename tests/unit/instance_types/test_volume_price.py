"""Volumes of nodes count in the prices that decisions compare, and the price of the instance stays as it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from bench import consolidation as sample
from shared.api import labels
from shared.api.meta import ObjectMeta
from shared.api.nodeclass import (
    AMISelectorTerm,
    BlockDevice,
    BlockDeviceMapping,
    EC2NodeClass,
    EC2NodeClassSpec,
)
from shared.base.struct import with_fields
from shared.instance_types.instance_type import InstanceType, Offering
from shared.instance_types.provider import InstanceTypeCache, volume_gib, volume_price, with_volumes
from shared.instance_types.spot_risk import price_factor, spot_risk
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from shared.scheduling.decision import Decision

NOW = datetime(2026, 11, 24, tzinfo=UTC)
TYPES = sample.instance_types()


def node_class(*sizes: str | None, alias: str = "al2023@latest") -> EC2NodeClass:
    mappings = [
        BlockDeviceMapping(device_name=f"/dev/xvd{i}", ebs=BlockDevice(volume_size=size))
        for i, size in enumerate(sizes)
    ]
    terms = [AMISelectorTerm(alias=alias)] if alias else [AMISelectorTerm(id="ami-1")]
    return EC2NodeClass(
        metadata=ObjectMeta(name="default"),
        spec=EC2NodeClassSpec(ami_selector_terms=terms, block_device_mappings=mappings),
    )


def decide(types: tuple[InstanceType, ...], *sizes: tuple[int, int]) -> Decision:
    pods = tuple(sample.pod(f"web-{i}", size) for i, size in enumerate(sizes))
    snapshot = Snapshot(taken_at=NOW, pods=pods, node_pools=(sample.pool(),))
    return schedule(Problem(snapshot=snapshot, instance_types={"default": types}))


@pytest.mark.parametrize(
    ("chosen", "gib"),
    [
        (node_class(), 20),
        (node_class(alias="bottlerocket@latest"), 26),
        (node_class(alias="windows2022@latest"), 50),
        (node_class(alias=""), 0),
        (node_class("50Gi", "100G"), 50 + 94),
        (node_class("50Gi", None), 50),
    ],
)
def test_the_size_is_that_of_the_class_or_its_amis_default(chosen: EC2NodeClass, gib: int) -> None:
    assert volume_gib(chosen) == gib


def test_the_price_is_that_of_gp3_in_the_region_for_an_hour() -> None:
    assert volume_price(730, "us-east-1") == pytest.approx(0.08)
    assert volume_price(730, "eu-west-1") == pytest.approx(0.088)
    assert volume_price(20, "xx-new-1") > volume_price(20, "us-east-1") > 0


def test_few_large_nodes_are_cheaper_than_many_small_ones_once_their_volumes_count() -> None:
    def sized(name: str, cpu: int, price: float) -> InstanceType:
        offering = Offering(zone="us-east-1a", capacity_type=labels.ON_DEMAND, price=price)
        base = with_fields(TYPES[0], name=name, labels={**TYPES[0].labels, labels.INSTANCE_TYPE: name})
        capacity = {"cpu": cpu * 1000, "memory": cpu * 4 * 2**30, "pods": 110}
        return with_fields(base, capacity=capacity, overhead={}, offerings=(offering,))

    types = (sized("s.small", 1, 0.0099), sized("l.large", 4, 0.04))
    pods = [(1000, 1024)] * 4
    assert {c.cheapest.instance_type for c in decide(types, *pods).new_node_claims} == {"s.small"}
    volumes = with_volumes(0.002)
    assert volumes is not None
    (claim,) = decide(volumes.of(types), *pods).new_node_claims
    assert claim.cheapest.instance_type == "l.large"
    assert (claim.cheapest.price, claim.cheapest.volume_price) == (0.04, 0.002)
    assert claim.cheapest.adjusted_price is None
    assert claim.cheapest.effective_price == pytest.approx(0.042)


def test_without_volumes_prices_stay_as_they_are() -> None:
    assert with_volumes(0.0) is None


def test_interruptions_make_the_instance_more_expensive_and_not_its_volumes() -> None:
    offering = Offering(zone="us-east-1a", capacity_type=labels.SPOT, price=0.1)
    spot = (with_fields(TYPES[0], offerings=(offering,)),)
    volumes, risk = with_volumes(0.01), spot_risk({(TYPES[0].name, "us-east-1a"): 0.1})
    assert volumes is not None
    assert risk is not None
    for types in (volumes.of(risk.of(spot)), risk.of(volumes.of(spot))):
        assert types[0].offerings[0].effective_price == pytest.approx(0.1 * price_factor(0.1) + 0.01)


def test_equal_inputs_give_the_identical_types() -> None:
    cache = InstanceTypeCache()
    first, again = with_volumes(0.002), with_volumes(0.002)
    assert first is not None
    assert again is not None
    assert cache.adjusted("default", TYPES, first) is cache.adjusted("default", TYPES, again)
