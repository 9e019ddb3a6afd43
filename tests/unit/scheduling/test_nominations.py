"""Nominations: nothing is launched twice for pods whose nodes are on their way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import labels, nodeclaim
from shared.api.containers import Container, ResourceRequirements
from shared.api.kubernetes import Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.nodepool import NodePool
from shared.api.taints import PODS_NOT_NOMINATED
from shared.base.struct import with_fields
from shared.instance_types.instance_type import InstanceType, Offering
from shared.scheduling.decision import Problem
from shared.scheduling.nominations.planned_pods import add_planned_pods
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.scheduling.decision import Decision

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
POOL = "default"
SIZES = {"small": 4000, "large": 8000}


def a_type(name: str, cpu: int, price: float) -> InstanceType:
    shape = {labels.INSTANCE_TYPE: name, labels.ARCH: "amd64", labels.OS: "linux"}
    capacity = {"cpu": cpu, "memory": cpu * 2**30, "pods": 110, "ephemeral-storage": 2**40}
    offering = Offering(zone="z-a", capacity_type="spot", price=price, available=True)
    return InstanceType(name=name, labels=shape, capacity=capacity, overhead={}, offerings=(offering,))


TYPES = tuple(a_type(name, cpu, cpu / 1000 * 0.1) for name, cpu in SIZES.items())


def pod(name: str, cpu: int, *, node: str = "", nominated: str = "", age: timedelta = timedelta(minutes=1)) -> Pod:
    conditions = [] if node else [Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": f"{cpu}m"}))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name, creation_timestamp=NOW - age),
        spec=PodSpec(containers=[container], node_name=node),
        status=PodStatus(phase="Running" if node else "Pending", conditions=conditions, nominated_node_name=nominated),
    )


def claim(
    name: str,
    pods: Sequence[str],
    *,
    size: str = "small",
    age: timedelta = timedelta(seconds=20),
    up: timedelta | None = None,
    in_status: bool = False,
) -> NodeClaim:
    """``up``: since when its node is initialized; None: it isn't. ``in_status``: its pods are nominated in status."""
    room = {"cpu": f"{SIZES[size]}m", "memory": f"{SIZES[size]}Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    conditions = []
    if up is not None:
        conditions = [Condition(type=nodeclaim.INITIALIZED, status="True", last_transition_time=NOW - up)]
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            creation_timestamp=NOW - age,
            labels={labels.NODEPOOL: POOL, labels.ZONE: "z-a", labels.ARCH: "amd64", labels.OS: "linux"},
            annotations={labels.PLANNED_PODS: ",".join(f"default/{p}" for p in pods)},
        ),
        spec=NodeClaimSpec(startup_taints=[PODS_NOT_NOMINATED] if in_status else []),
        status=NodeClaimStatus(
            node_name=f"node-{name}" if up is not None else "",
            capacity=dict(room),
            allocatable=dict(room),
            conditions=conditions,
        ),
    )


def node_of(node_claim: NodeClaim) -> Node:
    name = node_claim.status.node_name
    return Node(
        metadata=ObjectMeta(
            name=name, labels={**node_claim.metadata.labels, labels.INITIALIZED: "true", labels.HOSTNAME: name}
        ),
        spec=NodeSpec(),
        status=NodeStatus(capacity=node_claim.status.capacity, allocatable=node_claim.status.allocatable),
    )


def decide(pods: Sequence[Pod], claims: Sequence[NodeClaim], *, only: frozenset[str] | None = None) -> Decision:
    snapshot = Snapshot(
        taken_at=NOW,
        pods=tuple(pods),
        node_claims=tuple(claims),
        nodes=tuple(node_of(c) for c in claims if c.status.node_name),
        node_pools=(NodePool(metadata=ObjectMeta(name=POOL)),),
    )
    return schedule(Problem(snapshot=snapshot, instance_types={POOL: TYPES}, pods=only))


def test_pods_stay_nominated_for_the_node_launched_for_them_until_it_is_up() -> None:
    # Filled largest first, as places that are there already are, a's 4 cores would hold 3 + 1 and b's only 2 + 1.
    pods = [pod("three", 3000), pod("two", 2000), pod("also-two", 2000), pod("one", 1000)]
    claims = [claim("a", ["two", "also-two"]), claim("b", ["three", "one"])]
    decision = decide(pods, claims)
    assert decision.new_node_claims == ()
    assert decision.existing_nodes == {
        "a": ("default/also-two", "default/two"),
        "b": ("default/one", "default/three"),
    }


