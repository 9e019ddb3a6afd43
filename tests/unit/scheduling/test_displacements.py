"""Which machines count as ones that had no room for the pods that they were launched for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Pod
from shared.api.nodeclaim import NodeClaim
from shared.base.struct import with_fields
from shared.scheduling.nominations.displacements import Record, brake, possible_losses, with_losses
from shared.snapshot import Snapshot

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}]


def pod(
    name: str,
    cpu: str,
    *,
    node: str = "",
    owner: list[dict[str, Any]] | None = None,
    deleted: datetime | None = None,
) -> Pod:
    created = (NOW - timedelta(minutes=3)).isoformat()
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "creationTimestamp": created,
                "ownerReferences": OWNER if owner is None else owner,
                "deletionTimestamp": deleted.isoformat() if deleted else None,
            },
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        },
        Pod,
    )


def claim(planned: str, *, initialized_ago: timedelta = timedelta(minutes=1)) -> NodeClaim:
    """A NodeClaim of 4 CPUs whose node took pods a minute ago."""
    initialized = {
        "type": nodeclaim.INITIALIZED,
        "status": "True",
        "lastTransitionTime": (NOW - initialized_ago).isoformat(),
    }
    return msgspec.convert(
        {
            "metadata": {
                "name": "c1",
                "creationTimestamp": (NOW - timedelta(minutes=2)).isoformat(),
                "annotations": {names.PLANNED_PODS: planned},
            },
            "status": {"nodeName": "n1", "allocatable": {"cpu": "4", "pods": "10"}, "conditions": [initialized]},
        },
        NodeClaim,
    )


@pytest.mark.parametrize(("daemon_cpu", "is_kept_out"), [("2", False), ("3", True)])
def test_a_pending_pod_that_the_node_could_hold_is_no_proof(daemon_cpu: str, *, is_kept_out: bool) -> None:
    """A topology spread or another rule keeps it away, and would do so on any machine."""
    daemon = [{**OWNER[0], "kind": "DaemonSet"}]
    pods = (pod("web-1", "2"), pod("agent", daemon_cpu, node="n1", owner=daemon))
    snapshot = Snapshot(taken_at=NOW, pods=pods, node_claims=(claim("default/web-1"),))
    (loss,) = possible_losses(snapshot, {"default/web-"})
    assert loss.kept_out == is_kept_out


@pytest.mark.parametrize(("deleted", "lost"), [(None, []), (NOW, [("default/web-1",)])])
def test_a_preempted_pod_is_lost_before_its_grace_period_ends(
    deleted: datetime | None, lost: list[tuple[str, ...]]
) -> None:
    """Its successor is pending meanwhile, and would get another machine."""
    pods = (pod("web-1", "2", node="n1", deleted=deleted), pod("web-2", "2"))
    snapshot = Snapshot(taken_at=NOW, pods=pods, node_claims=(claim("default/web-1"),))
    losses = possible_losses(snapshot, {"default/web-"})
    assert [loss.pods for loss in losses] == lost
    assert not any(loss.kept_out for loss in losses)


@pytest.mark.parametrize(("neighbour", "lost"), [("DaemonSet", 1), ("ReplicaSet", 0)])
def test_a_daemon_that_takes_the_room_of_a_new_node_counts_before_the_nomination_ends(
    neighbour: str, lost: int
) -> None:
    """Another machine would be launched meanwhile; pods of others may only have come first."""
    owner = [{**OWNER[0], "kind": neighbour, "name": "agent"}]
    pods = (pod("web-1", "2"), pod("agent", "3", node="n1", owner=owner))
    young = claim("default/web-1", initialized_ago=timedelta(seconds=1))
    snapshot = Snapshot(taken_at=NOW, pods=pods, node_claims=(young,))
    assert len(possible_losses(snapshot, {"default/web-"})) == lost


def test_each_machine_that_is_lost_in_a_row_is_remembered_longer() -> None:
    """So that a day costs a few machines, not three each half hour."""
    pods = (pod("web-1", "2"), pod("agent", "3", node="n1", owner=[{**OWNER[0], "kind": "DaemonSet"}]))
    snapshot = Snapshot(taken_at=NOW, pods=pods, node_claims=(claim("default/web-1"),))
    (loss,) = possible_losses(snapshot, {"default/web-"})
    record: Record = {}
    now, launched = NOW, 0
    while now < NOW + timedelta(days=1):
        braked = brake(with_fields(snapshot, taken_at=now), record, {"default/web-1"})
        if braked is None or not braked.refused:
            launched += 1
            named = with_fields(loss.claim, metadata=with_fields(loss.claim.metadata, name=f"c{launched}"))
            record = with_losses(record, [with_fields(loss, claim=named)], now=now)
        now += timedelta(minutes=1)
    assert launched <= 25
    later = now + timedelta(hours=9)
    assert with_losses(record, [], now=later) == {}
