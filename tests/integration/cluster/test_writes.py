"""Idempotent writes, which keep other writers' changes."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shared.api.kubernetes import Node, Taint
from shared.api.meta import ObjectMeta, with_condition
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec
from shared.api.nodepool import NodePool, NodePoolStatus
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.cluster.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.apiserver.server import Server
    from shared.cluster.client import Client
    from tests.integration.cluster.conftest import Clock

pytestmark = pytest.mark.usefixtures("karpenter")
CLAIM = resources.NODE_CLAIMS.path("c")


def new_claim(*finalizers: str) -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(name="c", labels={"a": "1"}, finalizers=list(finalizers)),
        spec=NodeClaimSpec(expire_after="1h"),
    )


def raw(client: Client, path: str) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(client.get(path))
    return stored


def counted(server: Server, method: str) -> list[Request]:
    requests: list[Request] = []
    server.intercept = lambda request: requests.append(request) if request.method == method else None
    return requests


def labelled(claim: NodeClaim) -> NodeClaim:
    labels = {**claim.metadata.labels, "ours": "yes"}
    return with_fields(claim, metadata=with_fields(claim.metadata, labels=labels))


def test_creating_a_claim_twice_creates_one(client: Client) -> None:
    first = writes.create_claim(client, new_claim())
    second = writes.create_claim(client, new_claim())
    assert first.metadata.uid
    assert second == first


def test_an_update_sends_only_differing_fields_and_keeps_unknown_ones(client: Client) -> None:
    claim = writes.create_claim(client, new_claim())
    client.patch(CLAIM, {"spec": {"unknown": {"deep": 1}}})
    writes.update(client, resources.NODE_CLAIMS, claim, labelled)
    stored = raw(client, CLAIM)
    assert stored["spec"]["unknown"] == {"deep": 1}
    assert stored["metadata"]["labels"] == {"a": "1", "ours": "yes"}


def test_nothing_is_sent_when_nothing_changes(server: Server, client: Client) -> None:
    claim = writes.create_claim(client, new_claim())
    patches = counted(server, "PATCH")
    again = writes.update(client, resources.NODE_CLAIMS, claim, lambda c: c)
    assert again is claim
    assert patches == []


def test_a_conflicting_update_is_computed_again(client: Client) -> None:
    claim = writes.create_claim(client, new_claim())
    client.patch(CLAIM, {"metadata": {"labels": {"theirs": "yes"}}})
    after = writes.update(client, resources.NODE_CLAIMS, claim, labelled)
    assert after.metadata.labels == {"a": "1", "theirs": "yes", "ours": "yes"}


def test_repeated_conflicts_raise(client: Client) -> None:
    claim = writes.create_claim(client, new_claim())
    turns = iter(range(100))

    def meddled(current: NodeClaim) -> NodeClaim:
        client.patch(CLAIM, {"metadata": {"labels": {"turn": str(next(turns))}}})
        return labelled(current)

    with pytest.raises(ConflictError):
        writes.update(client, resources.NODE_CLAIMS, claim, meddled)
    assert next(turns) == 5


def test_updating_a_deleted_object_raises(client: Client) -> None:
    claim = writes.create_claim(client, new_claim())
    client.delete(CLAIM)
    with pytest.raises(NotFoundError):
        writes.update(client, resources.NODE_CLAIMS, claim, labelled)


def test_a_field_that_is_reset_to_its_default_is_removed(client: Client) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
    }
    stored = msgspec.json.decode(client.create(resources.NODES.path(), node), type=Node)
    assert Taint(key="a", effect="NoSchedule") in stored.spec.taints

    def freed(current: Node) -> Node:
        spec = with_fields(current.spec, taints=[], unschedulable=False)
        return with_fields(current, spec=spec)

    after = writes.update(client, resources.NODES, stored, freed)
    assert after.spec.taints == []
    assert not raw(client, resources.NODES.path("n"))["spec"].get("taints")


def launched(claim: NodeClaim, reason: str, now: datetime, type_: str = "Launched") -> NodeClaim:
    conditions = with_condition(
        claim.status.conditions,
        type_,
        status=reason == "Launched",
        reason=reason,
        now=now,
        generation=claim.metadata.generation,
    )
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions))


def test_unchanged_conditions_keep_their_transition_times(server: Server, client: Client, clock: Clock) -> None:
    claim = writes.create_claim(client, new_claim())
    first = writes.update_status(client, resources.NODE_CLAIMS, claim, lambda c: launched(c, "Launched", clock.now()))
    since = first.status.conditions[0].last_transition_time
    clock.time += timedelta(minutes=1)
    patches = counted(server, "PATCH")
    second = writes.update_status(client, resources.NODE_CLAIMS, first, lambda c: launched(c, "Launched", clock.now()))
    assert second.status.conditions[0].last_transition_time == since
    assert patches == []
    third = writes.update_status(client, resources.NODE_CLAIMS, second, lambda c: launched(c, "Gone", clock.now()))
    assert third.status.conditions[0].last_transition_time == clock.now()
    assert third.status.conditions[0].observed_generation == claim.metadata.generation


def test_conditions_of_concurrent_writers_are_kept(client: Client, clock: Clock) -> None:
    claim = writes.create_claim(client, new_claim())
    for name in ("Launched", "Registered"):
        change = partial(launched, reason="Launched", now=clock.now(), type_=name)
        writes.update_status(client, resources.NODE_CLAIMS, claim, change)  # both start from the same claim
    assert {c["type"] for c in raw(client, CLAIM)["status"]["conditions"]} == {"Launched", "Registered"}


def test_the_status_of_a_converted_pool_is_written_to_the_object_it_came_from(client: Client) -> None:
    created = client.create(
        resources.PROVISIONERS.path(),
        {
            "apiVersion": "karpenter.sh/v1alpha5",
            "kind": "Provisioner",
            "metadata": {"name": "old"},
            "spec": {"limits": {"resources": {"cpu": "10"}}},
        },
    )
    metadata = msgspec.json.decode(created, type=Node).metadata
    pool = NodePool(metadata=metadata, api_version="karpenter.sh/v1alpha5", kind="Provisioner")

    def counted_nodes(current: NodePool) -> NodePool:
        return with_fields(current, status=NodePoolStatus(nodes=3))

    client.patch(resources.PROVISIONERS.path("old"), {"metadata": {"labels": {"edited": "meanwhile"}}})
    after = writes.update_status(client, resources.PROVISIONERS, pool, counted_nodes)
    assert after.status.nodes == 3
    assert after.metadata.labels == {"edited": "meanwhile"}
    stored = raw(client, resources.PROVISIONERS.path("old"))
    assert stored["status"] == {"nodes": 3}
    assert stored["spec"] == {"limits": {"resources": {"cpu": "10"}}}


def test_an_empty_status_patch_is_not_sent(server: Server, client: Client) -> None:
    writes.create_claim(client, new_claim())
    patches = counted(server, "PATCH")
    assert writes.patch_status(client, resources.NODE_CLAIMS, "c", {}) is None
    assert patches == []
    writes.patch_status(client, resources.NODE_CLAIMS, "c", {"nodeName": "n"})
    assert raw(client, CLAIM)["status"]["nodeName"] == "n"


def test_only_the_named_finalizer_is_removed(client: Client) -> None:
    claim = writes.create_claim(client, new_claim("theirs.io/a", "ours.io/b", "theirs.io/c"))
    client.patch(CLAIM, [{"op": "remove", "path": "/metadata/finalizers/0"}], kind="json")
    assert writes.remove_finalizer(client, resources.NODE_CLAIMS, claim, "ours.io/b")
    assert raw(client, CLAIM)["metadata"]["finalizers"] == ["theirs.io/c"]
    assert not writes.remove_finalizer(client, resources.NODE_CLAIMS, claim, "ours.io/b")


def test_removing_the_last_finalizer_completes_the_deletion(client: Client) -> None:
    claim = writes.create_claim(client, new_claim("ours.io/b"))
    assert writes.delete(client, resources.NODE_CLAIMS, claim)
    assert raw(client, CLAIM)["metadata"]["deletionTimestamp"]
    assert writes.remove_finalizer(client, resources.NODE_CLAIMS, claim, "ours.io/b")
    with pytest.raises(NotFoundError):
        client.get(CLAIM)
    assert not writes.remove_finalizer(client, resources.NODE_CLAIMS, claim, "ours.io/b")


def test_another_object_of_the_same_name_is_not_deleted(client: Client) -> None:
    old = writes.create_claim(client, new_claim())
    client.delete(CLAIM)
    assert not writes.delete(client, resources.NODE_CLAIMS, old)
    new = writes.create_claim(client, new_claim())
    assert not writes.delete(client, resources.NODE_CLAIMS, old)
    assert raw(client, CLAIM)["metadata"]["uid"] == new.metadata.uid