def test_a_pod_that_lost_its_node_is_deferred_until_the_other_node_is_up() -> None:
    taken = pod("two", 2000, node="node-a")
    claims = [claim("a", ["three", "one"], up=timedelta(seconds=2)), claim("b", ["two", "also-one"])]
    decision = decide([taken, pod("three", 3000), pod("one", 1000), pod("also-one", 1000)], claims)
    assert decision.existing_nodes == {"node-a": ("default/one",), "b": ("default/also-one",)}
    assert decision.deferred == {"default/three"}
    assert decision.new_node_claims == ()


def test_a_node_is_launched_for_a_pod_that_lost_its_node_if_no_coming_node_is_large_enough() -> None:
    taken = [pod("two", 2000, node="node-a"), pod("also-two", 2000, node="node-a")]
    claims = [claim("a", ["five"], size="large", up=timedelta(seconds=2)), claim("b", ["two", "also-two"])]
    decision = decide([*taken, pod("five", 5000)], claims)
    assert decision.deferred == frozenset()
    assert [c.pods for c in decision.new_node_claims] == [("default/five",)]


def test_capacity_of_coming_nodes_is_kept_for_deferred_pods() -> None:
    taken = [pod("two", 2000, node="node-a"), pod("also-two", 2000, node="node-a")]
    up = claim("a", ["three"], up=timedelta(seconds=2))
    deferred = [pod("x", 2000), pod("y", 2000)]
    coming = [claim("b", ["two", "x"]), claim("c", ["also-two", "y"])]
    decision = decide([*taken, *deferred, pod("three", 3000)], [up, *coming])
    assert decision.deferred == {"default/three"}
    assert decision.new_node_claims == ()
    # Held or not, a pod that comes later gets none of that room.
    later = decide([*taken, *deferred, pod("three", 3000), pod("new", 1500)], [up, *coming])
    assert later.deferred == {"default/three"}
    assert [c.pods for c in later.new_node_claims] == [("default/new",)]


def test_a_node_is_launched_for_a_pod_that_has_no_capacity_once_all_nodes_are_up() -> None:
    up = timedelta(seconds=30)
    taken = [pod("two", 2000, node="node-a"), pod("also-two", 2000, node="node-b")]
    claims = [claim("a", ["three"], up=up, age=up), claim("b", ["two", "also-two"], up=up, age=up)]
    decision = decide([*taken, pod("three", 3000)], claims)
    assert decision.deferred == frozenset()
    assert [c.pods for c in decision.new_node_claims] == [("default/three",)]


def test_a_pod_is_not_deferred_forever_for_a_node_that_never_comes() -> None:
    long_ago = timedelta(minutes=3)
    taken = [pod("two", 2000, node="node-a"), pod("also-two", 2000, node="node-a")]
    claims = [
        claim("a", ["three"], up=timedelta(minutes=2), age=long_ago),
        claim("b", ["two", "x"], age=long_ago),
        claim("c", ["also-two", "y"], age=long_ago),
    ]
    pods = [pod("three", 3000, age=timedelta(minutes=4)), *(pod(n, 2000, age=timedelta(minutes=4)) for n in "xy")]
    decision = decide([*taken, *pods], claims)
    assert [c.pods for c in decision.new_node_claims] == [("default/three",)]
    assert decision.existing_nodes == {"b": ("default/x",), "c": ("default/y",)}


def test_a_younger_pod_of_the_same_name_is_not_nominated() -> None:
    node_claim = claim("a", ["db-0"], age=timedelta(seconds=30))
    decision = decide([pod("db-0", 5000, age=timedelta(seconds=5))], [node_claim])
    assert [c.pods for c in decision.new_node_claims] == [("default/db-0",)]


def test_a_nodeclaim_being_deleted_nominates_no_pods() -> None:
    node_claim = claim("a", ["one"])
    deleting = with_fields(node_claim, metadata=with_fields(node_claim.metadata, deletion_timestamp=NOW))
    assert [c.pods for c in decide([pod("one", 1000)], [deleting]).new_node_claims] == [("default/one",)]


def test_a_pod_on_a_leaving_node_is_not_deferred() -> None:
    bought = claim("bought", ["web"], age=timedelta(seconds=90), up=timedelta(seconds=60))
    old = claim("old", ["other"], age=timedelta(seconds=90), up=timedelta(seconds=60))
    leaving = with_fields(old, metadata=with_fields(old.metadata, deletion_timestamp=NOW))
    # In sum there is room for it on what is to come, but on none of the machines.
    coming = [claim("a", ["x"]), claim("b", ["y"])]
    web = pod("web", 3000, node="node-old", age=timedelta(seconds=100))
    pods = [pod("other", 4000, node="node-bought"), web, pod("x", 2000), pod("y", 2000)]
    decision = decide(pods, [bought, leaving, *coming])
    assert decision.deferred == frozenset()
    assert [c.pods for c in decision.new_node_claims] == [("default/web",)]


