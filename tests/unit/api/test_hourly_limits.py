"""Hourly limits: how far they let any sequence of launches and removals go, and what is kept of the last hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.hourly_limits import (
    BASE_LAUNCHES,
    BASE_REMOVALS,
    BASE_REMOVALS_OF_ALL,
    FailedLaunch,
    HourlyUse,
    LastHour,
    read_hourly_limits,
    read_last_hour,
)
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import NodePool

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def pool(name: str, own: str = "", of_all: str = "") -> NodePool:
    annotations = {names.HOURLY_LIMITS: own, names.CLUSTER_HOURLY_LIMITS: of_all}
    return NodePool(metadata=ObjectMeta(name=name, annotations={k: v for k, v in annotations.items() if v}))


def claims(count: int, of: str = "a", age: timedelta = DAY, price: float = 0.5) -> list[NodeClaim]:
    return [
        NodeClaim(
            metadata=ObjectMeta(
                name=f"{of}-{i}",
                labels={names.NODEPOOL: of},
                annotations={names.DECISION: "d", names.PLANNED_PRICE: str(price)},
                creation_timestamp=NOW - age,
            )
        )
        for i in range(count)
    ]


def launched(use: HourlyUse, of: str = "a", *, wanted: int = 20_000, price: float = 0.1) -> int:
    """How many of the wanted nodes are launched."""
    for count in range(wanted):
        if use.launch_problem(of, price):
            return count
        use.count_launch(of, price)
    return wanted


def removed(use: HourlyUse, of: str = "a", *, wanted: int = 20_000) -> int:
    """How many of the wanted nodes are removed, each with a replacement."""
    for count in range(wanted):
        if use.removal_problem(of):
            return count
        use.count_launch(of, 0.0)
        use.count_removal(of)
    return wanted


@pytest.mark.parametrize("existing", [0, 100, 3000])
def test_by_default_a_cluster_may_launch_5000_nodes_and_as_many_as_it_has(existing: int) -> None:
    use = HourlyUse({}, [pool("a")], claims(existing), now=NOW)
    assert launched(use) == BASE_LAUNCHES + existing


@pytest.mark.parametrize("price", [0.5, 2.5, 98.0])
def test_by_default_a_cluster_may_launch_2500_usd_an_hour_and_as_much_as_it_has(price: float) -> None:
    use = HourlyUse({}, [pool("a")], claims(100, price=1.0), now=NOW)
    assert launched(use, price=price) == min(BASE_LAUNCHES + 100, int(2600 / price))


@pytest.mark.parametrize(("nodes", "most"), [(0, 50), (20, 60), (100, 100), (1000, 550)])
def test_by_default_half_of_a_nodepools_nodes_and_50_may_be_removed(nodes: int, most: int) -> None:
    """All of up to 100 nodes, while their replacements come."""
    assert removed(HourlyUse({}, [pool("a")], claims(nodes), now=NOW)) == most


def test_of_all_nodepools_together_half_of_the_nodes_and_100_may_be_removed() -> None:
    pools, nodes = [pool(name) for name in "abcd"], [c for name in "abcd" for c in claims(100, name)]
    use = HourlyUse({}, pools, nodes, now=NOW)
    assert sum(removed(use, name) for name in "abcd") == BASE_REMOVALS_OF_ALL + 200
    assert BASE_REMOVALS < BASE_REMOVALS_OF_ALL


def test_annotations_set_limits_of_a_nodepool_and_of_all() -> None:
    pools = [pool("a", "launches=3", "launches=5, removals=2"), pool("b", "", "launches=9")]
    use = HourlyUse({}, pools, (), now=NOW)
    assert [launched(use, "a"), launched(use, "b"), removed(use, "b")] == [3, 2, 2]  # two are replacements
    assert use.launch_problem("a", 0.1).startswith("the hourly limit of NodePool a is reached: 3 nodes launched in")
    assert use.launch_problem("b", 0.1).startswith("the hourly limit of all NodePools is reached: 7 nodes launched in")


def test_nodes_launched_within_the_hour_count_without_the_record_of_it() -> None:
    young = claims(4, age=timedelta(minutes=30))
    assert launched(HourlyUse({}, [pool("a", "launches=5")], young, now=NOW)) == 1


def test_restored_nodeclaims_are_no_launches() -> None:
    restored = [
        NodeClaim(metadata=ObjectMeta(name=c.name, labels=c.metadata.labels, creation_timestamp=NOW))
        for c in claims(4, age=timedelta())
    ]
    assert launched(HourlyUse({}, [pool("a", "launches=5")], restored, now=NOW)) == 5


def test_what_got_no_instance_is_given_back() -> None:
    use = HourlyUse({}, [pool("a", "launches=5")], (), now=NOW)
    assert launched(use) == 5
    for claim in claims(2):
        use.give_back(FailedLaunch.of(claim, now=NOW))
    assert launched(use) == 2


def test_what_an_earlier_hour_had_is_not_given_back_to_this_one() -> None:
    use = HourlyUse({}, [pool("a", "launches=5")], (), now=NOW)
    assert launched(use) == 5
    failed = FailedLaunch.of(claims(1)[0], now=NOW - timedelta(hours=2))
    assert not failed.is_recent(NOW)
    use.give_back(failed)
    assert launched(use) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"x":{}}', '{"5":{"a":["many"]}}', '{"5":[]}', "0" * 10_000])
def test_a_record_that_cannot_be_read_counts_for_nothing(text: str) -> None:
    assert read_last_hour({names.LAST_HOUR: text}, now=NOW) == {}


def test_a_forged_record_holds_launches_back_for_an_hour_at_most() -> None:
    forged: LastHour = {}
    for minutes in (-60, 0, 5, 60, 10**6):
        period = int((NOW + timedelta(minutes=minutes)).timestamp()) // 300
        use = HourlyUse({}, (), (), now=NOW + timedelta(minutes=minutes))
        use.count_launch("a", 10.0**9)
        forged |= {period: read_last_hour(use.changes(), now=NOW + timedelta(minutes=minutes))[period]}
    later = NOW + timedelta(minutes=75)
    use = HourlyUse({}, (), (), now=NOW)
    use.count_launch("a", 10.0**9)
    assert read_last_hour(use.changes(), now=later) == {}


@pytest.mark.parametrize("text", ["launches", "launches=-1", "launches=1.5", "nodes=3", "launches=3 usd=x", ""])
def test_a_part_that_is_no_limit_is_named(text: str) -> None:
    assert read_hourly_limits(text)[1]


@given(
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["launch", "remove"]), st.sampled_from("ab")), max_size=80),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_no_hour_has_more_than_its_limits_whatever_comes_when(
    requests: list[tuple[int, str, str]], most_launches: int, most_removals: int
) -> None:
    """Each at its minute: what is allowed of them in any hour is within the limits, with a record between."""
    pools = [pool("a", f"launches={most_launches}, removals={most_removals}", "launches=8, removals=8"), pool("b")]
    annotations: dict[str, str] = {}
    done: list[tuple[int, str, str]] = []
    for minute, action, of in sorted(requests):
        now = NOW + timedelta(minutes=minute)
        use = HourlyUse(read_last_hour(annotations, now=now), pools, (), now=now)
        if action == "launch" and not use.launch_problem(of, 1.0):
            use.count_launch(of, 1.0)
            done.append((minute, action, of))
        if action == "remove" and not use.removal_problem(of):
            use.count_removal(of)
            done.append((minute, action, of))
        annotations |= use.changes()
    for begin, _, _ in done:
        within = [(action, of) for minute, action, of in done if begin <= minute < begin + 60]
        assert within.count(("launch", "a")) <= most_launches
        assert within.count(("remove", "a")) <= most_removals
        assert sum(action == "launch" for action, _ in within) <= 8
        assert sum(action == "remove" for action, _ in within) <= 8
