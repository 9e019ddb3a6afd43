"""The zones and instances that an Auto Scaling group chooses."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from local.aws.auto_scaling.balance import Candidate, launch_zones, rebalanced_zone, to_terminate

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ZONES = ("a", "b", "c")


def candidate(
    name: str, zone: str = "a", *, version: int = 1, minutes: int = 10, template: str = "lt-1", protected: bool = False
) -> Candidate:
    return Candidate(
        instance_id=name,
        zone=zone,
        template=(template, version),
        launched_at=NOW - timedelta(minutes=minutes),
        protected=protected,
    )


def terminated(*candidates: Candidate, among: tuple[str, ...] = ()) -> str | None:
    chosen = to_terminate(candidates, current="lt-1", now=NOW, among=among)
    return chosen.instance_id if chosen is not None else None


@given(st.lists(st.sampled_from(ZONES), max_size=12), st.integers(1, 12))
def test_launches_never_make_the_balance_worse(occupied: list[str], launches: int) -> None:
    def spread(zones: list[str]) -> int:
        counts = Counter(zones)
        return max(counts[z] for z in ZONES) - min(counts[z] for z in ZONES)

    after = list(occupied)
    for _ in range(launches):
        before = spread(after)
        after.append(launch_zones(ZONES, after)[0])
        assert spread(after) <= max(before, 1)


@given(st.lists(st.sampled_from(ZONES), min_size=1, max_size=9))
def test_a_termination_takes_from_the_fullest_zone(occupied: list[str]) -> None:
    members = [candidate(f"i-{number}", zone) for number, zone in enumerate(occupied)]
    chosen = to_terminate(members, current="lt-1", now=NOW)
    assert chosen is not None
    assert occupied.count(chosen.zone) == max(Counter(occupied).values())


def test_an_empty_group_launches_in_the_first_zone() -> None:
    assert launch_zones(("b", "a"), ()) == ["a", "b"]


def test_a_zone_without_instances_comes_first() -> None:
    assert launch_zones(ZONES, ("a", "b", "b")) == ["c", "a", "b"]


def test_an_instance_of_another_launch_template_goes_first() -> None:
    assert terminated(candidate("i-1"), candidate("i-2", template="lt-0", version=9)) == "i-2"


def test_then_one_of_the_oldest_version() -> None:
    assert terminated(candidate("i-1", version=2, minutes=59), candidate("i-2", version=1)) == "i-2"


def test_then_the_one_closest_to_the_next_billing_hour() -> None:
    assert terminated(candidate("i-1", minutes=65), candidate("i-2", minutes=59)) == "i-2"


def test_protected_instances_stay_and_still_count_for_their_zone() -> None:
    assert terminated(candidate("i-1", protected=True)) is None
    assert terminated(candidate("i-1", protected=True), candidate("i-2"), candidate("i-3", "b")) == "i-2"


def test_a_zone_of_protected_instances_is_passed_over() -> None:
    assert terminated(candidate("i-1", protected=True), candidate("i-2", protected=True), candidate("i-3", "b")) == (
        "i-3"
    )


def test_only_in_the_given_zones() -> None:
    assert terminated(candidate("i-1"), candidate("i-2"), candidate("i-3", "b"), among=("b",)) == "i-3"


def test_a_rebalancing_launches_outside_the_fullest_zone() -> None:
    assert rebalanced_zone(ZONES, ("a", "a", "b")) == "c"
    assert rebalanced_zone(("a",), ("a",)) is None
    assert rebalanced_zone(ZONES, ()) is None
