"""Lists of instance types that were worked out before are the identical objects, as far as the cache keeps them."""

from __future__ import annotations

from bench import consolidation as sample
from shared.base.struct import with_fields
from shared.instance_types.provider import Adjustment, InstanceTypeCache
from shared.instance_types.withheld_offerings import spot_above, zones

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
