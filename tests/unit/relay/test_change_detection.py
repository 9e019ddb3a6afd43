"""Which changes in the cluster need a hint."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.change_detection import ChangeDetector, ReconcileRequest
from relay.watched_kinds import (
    KindListed,
    NodeClaimStatus,
    NodeSpec,
    NodeStatus,
    ObjectChanged,
    Owner,
    PodMetadata,
    PodSpec,
    PodStatus,
    Watched,
    WatchedCondition,
    WatchedNode,
    WatchedNodeClaim,
    WatchedPod,
    WatchedPoolOrClass,
    WatchedTaint,
)
from relay.watched_room import BufferSpec, WatchedBuffer
from shared.api import labels as names
from shared.api.capacity_buffer import ACTIVE_CAPACITY
from shared.api.meta import ObjectMeta
from shared.base import hints
from shared.base.struct import with_fields
from shared.cluster import resources

if TYPE_CHECKING:
    from shared.cluster.resources import Resource

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NO_PLACE = WatchedCondition(type="PodScheduled", status="False", reason="Unschedulable")
GATED = WatchedCondition(type="PodScheduled", status="False", reason="SchedulingGated")


def pod(
    name: str = "web",
    *,
    node: str = "",
    condition: WatchedCondition | None = None,
    owner: str = "ReplicaSet",
    phase: str = "Pending",
    deleting: bool = False,
) -> WatchedPod:
    return WatchedPod(
        metadata=PodMetadata(
            name=name,
            namespace="default",
            owner_references=[Owner(kind=owner)],
            deletion_timestamp=NOW if deleting else None,
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase, conditions=[condition] if condition else []),
    )


def node(
    name: str = "n1",
    *,
    ours: bool = True,
    ready: bool = True,
    initialized: bool = True,
    taints: tuple[str, ...] = (),
    allocatable: dict[str, str | int | float] | None = None,
    deleting: bool = False,
) -> WatchedNode:
    labels = {names.NODEPOOL: "default"} if ours else {}
    if initialized and ours:
        labels[names.INITIALIZED] = "true"
    return WatchedNode(
        metadata=ObjectMeta(name=name, labels=labels, deletion_timestamp=NOW if deleting else None),
        spec=NodeSpec(taints=[WatchedTaint(key=key, effect="NoSchedule") for key in taints]),
        status=NodeStatus(
            conditions=[WatchedCondition(type="Ready", status=str(ready))], allocatable=allocatable or {"cpu": "2"}
        ),
    )


def named(name: str, *, generation: int = 1, uid: str = "u") -> WatchedPoolOrClass:
    return WatchedPoolOrClass(metadata=ObjectMeta(name=name, generation=generation, uid=uid))


def claim(name: str, *, pool: str = "default", deleting: bool = False) -> WatchedNodeClaim:
    labels = {names.NODEPOOL: pool} if pool else {}
    return WatchedNodeClaim(metadata=ObjectMeta(name=name, labels=labels, deletion_timestamp=NOW if deleting else None))


def seen(
    detector: ChangeDetector, resource: Resource, *objects: Watched, deleted: bool = False
) -> list[ReconcileRequest]:
    return [
        notice
        for obj in objects
        for notice in detector.detect(ObjectChanged(resource=resource, object=obj, deleted=deleted))
    ]


def listed(detector: ChangeDetector, resource: Resource, *objects: Watched) -> list[ReconcileRequest]:
    return list(detector.detect(KindListed(resource=resource, objects=objects)))


def test_an_unschedulable_pod_is_reported_once() -> None:
    detector = ChangeDetector()
    stuck = pod(condition=NO_PLACE)
    assert seen(detector, resources.PODS, pod()) == []
    assert seen(detector, resources.PODS, stuck) == [(hints.PODS_UNSCHEDULABLE, "default/web")]
    assert seen(detector, resources.PODS, stuck, stuck) == []


def test_a_pod_is_unresolved_until_it_is_bound() -> None:
    detector = ChangeDetector()
    seen(detector, resources.PODS, pod(condition=NO_PLACE))
    assert detector.unresolved[hints.PODS_UNSCHEDULABLE] == {"default/web"}
    seen(detector, resources.PODS, pod(node="n1"))
    assert detector.unresolved[hints.PODS_UNSCHEDULABLE] == set()


@pytest.mark.parametrize(
    "ignored_pod",
    [
        pod(condition=GATED),
        pod(condition=NO_PLACE, owner="DaemonSet"),
        pod(condition=NO_PLACE, owner="Node"),
        pod(condition=NO_PLACE, deleting=True),
        pod(condition=NO_PLACE, node="n1"),
    ],
    ids=["gated", "daemon", "static", "deleting", "bound"],
)
def test_pods_that_need_no_new_node_are_not_reported(ignored_pod: WatchedPod) -> None:
    assert seen(ChangeDetector(), resources.PODS, ignored_pod) == []


def test_a_node_is_emptied_when_its_last_pod_that_is_not_a_daemonsets_leaves() -> None:
    detector = ChangeDetector()
    seen(detector, resources.NODES, node())
    seen(detector, resources.PODS, pod("a", node="n1"), pod("b", node="n1"), pod("d", node="n1", owner="DaemonSet"))
    assert seen(detector, resources.PODS, pod("a", node="n1"), deleted=True) == []
    # While it terminates, it occupies the node: the disruption function would find the node in use.
    assert seen(detector, resources.PODS, pod("b", node="n1", deleting=True)) == []
    assert seen(detector, resources.PODS, pod("b", node="n1"), deleted=True) == [(hints.NODES_EMPTIED, "n1")]


def test_a_finished_pod_empties_its_node() -> None:
    detector = ChangeDetector()
    seen(detector, resources.NODES, node())
    seen(detector, resources.PODS, pod(node="n1", phase="Running"))
    assert seen(detector, resources.PODS, pod(node="n1", phase="Succeeded")) == [(hints.NODES_EMPTIED, "n1")]


def filled(*nodes: WatchedNode, pods_each: int) -> ChangeDetector:
    """A detector that has seen these nodes with that many pods on each."""
    detector = ChangeDetector()
    seen(detector, resources.NODES, *nodes)
    for n in nodes:
        seen(detector, resources.PODS, *(pod(f"{n.key}-{i}", node=n.key) for i in range(pods_each)))
    return detector


def test_nodes_are_underutilized_each_time_a_twentieth_of_all_pods_has_left() -> None:
    detector = filled(node("n1"), node("n2"), pods_each=50)
    left = [pod(f"n1-{i}", node="n1", deleting=True) for i in range(10)]
    assert seen(detector, resources.PODS, *left[:4]) == []
    assert seen(detector, resources.PODS, left[4]) == [(hints.NODES_UNDERUTILIZED, "n1")]
    assert seen(detector, resources.PODS, *left[5:]) == [(hints.NODES_UNDERUTILIZED, "n1")]
    assert seen(detector, resources.PODS, *left, *left) == []


@pytest.mark.parametrize("taint", [names.DISRUPTED_TAINT, names.REBOOTING_TAINT])
def test_pods_that_a_drain_moves_leave_no_node_underutilized(taint: str) -> None:
    detector = filled(node("n1"), node("n2"), pods_each=50)
    seen(detector, resources.NODES, node("n1", taints=(taint,)))
    for i in range(50):
        assert hints.NODES_UNDERUTILIZED not in {
            request.detail_type
            for request in (
                *seen(detector, resources.PODS, pod(f"n1-{i}", node="n1", deleting=True)),
                *seen(detector, resources.PODS, pod(f"moved-{i}", node="n2")),
            )
        }


def test_a_node_of_a_nodepool_that_is_gone_is_reported() -> None:
    detector = ChangeDetector()
    seen(detector, resources.NODES, node("n1"), node("other", ours=False))
    assert seen(detector, resources.NODES, node("n1"), deleted=True) == [(hints.NODES_DELETED, "n1")]
    assert seen(detector, resources.NODES, node("other", ours=False), deleted=True) == []
    assert seen(detector, resources.NODES, node("n1"), deleted=True) == []


def test_nodes_without_a_nodepool_are_not_reported_as_emptied() -> None:
    detector = ChangeDetector()
    seen(detector, resources.NODES, node(ours=False))
    seen(detector, resources.PODS, pod(node="n1"))
    assert seen(detector, resources.PODS, pod(node="n1"), deleted=True) == []


def test_a_node_that_was_emptied_before_it_was_observed_is_reported_then() -> None:
    detector = ChangeDetector()
    seen(detector, resources.PODS, pod(node="n1"))
    assert seen(detector, resources.PODS, pod(node="n1"), deleted=True) == []
    assert (hints.NODES_EMPTIED, "n1") in seen(detector, resources.NODES, node())


def test_a_node_is_reported_at_each_step_of_its_initialization_and_not_afterwards() -> None:
    detector = ChangeDetector()
    steps = [
        node(ready=False, initialized=False, taints=("not-ready", "startup")),
        node(ready=False, initialized=False, taints=("not-ready", "startup"), allocatable={"cpu": "2", "gpu": 1}),
        node(ready=True, initialized=False, taints=("not-ready", "startup")),
        node(ready=True, initialized=False, taints=("startup",)),
        node(ready=True, initialized=False),
    ]
    for step in steps:
        assert seen(detector, resources.NODES, step) == [(hints.NODES_CHANGED, "n1")]
    assert detector.unresolved[hints.NODES_CHANGED] == {"n1"}
    assert seen(detector, resources.NODES, node(), node()) == []
    assert detector.unresolved[hints.NODES_CHANGED] == set()


def test_initialized_nodes_are_not_reported_when_the_relay_starts() -> None:
    detector = ChangeDetector()
    requests = listed(detector, resources.NODES, node("up"), node("other", ours=False), node("new", initialized=False))
    assert requests == [(hints.NODES_CHANGED, "new")]


def test_a_deletion_is_reported_once_for_each_object() -> None:
    detector = ChangeDetector()
    seen(detector, resources.NODES, node())
    assert seen(detector, resources.NODES, node(deleting=True)) == [(hints.NODES_DELETING, "n1")]
    assert seen(detector, resources.NODES, node(deleting=True)) == []
    assert seen(detector, resources.NODE_CLAIMS, claim("c", deleting=True)) == [(hints.NODE_CLAIMS_DELETING, "c")]
    assert not any(detector.unresolved.values())
    seen(detector, resources.NODES, node(deleting=True), deleted=True)
    seen(detector, resources.NODE_CLAIMS, claim("c"), deleted=True)
    seen(detector, resources.NODES, node())
    assert seen(detector, resources.NODES, node(deleting=True)) == [(hints.NODES_DELETING, "n1")]
    assert seen(detector, resources.NODE_CLAIMS, claim("c", deleting=True)) == [(hints.NODE_CLAIMS_DELETING, "c")]


def test_a_pool_is_reported_when_its_spec_changes_and_not_when_its_status_does() -> None:
    detector = ChangeDetector()
    requests = [(hints.NODE_POOLS_CHANGED, "NodePool/a")]
    assert seen(detector, resources.NODE_POOLS, named("a")) == requests
    assert seen(detector, resources.NODE_POOLS, named("a")) == []
    assert seen(detector, resources.NODE_POOLS, named("a", generation=2)) == requests
    assert seen(detector, resources.NODE_POOLS, named("a", uid="another", generation=2)) == requests
    assert seen(detector, resources.NODE_POOLS, named("a"), deleted=True) == requests
    assert seen(detector, resources.PROVISIONERS, named("a")) == [(hints.NODE_POOLS_CHANGED, "Provisioner/a")]
    assert seen(detector, resources.NODE_OVERLAYS, named("a")) == [(hints.NODE_POOLS_CHANGED, "NodeOverlay/a")]


def test_a_new_node_claim_without_a_pool_is_reported_once() -> None:
    detector = ChangeDetector()
    assert seen(detector, resources.NODE_CLAIMS, claim("of-a-pool")) == []
    assert seen(detector, resources.NODE_CLAIMS, claim("alone", pool="")) == [
        ReconcileRequest(hints.NODE_POOLS_CHANGED, "NodeClaim/alone")
    ]
    assert seen(detector, resources.NODE_CLAIMS, claim("alone", pool="")) == []


def test_a_reboot_is_reported_once_when_it_is_requested() -> None:
    detector = ChangeDetector()
    status = NodeClaimStatus(
        node_name="n1", conditions=[WatchedCondition(type="Rebooting", status="True", reason="RebootRequested")]
    )
    requested = with_fields(claim("c"), status=status)
    assert seen(detector, resources.NODE_CLAIMS, claim("c")) == []
    assert seen(detector, resources.NODE_CLAIMS, requested) == [ReconcileRequest(hints.NODES_CHANGED, "n1")]
    assert seen(detector, resources.NODE_CLAIMS, requested) == []
    seen(detector, resources.NODE_CLAIMS, claim("c"))
    assert len(seen(detector, resources.NODE_CLAIMS, requested)) == 1


def test_a_missed_deletion_is_detected_by_the_next_list() -> None:
    detector = ChangeDetector()
    listed(detector, resources.NODES, node())
    listed(detector, resources.PODS, pod("a", node="n1"), pod("stuck", condition=NO_PLACE))
    assert listed(detector, resources.PODS) == [(hints.NODES_EMPTIED, "n1")]
    assert not any(detector.unresolved.values())
    listed(detector, resources.NODE_POOLS, named("a"))
    assert listed(detector, resources.NODE_POOLS) == [(hints.NODE_POOLS_CHANGED, "NodePool/a")]


pods = st.builds(
    pod,
    st.sampled_from("abc"),
    node=st.sampled_from(["", "n1", "n2"]),
    condition=st.sampled_from([None, NO_PLACE]),
    owner=st.sampled_from(["ReplicaSet", "DaemonSet"]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded"]),
    deleting=st.booleans(),
)


@given(st.lists(st.tuples(pods, st.booleans()), max_size=30))
def test_a_node_is_emptied_exactly_when_its_number_of_pods_reaches_zero(changes: list[tuple[WatchedPod, bool]]) -> None:
    detector = ChangeDetector()
    seen(detector, resources.NODES, node("n1"), node("n2"))
    existing: dict[str, WatchedPod] = {}
    for pod_, deleted in changes:
        before = {p.occupied_node for p in existing.values()} - {""}
        if deleted:
            existing.pop(pod_.key, None)
        else:
            existing[pod_.key] = pod_
        after = {p.occupied_node for p in existing.values()} - {""}
        requests = seen(detector, resources.PODS, pod_, deleted=deleted)
        emptied = {key for detail_type, key in requests if detail_type == hints.NODES_EMPTIED}
        assert emptied == before - after
    assert detector.unresolved[hints.PODS_UNSCHEDULABLE] == {p.key for p in existing.values() if p.is_unschedulable}


def buffer(
    name: str = "warm",
    *,
    generation: int = 1,
    strategy: str = ACTIVE_CAPACITY,
    annotations: dict[str, str] | None = None,
) -> WatchedBuffer:
    metadata = ObjectMeta(name=name, namespace="default", generation=generation, uid="u", annotations=annotations or {})
    return WatchedBuffer(metadata=metadata, spec=BufferSpec(provisioning_strategy=strategy))


BUFFER_CHANGED = ReconcileRequest(hints.CAPACITY_BUFFERS_CHANGED, "default/warm")


def test_a_buffer_is_reported_when_it_is_new_changed_or_deleted() -> None:
    detector = ChangeDetector()
    assert seen(detector, resources.CAPACITY_BUFFERS, buffer()) == [BUFFER_CHANGED]
    assert seen(detector, resources.CAPACITY_BUFFERS, buffer()) == []
    assert seen(detector, resources.CAPACITY_BUFFERS, buffer(generation=2)) == [BUFFER_CHANGED]
    assert seen(detector, resources.CAPACITY_BUFFERS, buffer(generation=2), deleted=True) == [BUFFER_CHANGED]
    assert seen(detector, resources.CAPACITY_BUFFERS, buffer(strategy="other")) == []
    assert seen(detector, resources.CAPACITY_BUFFERS, buffer()) == [BUFFER_CHANGED]
    assert seen(detector, resources.CAPACITY_BUFFERS, buffer(strategy="other")) == [BUFFER_CHANGED]
    assert listed(detector, resources.CAPACITY_BUFFERS) == []


def test_a_buffer_is_reported_when_annotations_that_say_how_much_is_wanted_change() -> None:
    detector = ChangeDetector()
    seen(detector, resources.CAPACITY_BUFFERS, buffer(annotations={"tenon.sh/min-chunks": "1", "team": "a"}))
    assert (
        seen(detector, resources.CAPACITY_BUFFERS, buffer(annotations={"tenon.sh/min-chunks": "1", "team": "b"})) == []
    )
    changed = buffer(annotations={"tenon.sh/min-chunks": "2", "team": "b"})
    assert seen(detector, resources.CAPACITY_BUFFERS, changed) == [BUFFER_CHANGED]
    assert seen(detector, resources.CAPACITY_BUFFERS, buffer()) == [BUFFER_CHANGED]


def test_a_buffer_whose_demand_is_only_renewed_is_not_reported() -> None:
    detector = ChangeDetector()

    def is_reported(**annotations: str) -> bool:
        named = {f"tenon.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
        return bool(seen(detector, resources.CAPACITY_BUFFERS, buffer(annotations=named)))

    assert is_reported(queue_chunks="5", queue_until="12:00")
    assert not is_reported(queue_chunks="5", queue_until="12:05")
    assert is_reported(queue_chunks="6", queue_until="12:05")
    assert is_reported()
    assert is_reported(alarm_until="12:00")
    assert not is_reported(alarm_until="12:05")
    assert is_reported(alarm_until="12:05", event_until="12:05")
    assert is_reported(alarm_until="12:05", event_until="13:00")  # a later event, whose raise may have ended before


def test_a_pod_that_comes_to_a_node_may_have_taken_a_buffers_room() -> None:
    detector = ChangeDetector()
    assert seen(detector, resources.PODS, pod("early", node="n1")) == []
    seen(detector, resources.CAPACITY_BUFFERS, buffer())
    assert seen(detector, resources.PODS, pod()) == []
    assert seen(detector, resources.PODS, pod(node="n1")) == [BUFFER_CHANGED]
    assert seen(detector, resources.PODS, pod(node="n1", phase="Running")) == []
    assert seen(detector, resources.PODS, pod("daemon", node="n1", owner="DaemonSet")) == []
    seen(detector, resources.CAPACITY_BUFFERS, buffer(), deleted=True)
    assert seen(detector, resources.PODS, pod("late", node="n1")) == []
