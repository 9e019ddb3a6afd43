"""What ends between two reads of the cluster: terminations, lives of nodes, drains, and the wait of pods for a node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cli.export.observed_ends import ObservedEnds
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node, NodeSpec, Pod, PodStatus
from shared.api.meta import Condition, ObjectMeta, with_condition
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.snapshot import Snapshot

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def object_metadata(uid: str, *, deleted: bool = False) -> ObjectMeta:
    return ObjectMeta(
        name=uid,
        uid=uid,
        labels={names.NODEPOOL: "web"},
        creation_timestamp=NOW - timedelta(hours=1),
        deletion_timestamp=NOW if deleted else None,
    )


def claim(*, deleted: bool = False, drained: bool = False) -> NodeClaim:
    conditions = with_condition([], nodeclaim.DRAINED, status=drained, reason="Drained", now=NOW, generation=1)
    status = NodeClaimStatus(provider_id="aws:///i", conditions=conditions)
    return NodeClaim(metadata=object_metadata("c", deleted=deleted), status=status)


NODE = Node(metadata=object_metadata("n"), spec=NodeSpec(provider_id="aws:///i"))


def pod(*, bound: bool) -> Pod:
    scheduled = Condition(type="PodScheduled", status="True" if bound else "False", last_transition_time=NOW)
    metadata = ObjectMeta(name="p", uid="p", creation_timestamp=NOW - MINUTE)
    return Pod(metadata=metadata, status=PodStatus(conditions=[scheduled]))


def values(*reads: Snapshot) -> dict[str, float]:
    observed = ObservedEnds()
    for snapshot in reads:
        observed.observe(snapshot)
    samples = list(observed.samples())
    assert all(s.labels == ({} if "pods" in s.family.name else {"nodepool": "web"}) for s in samples)
    return {f"{s.family.name.removeprefix('karpenter_')}{s.suffix}": s.value for s in samples}


def test_a_node_that_goes_has_its_drain_its_termination_and_its_life() -> None:
    assert values(
        Snapshot(taken_at=NOW, node_claims=(claim(),), nodes=(NODE,)),
        Snapshot(
            taken_at=NOW + MINUTE,
            node_claims=(claim(deleted=True, drained=True),),
            nodes=(NODE,),
        ),
        Snapshot(taken_at=NOW + 3 * MINUTE),
        Snapshot(taken_at=NOW + 4 * MINUTE),
    ) == {
        "nodes_drained_total": 1,
        "nodeclaims_termination_duration_seconds_count": 1,
        "nodeclaims_termination_duration_seconds_sum": 180,
        "nodes_termination_duration_seconds_count": 1,
        "nodes_termination_duration_seconds_sum": 180,
        "nodes_lifetime_duration_seconds_count": 1,
        "nodes_lifetime_duration_seconds_sum": 3780,
    }


def test_a_pod_is_counted_once_when_it_is_bound_whether_it_waited_or_is_new() -> None:
    waiting, bound = (Snapshot(taken_at=NOW, pods=(pod(bound=b),)) for b in (False, True))
    once = {"pods_bound_duration_seconds_count": 1, "pods_bound_duration_seconds_sum": 60}
    assert values(waiting, bound, bound) == once
    assert values(Snapshot(taken_at=NOW), bound, bound) == once


def test_what_was_there_at_the_start_is_not_counted() -> None:
    drained = Snapshot(taken_at=NOW, node_claims=(claim(deleted=True, drained=True),), pods=(pod(bound=True),))
    assert values(drained, drained) == {}
