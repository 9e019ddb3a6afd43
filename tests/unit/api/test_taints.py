from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.api.kubernetes import Taint, Toleration
from shared.api.taints import (
    NO_EXECUTE,
    equal,
    format_taint,
    same_taint,
    tolerates,
    tolerates_all,
    untolerated,
    with_taint,
    without_taint,
)

GPU = Taint(key="gpu", value="true", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(key="gpu", value="true"), True),
        (Toleration(key="gpu", value="true", operator=""), True),
        (Toleration(key="gpu", value="true", effect="NoSchedule"), True),
        (Toleration(key="gpu", value="true", effect="NoExecute"), False),
        (Toleration(key="gpu", value="false"), False),
        (Toleration(key="gpu"), False),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(value="true"), False),
        (Toleration(key="gpu", value="true", operator="Like"), False),
    ],
)
def test_a_toleration_covers_a_taint_as_in_kubernetes(toleration: Toleration, *, expected: bool) -> None:
    assert tolerates([toleration], GPU) is expected


def test_a_taint_that_only_makes_nodes_less_liked_repels_nobody() -> None:
    assert tolerates_all([], [Taint(key="a", effect="PreferNoSchedule")])
    assert not tolerates_all([], [Taint(key="a", effect="NoExecute")])


def test_the_taint_that_repels_is_named() -> None:
    repelling = Taint(key="b", effect="NoSchedule")
    untolerated_taint = untolerated([Toleration(key="gpu", operator="Exists")], [GPU, repelling])
    assert untolerated_taint == repelling
    assert format_taint(GPU) == "gpu=true:NoSchedule"
    assert format_taint(repelling) == "b:NoSchedule"


def test_only_the_given_effects_count() -> None:
    assert tolerates_all([], [GPU], effects={NO_EXECUTE})


def test_two_taints_of_one_key_and_effect_are_the_same_taint_whatever_the_value_or_time() -> None:
    later = Taint(key="gpu", value="true", effect="NoSchedule", time_added=datetime(2026, 1, 1, tzinfo=UTC))
    changed = Taint(key="gpu", value="false", effect="NoSchedule")
    assert same_taint(GPU, changed)
    assert not equal(GPU, changed)
    assert equal(GPU, later)


def test_adding_a_taint_that_is_there_changes_nothing() -> None:
    later = Taint(key="gpu", value="true", effect="NoSchedule", time_added=datetime(2026, 1, 1, tzinfo=UTC))
    assert with_taint([GPU], later) == [GPU]
    changed = Taint(key="gpu", value="false", effect="NoSchedule")
    assert with_taint([GPU], changed) == [changed]
    assert with_taint([], GPU) == [GPU]
    assert without_taint([GPU, Taint(key="gpu", effect="NoExecute"), Taint(key="b", effect="NoSchedule")], "gpu") == [
        Taint(key="b", effect="NoSchedule")
    ]