def test_nominated_capacity_is_not_given_to_other_pods_when_only_some_are_requested() -> None:
    claims = [claim("a", ["big"])]
    decision = decide([pod("big", 4000), pod("other", 1000)], claims, only=frozenset({"default/other"}))
    assert decision.existing_nodes == {}
    assert [c.pods for c in decision.new_node_claims] == [("default/other",)]


@given(st.lists(st.integers(1, 78).map(lambda n: n * 50), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_a_second_decision_launches_nothing(sizes: list[int], chance: object) -> None:
    shuffled = list(range(len(sizes)))
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' Random
    pods = [pod(f"p{i}", sizes[i]) for i in shuffled]
    first = decide(pods, [])
    claims = [
        claim(f"c{i}", [key.partition("/")[2] for key in planned.pods], size=planned.cheapest.instance_type)
        for i, planned in enumerate(first.new_node_claims)
    ]
    second = decide(pods, claims)
    assert second.new_node_claims == ()
    assert second.deferred == frozenset()
    assert second.existing_nodes == {
        f"c{i}": tuple(sorted(planned.pods)) for i, planned in enumerate(first.new_node_claims)
    }


def test_a_pod_that_lost_its_node_takes_what_a_coming_node_has_left_at_once() -> None:
    taken = pod("two", 2000, node="node-a")
    claims = [
        claim("a", ["three", "one"], up=timedelta(seconds=2), in_status=True),
        claim("b", ["two", "also-one"], in_status=True),
    ]
    decision = decide([taken, pod("three", 3000), pod("one", 1000), pod("also-one", 1000)], claims)
    assert decision.existing_nodes == {"node-a": ("default/one",), "b": ("default/also-one", "default/three")}
    assert decision.new_node_claims == ()


def test_a_pod_that_lost_its_node_gets_a_new_one_at_once_if_no_node_on_its_way_can_take_it() -> None:
    taken = pod("other", 2000, node="node-a")
    claims = [
        claim("a", ["three"], up=timedelta(seconds=2), in_status=True),
        claim("b", ["two", "also-two"], in_status=True),
    ]
    decision = decide([taken, pod("three", 3000), pod("two", 2000), pod("also-two", 2000)], claims)
    assert [c.pods for c in decision.new_node_claims] == [("default/three",)]
    assert decision.existing_nodes == {"b": ("default/also-two", "default/two")}
    assert decision.deferred == frozenset()


def test_a_pod_that_is_nominated_in_its_status_keeps_its_node_and_what_it_takes_there() -> None:
    claims = [claim("a", ["two"], up=timedelta(seconds=2), in_status=True)]
    decision = decide([pod("two", 2000, nominated="node-a"), pod("three", 3000)], claims)
    assert decision.existing_nodes == {"node-a": ("default/two",)}
    assert [c.pods for c in decision.new_node_claims] == [("default/three",)]


def test_a_pod_that_preempts_others_is_not_provisioned_for() -> None:
    running = pod("running", 4000, node="node-a")
    claims = [claim("a", ["long-gone"], up=timedelta(hours=1), in_status=True)]
    decision = decide([running, pod("urgent", 2000, nominated="node-a")], claims)
    assert decision.new_node_claims == ()
    assert decision.existing_nodes == {"node-a": ("default/urgent",)}


@pytest.mark.parametrize("nominated", ["gone", "node-a"])
def test_a_nomination_that_helps_no_more_does_not_keep_a_pod_waiting(nominated: str) -> None:
    """The node is gone, or it hasn't taken the pod within the window; the function that clears nominations died."""
    running = pod("running", 4000, node="node-a")
    claims = [claim("a", ["two"], up=timedelta(seconds=11), in_status=True)]
    decision = decide([running, pod("two", 2000, nominated=nominated)], claims)
    assert [c.pods for c in decision.new_node_claims] == [("default/two",)]


def test_on_a_node_smaller_than_planned_the_smallest_pods_get_another_node() -> None:
    decision = decide(
        [pod("one", 1000), pod("two", 2000), pod("also-two", 2000)], [claim("a", ["one", "two", "also-two"])]
    )
    assert decision.existing_nodes == {"a": ("default/also-two", "default/two")}


def test_pods_that_are_added_to_a_nodeclaim_are_planned_for_it_though_they_are_younger() -> None:
    older = claim("a", ["one"], age=timedelta(seconds=20))
    assert add_planned_pods(older, ["default/one"], now=NOW) == {}
    added = add_planned_pods(older, ["default/two"], now=NOW)
    claims = [with_fields(older, metadata=with_fields(older.metadata, annotations=added))]
    decision = decide([pod("two", 2000, age=timedelta(seconds=5)), pod("three", 3000)], claims)
    assert decision.existing_nodes == {"a": ("default/two",)}
    assert [c.pods for c in decision.new_node_claims] == [("default/three",)]
