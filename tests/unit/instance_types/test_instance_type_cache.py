"""Lists of instance types that were worked out before are the identical objects, as far as the cache keeps them."""

from __future__ import annotations

import gc
from datetime import UTC, datetime

from bench import consolidation as sample
from shared.api.meta import ObjectMeta
from shared.api.nodeclass import EC2NodeClass
from shared.base.struct import with_fields
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.instance_types.instance_type import InstanceType
from shared.instance_types.provider import Adjustment, InstanceTypeCache, list_instance_types, with_volumes
from shared.instance_types.withheld_offerings import spot_above, zones
from shared.scheduling.rules.requirements import only
from shared.scheduling.state.instance_type_arrays import InstanceTypeArrays, instance_type_arrays

TYPES = sample.instance_types()
A, B = sample.ZONES[:2]


def test_results_of_alternating_inputs_stay_the_identical_tuples() -> None:
    cache = InstanceTypeCache()
    few, many = cache.adjusted("p", TYPES, zones([A])), cache.adjusted("p", TYPES, zones([A, B]))
    assert few != many
    assert cache.adjusted("p", TYPES, zones({A})) is few
    assert cache.adjusted("p", TYPES, zones([B, A])) is many


def test_of_a_list_with_one_other_type_only_that_one_is_adjusted_again() -> None:
    cache = InstanceTypeCache()
    before = cache.adjusted("p", TYPES, zones([A]))
    changed = (with_fields(TYPES[0], volumes=3), *TYPES[1:])
    after = cache.adjusted("p", changed, zones([A]))
    assert [new is old for new, old in zip(after, before, strict=True)] == [False, *[True] * (len(TYPES) - 1)]
    assert after == zones([A]).of(changed)


def test_steps_and_nodepools_have_results_of_their_own() -> None:
    cache = InstanceTypeCache()
    same = Adjustment("same", None, lambda t: t)
    assert cache.adjusted("p", TYPES, same) is not cache.adjusted("q", TYPES, same)
    assert cache.adjusted("p", TYPES, spot_above(0.5)) == spot_above(0.5).of(TYPES)


def test_the_slots_that_were_used_last_are_kept() -> None:
    cache = InstanceTypeCache(max_slots=2)
    same = Adjustment("same", None, lambda t: t)
    first = cache.adjusted("a", TYPES, same)
    second = cache.adjusted("b", TYPES, same)
    assert cache.adjusted("a", TYPES, same) is first
    cache.adjusted("c", TYPES, same)
    assert cache.adjusted("a", TYPES, same) is first
    assert cache.adjusted("b", TYPES, same) is not second


# --- what a warm process keeps, while the cluster and its prices change ---


def alive(kind: type) -> int:
    return sum(isinstance(obj, kind) for obj in gc.get_objects())


def catalog(spot_price: float) -> InstanceTypeCatalog:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    hardware = Hardware(name="m5.large", arch="amd64", vcpus=2, memory_mib=8192, interfaces=3, addresses=10)
    return InstanceTypeCatalog(
        region="us-east-1",
        types_at=now,
        prices_at=now,
        hardware=(with_fields(hardware, capacity_types=("on-demand", "spot")),),
        zones={A: ""},
        offered={"m5.large": (A,)},
        on_demand={"m5.large": 0.096},
        spot={"m5.large": {A: spot_price}},
    )


def test_instance_types_of_earlier_prices_are_forgotten() -> None:
    """A list of a Region's types takes 8 MiB with its arrays, and prices change each quarter of an hour."""
    cache, volumes = InstanceTypeCache(), with_volumes(0.01)
    assert volumes is not None

    def decide(price: float) -> None:
        of_class = list_instance_types(
            catalog(price),
            EC2NodeClass(metadata=ObjectMeta(name="default")),
            zones={A},
            unavailable=(),
            observed_memory={},
            cache=cache,
        )
        instance_type_arrays(cache.adjusted("p", of_class, volumes))

    decide(0.01)
    gc.collect()
    before = alive(InstanceType), alive(InstanceTypeArrays)
    for i in range(20):
        decide(0.02 + i / 100)
    gc.collect()
    assert (alive(InstanceType), alive(InstanceTypeArrays)) <= before


def test_masks_of_instance_types_have_a_bound() -> None:
    arrays = instance_type_arrays(TYPES)
    for i in range(3_000):
        assert not arrays.types_allowed("node.kubernetes.io/instance-type", only(f"none-{i}")).any()
    assert len(arrays.masks) <= 1_024
