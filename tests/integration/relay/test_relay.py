"""The relay between a Kubernetes API server and an event bus: every hint arrives, and is repeated while unresolved."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import EndpointConnectionError

from local.kubernetes import kinds
from local.kubernetes.apiserver.http import Response
from shared.base import hints
from tests.integration.relay import conftest as given

if TYPE_CHECKING:
    import pytest

    from local.kubernetes.apiserver.http import Request
    from tests.integration.relay.conftest import Bus, World

UNSCHEDULABLE_WEB = (hints.PODS_UNSCHEDULABLE, "default/web")


def definition(group: str, version: str, plural: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "scope": "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def test_an_unschedulable_pod_is_reported_once_and_then_every_minute(world: World) -> None:
    world.add_pod("web")
    assert world.sent_hints() == [UNSCHEDULABLE_WEB]
    assert world.sent_hints() == []
    due = world.relay.due()
    assert due is not None
    world.clock.time = due
    world.relay.step(due)
    assert world.sent_hints() == [UNSCHEDULABLE_WEB]
    world.store.delete(kinds.PODS, "web", namespace="default")
    world.settle()
    assert world.relay.due() is None


def test_an_event_on_the_bus_is_a_hint_for_the_cluster(world: World) -> None:
    world.add_pod("web")
    world.settle()
    world.clock.time += timedelta(seconds=1)
    world.relay.step(world.clock.time)
    [body] = world.bus.bodies()
    hint = hints.parse(body, cluster=given.CLUSTER)
    assert (hint.source, hint.detail_type, hint.keys) == (hints.RELAY, hints.PODS_UNSCHEDULABLE, ("default/web",))


def test_a_node_is_reported_when_its_last_pod_leaves_and_when_it_is_deleted(world: World) -> None:
    world.store.create(kinds.NODES, given.node("n1"))
    world.add_pod("web", node="n1")
    assert world.sent_hints() == [(hints.NODES_CHANGED, "n1")]
    world.store.delete(kinds.PODS, "web", namespace="default")
    assert world.sent_hints() == []  # it terminates
    world.store.delete(kinds.PODS, "web", namespace="default", grace_period_seconds=0)
    assert world.sent_hints() == [(hints.NODES_EMPTIED, "n1")]
    world.store.delete(kinds.NODES, "n1")
    assert world.sent_hints() == [(hints.NODES_DELETING, "n1")]
    assert world.sent_hints(after=61) == []
    assert world.sent_hints() == []


def test_a_kind_that_is_defined_later_is_watched_from_then_on(world: World) -> None:
    crd = definition("karpenter.sh", "v1", "nodepools", "NodePool")
    world.store.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd)
    pools = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.create(pools, {"metadata": {"name": "default"}, "spec": {"weight": 1}})
    assert world.sent_hints() == [(hints.NODE_POOLS_CHANGED, "NodePool/default")]
    world.store.patch(pools, "default", {"status": {"nodes": 1}}, subresource="status")
    assert world.sent_hints() == []
    world.store.patch(pools, "default", {"spec": {"weight": 2}})
    assert world.sent_hints() == [(hints.NODE_POOLS_CHANGED, "NodePool/default")]


def test_a_broken_watch_is_resumed_and_misses_nothing(world: World) -> None:
    world.settle()
    [pods] = [watcher for watcher in world.relay.watchers if watcher.name == "watch pods"]
    world.until(lambda: pods.lists == 1)
    for i in range(5):
        world.server.drop_watches()
        world.add_pod(f"p{i}")
    assert world.sent_hints() == [(hints.PODS_UNSCHEDULABLE, f"default/p{i}") for i in range(5)]
    assert pods.lists == 1


def test_an_expired_watch_is_replaced_by_a_list_that_shows_the_changes(world: World) -> None:
    world.add_pod("gone")
    assert world.sent_hints() == [(hints.PODS_UNSCHEDULABLE, "default/gone")]
    [pods] = [watcher for watcher in world.relay.watchers if watcher.name == "watch pods"]
    expired = json.dumps({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}).encode()
    away = [True]

    def intercept(request: Request) -> Response | None:
        if request.verb == "watch" and request.resource == "pods" and pods.lists == 1:
            return Response(503) if away[0] else Response(410, expired)
        return None

    world.server.intercept = intercept
    world.server.drop_watches()
    world.store.delete(kinds.PODS, "gone", namespace="default")
    world.add_pod("new")
    away[0] = False
    assert world.sent_hints() == [(hints.PODS_UNSCHEDULABLE, "default/new")]
    assert pods.lists == 2
    assert world.sent_hints(after=61) == []
    assert world.sent_hints() == [(hints.PODS_UNSCHEDULABLE, "default/new")]


def test_an_invalid_object_does_not_stop_the_others(world: World) -> None:
    world.add_pod("bad", unschedulable=False)
    bad = world.store.get(kinds.PODS, "bad", namespace="default")
    world.store.write(kinds.PODS, {**bad, "status": {"conditions": "none"}}, bad)  # past the rules: of a later version
    world.add_pod("web")
    assert world.sent_hints() == [UNSCHEDULABLE_WEB]


class RefusingOnce:
    """An events client that rejects the even entries of the first call and fails the second call."""

    def __init__(self, bus: Bus) -> None:
        self._events = bus.events
        self.put_events_batches = 0

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 (boto3's name)
        self.put_events_batches += 1
        if self.put_events_batches == 2:
            raise EndpointConnectionError(endpoint_url="https://events")
        if self.put_events_batches > 2:
            return dict(self._events.put_events(Entries=Entries))  # type: ignore[arg-type]  # unchanged
        sent = [entry for i, entry in enumerate(Entries) if i % 2]
        self._events.put_events(Entries=sent)  # type: ignore[arg-type]  # unchanged
        refused = {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}
        return {"FailedEntryCount": 1, "Entries": [{"EventId": "1"} if i % 2 else refused for i in range(len(Entries))]}


def test_rejected_entries_are_sent_again_until_all_are_accepted(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    refusing = RefusingOnce(world.bus)
    monkeypatch.setattr(world.relay._publisher, "_events", refusing)
    for i in range(250):
        world.add_pod(f"p{i:03}")
    arrived = world.sent_hints()
    assert len(arrived) == 100
    for _ in range(10):
        if world.relay.pending:
            due = world.relay.due()
            assert due is not None
            world.clock.time = due
            world.relay.step(due)
            arrived += world.bus.hints()
    assert sorted(arrived) == [(hints.PODS_UNSCHEDULABLE, f"default/p{i:03}") for i in range(250)]
    assert refusing.put_events_batches == 3


def test_the_relay_is_ready_only_while_the_bus_accepts_what_it_publishes(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    ready = [world.relay.is_publishing]
    world.relay.announce()
    assert world.sent_hints() == [(hints.RELAY_STARTED, socket.gethostname())]
    ready.append(world.relay.is_publishing)
    monkeypatch.setattr(world.relay._publisher, "_events", RefusingOnce(world.bus))
    world.add_pod("web")
    world.sent_hints()
    for _ in range(3):
        ready.append(world.relay.is_publishing)
        due = world.relay.due()
        assert due is not None
        world.clock.time = due
        world.relay.step(due)
    # not before the first event; then accepted; rejected; unreachable; accepted again
    assert ready == [False, True, False, False, True]


def test_pending_hints_are_sent_when_the_relay_stops(world: World) -> None:
    world.add_pod("web")
    world.settle()
    world.relay.stop()
    assert world.bus.hints() == [UNSCHEDULABLE_WEB]
    assert not world.relay.is_alive


def test_two_relays_send_hints_twice_and_lose_none(world: World) -> None:
    second = given.World(world.server, world.store, world.bus, world.clock)
    second.start()
    world.add_pod("web")
    second.settle()
    assert world.sent_hints() == [UNSCHEDULABLE_WEB]
    assert second.sent_hints() == [UNSCHEDULABLE_WEB]
    second.close()


def test_no_spec_leaves_the_cluster(world: World) -> None:
    secret = given.pod("web")
    secret["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter2"}]
    world.add_pod("web", **secret["spec"])
    world.settle()
    world.clock.time += timedelta(seconds=1)
    world.relay.step(world.clock.time)
    [body] = world.bus.bodies()
    assert "hunter2" not in body
