"""When the relay repeats its hint about nodes whose planned pods are being nominated."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from relay.nomination_windows import REPEATS, RETRY_INTERVAL, NominationWindows
from relay.watched_kinds import (
    KindListed,
    NodeSpec,
    NodeStatus,
    ObjectChanged,
    PodMetadata,
    PodSpec,
    PodStatus,
    WatchedCondition,
    WatchedNode,
    WatchedPod,
    WatchedTaint,
)
from shared.api import labels as names
from shared.api.meta import ObjectMeta
from shared.base.struct import with_fields
from shared.cluster import resources

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLOSED = WatchedTaint(key=names.PODS_NOT_NOMINATED_TAINT, effect="NoSchedule")
REBOOTING = WatchedTaint(key=names.REBOOTING_TAINT, effect="NoSchedule")


def seconds(amount: float) -> timedelta:
    return timedelta(seconds=amount)


def node(name: str = "n1", *, closed: bool, ready: bool = True, managed: bool = True) -> WatchedNode:
    return WatchedNode(
        metadata=ObjectMeta(name=name, labels={names.NODEPOOL: "default"} if managed else {}),
        spec=NodeSpec(taints=[CLOSED] if closed else []),
        status=NodeStatus(conditions=[WatchedCondition(type="Ready", status=str(ready))]),
    )


def pod(nominated: str, *, bound: str = "") -> WatchedPod:
    return WatchedPod(
        metadata=PodMetadata(name="web-1", namespace="default"),
        spec=PodSpec(node_name=bound),
        status=PodStatus(nominated_node_name=nominated),
    )


class Given:
    """NominationWindows on a clock that tests set in seconds after noon."""

    def __init__(self) -> None:
        self.windows = NominationWindows()

    def nodes(self, after: float, *nodes: WatchedNode) -> None:
        for changed in nodes:
            self.windows.observe(ObjectChanged(resource=resources.NODES, object=changed), NOON + seconds(after))

    def pods(self, after: float, *pods: WatchedPod) -> None:
        for changed in pods:
            self.windows.observe(ObjectChanged(resource=resources.PODS, object=changed), NOON + seconds(after))

    def hints(self, until: float) -> list[tuple[float, tuple[str, ...]]]:
        """When which nodes' hint is repeated, in seconds after noon, when each is taken as soon as it is due."""
        repeated = []
        while (due := self.windows.due()) is not None and due <= NOON + seconds(until):
            names_of_nodes = self.windows.take_due(due).nodes
            if names_of_nodes:
                repeated.append(((due - NOON).total_seconds(), names_of_nodes))
        return repeated


def test_the_hint_about_a_node_that_waits_for_nominations_is_repeated_until_it_takes_pods() -> None:
    given = Given()
    given.nodes(0, node(closed=True))
    assert [after for after, _ in given.hints(until=31)] == [1, 3, 6, 11, 20, 30]


def test_so_is_that_about_a_node_that_is_drained_to_be_rebooted() -> None:
    given = Given()
    given.nodes(0, with_fields(node(closed=True), spec=NodeSpec(taints=[REBOOTING])))
    assert [after for after, _ in given.hints(until=31)] == [1, 3, 6, 11, 20, 30]


def test_after_a_node_takes_pods_its_hint_is_repeated_until_its_window_is_over() -> None:
    given = Given()
    given.nodes(0, node(closed=True))
    given.hints(until=4)
    given.nodes(5, node(closed=False))
    assert [after for after, _ in given.hints(until=600)] == [6, 8, 11, 16]


def test_the_hint_is_repeated_while_a_pod_is_still_nominated_for_the_node() -> None:
    given = Given()
    given.nodes(0, node(closed=True), node(closed=False))
    given.pods(0, pod("n1"))
    assert [after for after, _ in given.hints(until=31)] == [1, 3, 6, 11, 20, 30]
    given.pods(32, pod("n1", bound="n1"))
    assert [after for after, _ in given.hints(until=600)] == [40]


def test_hints_end_when_the_sweeps_are_enough() -> None:
    given = Given()
    given.nodes(0, node(closed=True))
    assert len(given.hints(until=3600)) == len(REPEATS)
    assert given.windows.due() is None


def test_a_node_that_is_not_ready_or_that_waits_for_nothing_has_no_hints() -> None:
    given = Given()
    given.nodes(0, node(closed=True, ready=False), node("n2", closed=False), node("n3", closed=True, managed=False))
    given.nodes(0, node("n3", closed=False, managed=False))
    given.pods(0, pod("n3"))
    assert all("n1" not in nodes and "n2" not in nodes for _, nodes in given.hints(until=60))


def test_a_restarted_relay_repeats_the_hints_about_pods_that_are_nominated_already() -> None:
    given = Given()
    given.windows.observe(KindListed(resource=resources.PODS, objects=(pod("n1"),)), NOON)
    given.windows.observe(KindListed(resource=resources.NODES, objects=(node(closed=False),)), NOON)
    assert [nodes for _, nodes in given.hints(until=4)] == [("n1",), ("n1",)]
    given.windows.observe(KindListed(resource=resources.PODS, objects=()), NOON + seconds(5))
    given.hints(until=12)
    assert given.hints(until=600) == []


def test_pods_that_a_node_did_not_take_are_tried_again_soon_but_not_for_each_node() -> None:
    given = Given()
    for i in range(20):
        given.nodes(i * 0.1, node(f"n{i}", closed=True), node(f"n{i}", closed=False))
    retries = []
    while (due := given.windows.due()) is not None:
        if given.windows.take_due(due).retry_pods:
            retries.append(due)
    assert NOON + seconds(2.5) <= retries[0] <= NOON + seconds(4)
    assert retries[-1] >= NOON + seconds(12)
    assert all(later - sooner >= RETRY_INTERVAL for sooner, later in itertools.pairwise(retries))
