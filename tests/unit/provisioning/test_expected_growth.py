"""Nodes have room for the pods that are expected, where workloads grow steadily, and nothing is lost for it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.containers import Container, ContainerPort, ResourceRequirements
from shared.api.kubernetes import (
    Affinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    TopologySpreadConstraint,
)
from shared.api.meta import ObjectMeta, OwnerReference
from shared.base.struct import with_fields
from shared.disruption.workloads import CurrentWorkloads, Workload
from shared.provisioning.features.expected_growth import WINDOW, ExpectedGrowth, GrowthHistory, expected_pods
from shared.snapshot import Snapshot
from tests.unit.provisioning.test_features import round_of

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
WEB = "Deployment default/web"


def current(pods: Mapping[str, int], *, changing: frozenset[str] = frozenset()) -> CurrentWorkloads:
    return CurrentWorkloads(workloads={name: Workload(pods=count) for name, count in pods.items()}, changing=changing)


def expected(
    before: Mapping[str, int],
    after: Mapping[str, int],
    *,
    windows: float = 1.0,
    changing: frozenset[str] = frozenset(),
) -> dict[str, int]:
    """What is expected by a process that saw these numbers of pods, so much later."""
    history = GrowthHistory()
    assert history.expected(lambda: current(before), now=NOW) == {}
    return history.expected(lambda: current(after, changing=changing), now=NOW + windows * WINDOW)


# --- how many pods are expected ---


def test_as_many_pods_are_expected_as_came_over_the_last_window() -> None:
    assert expected({WEB: 40}, {WEB: 44}) == {WEB: 4}


@pytest.mark.parametrize(("windows", "pods"), [(0.4, {}), (0.5, {WEB: 8}), (2.0, {WEB: 2}), (4.5, {})])
def test_growth_of_another_time_counts_in_proportion_unless_it_says_little(
    windows: float, pods: dict[str, int]
) -> None:
    assert expected({WEB: 100}, {WEB: 104}, windows=windows) == pods


def test_pods_are_counted_once_in_five_minutes() -> None:
    history, counted = GrowthHistory(), []

    def count() -> CurrentWorkloads:
        counted.append(NOW)
        return current({WEB: 200 + len(counted)})

    results = [history.expected(count, now=NOW + step * WINDOW / 60) for step in range(61)]
    assert len(counted) == 13
    assert results[-1] == {WEB: 12}
    assert results[34] == results[30]


def test_what_came_long_ago_is_forgotten() -> None:
    history = GrowthHistory()
    results = [
        history.expected(partial(current, {WEB: pods}), now=NOW + step * WINDOW / 2)
        for step, pods in enumerate((40, 44, 48, 48, 48))
    ]
    assert results[2]
    assert results[-1] == {}


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({}, {WEB: 4}, "is new"),
        ({WEB: 4}, {WEB: 4}, "has as many pods as before"),
        ({WEB: 44}, {WEB: 40}, "shrinks"),
        ({WEB: 10}, {WEB: 30}, "jumps"),
        ({"Job default/work": 40}, {"Job default/work": 44}, "is a Job"),
        ({"CronJob default/work": 40}, {"CronJob default/work": 44}, "is a CronJob"),
    ],
)
def test_nothing_is_expected_of_a_workload_that(before: dict[str, int], after: dict[str, int], why: str) -> None:
    assert expected(before, after) == {}, why


def test_nothing_is_expected_of_a_workload_during_a_rolling_update() -> None:
    assert expected({WEB: 40}, {WEB: 44}, changing=frozenset({WEB})) == {}


def test_a_small_workload_may_grow_by_one_pod() -> None:
    big = {"Deployment default/shop": 40}
    assert expected({WEB: 2, **big}, {WEB: 3, **big}) == {WEB: 1}


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 50), st.integers(0, 20))))
def test_at_most_a_tenth_of_all_pods_is_expected_and_never_more_than_came(load: dict[str, tuple[int, int]]) -> None:
    before = {f"Deployment default/{name}": pods for name, (pods, _) in load.items()}
    after = {f"Deployment default/{name}": sum(pods) for name, pods in load.items()}
    result = expected(before, after, windows=2.0)
    assert all(count > 0 for count in result.values())
    assert sum(result.values()) <= sum(after.values()) / 10
    assert sum(result.values()) <= sum(grown for _, grown in load.values()) / 2 + 0.5


# --- the pods that stand for them ---


def pod(name: str = "web-1", *, node: str = "n1", requests: Mapping[str, str] | None = None, **spec: object) -> Pod:
    container = Container(
        resources=ResourceRequirements(requests=cast("Any", requests or {"cpu": "900m", "memory": "1Gi"})),
        ports=[ContainerPort(host_port=80)],
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            labels={"pod-template-hash": "1", "app": "web"},
            owner_references=[OwnerReference(kind="ReplicaSet", name="web-1", uid="u", controller=True)],
        ),
        spec=PodSpec(node_name=node, containers=[container], **cast("Any", spec)),
    )


def test_expected_pods_are_like_the_workloads_but_without_rules_about_others() -> None:
    repelled = Affinity(
        pod_anti_affinity=PodAffinity(
            required_during_scheduling_ignored_during_execution=[PodAffinityTerm(topology_key="zone")]
        )
    )
    running = pod(
        node_selector={"tier": "web"},
        affinity=repelled,
        priority=7,
        topology_spread_constraints=[TopologySpreadConstraint(topology_key="zone", max_skew=1)],
    )
    virtual = expected_pods(Snapshot(taken_at=NOW, pods=(running,)), {WEB: 2})
    assert [p.metadata.name for p in virtual] == ["~web-1#0", "~web-1#1"]
    for stand_in in virtual:
        assert stand_in.spec.node_selector == {"tier": "web"}
        assert stand_in.spec.containers[0].resources == running.spec.containers[0].resources
        assert (stand_in.spec.priority, stand_in.spec.node_name, stand_in.metadata.labels) == (7, "", {})
        assert stand_in.spec.affinity == Affinity()
        assert not stand_in.spec.topology_spread_constraints
        assert not stand_in.spec.containers[0].ports


@pytest.mark.parametrize("requests", [{"cpu": "1", "nvidia.com/gpu": "1"}, {"cpu": "one"}])
def test_no_pods_are_expected_that_ask_for_devices_or_for_nonsense(requests: dict[str, str]) -> None:
    assert expected_pods(Snapshot(taken_at=NOW, pods=(pod(requests=requests),)), {WEB: 2}) == ()


# --- the feature ---


def test_the_round_has_the_pods_that_are_expected() -> None:
    feature = ExpectedGrowth(history=GrowthHistory())
    first, second = (round_of(pods=tuple(pod(f"web-{i}") for i in range(count))) for count in (40, 44))
    assert feature.before(first) is first
    after = feature.before(with_fields(second, now=NOW + WINDOW))
    assert [p.metadata.name for p in after.snapshot.growth] == [f"~web-0#{i}" for i in range(4)]
    assert after.snapshot.pods == second.snapshot.pods
