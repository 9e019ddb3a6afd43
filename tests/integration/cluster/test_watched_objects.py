"""A warm process reads only changes, and its pods equal those of a complete list."""

from __future__ import annotations

import gc
import json
import random
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.kubernetes.apiserver.http import Response
from shared.api.kubernetes import Node, Pod
from shared.base import runtime
from shared.cluster import listing, resources, watched_objects
from shared.cluster.errors import ForbiddenError
from shared.cluster.watched_objects import MAX_LISTED_NODES, MAX_UNPROVEN, UNFINISHED, NodeCache, PodCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.apiserver.server import Server
    from shared.cluster.client import Client
    from tests.integration.cluster.conftest import Clock


def path(name: str, subresource: str = "") -> str:
    return resources.PODS.path(name, namespace="default", subresource=subresource)


def listed(client: Client) -> dict[str, Pod]:
    return {pod.key: pod for pod in listing.list_objects(client, resources.PODS, Pod, fields=UNFINISHED).objects}


def read_by_key(pods: PodCache) -> dict[str, Pod]:
    return {pod.key: pod for pod in pods.read().objects}


@pytest.fixture
def pods(client: Client, add_pod: Callable[..., None]) -> PodCache:
    for i in range(5):
        add_pod(f"p{i}")
        add_pod(f"b{i}", nodeName="n1")
    cache = PodCache(client, min_pods_to_watch=1, max_silences=1200)
    cache.read()
    return cache


def test_the_garbage_collector_does_not_traverse_a_large_cache(client: Client, add_pod: Callable[..., None]) -> None:
    add_pod("p")

    def is_traversed(pods: PodCache) -> bool:
        (pod,) = pods.read().objects
        return id(pod) in {id(obj) for obj in gc.get_objects()}

    try:
        assert is_traversed(PodCache(client, min_pods_to_watch=2))
        assert not is_traversed(PodCache(client, min_pods_to_watch=1))
        assert gc.isenabled()
    finally:
        gc.unfreeze()


def bind(client: Client, name: str) -> None:
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": "n1"}}
    client.create(path(name, "binding"), target)


def test_each_kind_of_change_is_applied(client: Client, pods: PodCache, add_pod: Callable[..., None]) -> None:
    bind(client, "p0")
    client.patch(path("b0"), {"metadata": {"labels": {"x": "y"}}})
    client.patch(path("b1", "status"), {"status": {"phase": "Succeeded"}})
    client.delete(path("b2"), grace_period_seconds=0)
    client.delete(path("b3"))
    client.delete(path("p1"))
    add_pod("new")
    pods_by_key = read_by_key(pods)
    assert pods_by_key == listed(client)
    assert pods_by_key["default/p0"].spec.node_name == "n1"
    assert pods_by_key["default/b3"].metadata.deletion_timestamp is not None
    assert "default/b1" not in pods_by_key
    assert pods.lists == 1


def test_without_changes_nothing_is_listed_again(client: Client, pods: PodCache) -> None:
    for _ in range(3):
        assert read_by_key(pods) == listed(client)
    assert pods.lists == 1


def test_an_expired_resource_version_is_listed_again(server: Server, client: Client, pods: PodCache) -> None:
    expired = json.dumps({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}).encode()
    server.intercept = lambda request: Response(410, expired) if request.verb == "watch" else None
    assert read_by_key(pods) == listed(client)
    assert pods.lists == 2


@pytest.mark.parametrize("fault", [Response(403), Response(drop=True)], ids=["forbidden", "dropped"])
def test_a_failed_watch_is_replaced_by_a_list(
    server: Server, client: Client, pods: PodCache, add_pod: Callable[..., None], fault: Response
) -> None:
    add_pod("new")
    server.intercept = lambda request: fault if request.verb == "watch" else None
    assert read_by_key(pods) == listed(client)
    assert pods.lists == 2


def pods_in_memory() -> int:
    return sum(isinstance(obj, Pod) for obj in gc.get_objects())


def test_the_pods_so_far_are_gone_before_they_are_listed_again(
    server: Server, client: Client, add_pod: Callable[..., None]
) -> None:
    for i in range(20):
        add_pod(f"p{i}")
    gc.collect()
    of_other_tests, during = pods_in_memory(), []
    pods = PodCache(client, min_pods_to_watch=1_000)
    assert len(pods.read().objects) == 20
    server.intercept = lambda _request: during.append(pods_in_memory() - of_other_tests)
    assert len(pods.read().objects) == 20
    assert during == [0]


def test_after_a_list_that_failed_the_pods_are_listed(
    server: Server, client: Client, pods: PodCache, add_pod: Callable[..., None]
) -> None:
    server.intercept = lambda _request: Response(403)
    with pytest.raises(ForbiddenError):
        pods.read()
    server.intercept = None
    add_pod("new")
    assert read_by_key(pods) == listed(client)
    assert pods.lists == 2


def silent_watch(request: Request) -> Response | None:
    """A watch that never delivers an event."""
    never = threading.Event()

    def silence() -> Iterator[bytes | None]:
        while True:
            yield None
            never.wait(0.01)

    return Response(stream=silence()) if request.verb == "watch" else None


@pytest.mark.parametrize("node_count", [2, MAX_LISTED_NODES + 1])
def test_pods_on_leaving_nodes_are_current_although_the_watch_lags(
    server: Server, client: Client, add_pod: Callable[..., None], node_count: int
) -> None:
    nodes = [f"n{i}" for i in range(node_count)]
    for node in nodes:
        for name in ("stays", "terminates", "goes"):
            add_pod(f"{name}-{node}", nodeName=node)
    add_pod("elsewhere", nodeName="other")
    pods = PodCache(client, min_pods_to_watch=1)
    pods.read()
    for node in nodes:
        client.delete(path(f"terminates-{node}"))
        client.delete(path(f"goes-{node}"), grace_period_seconds=0)
    server.intercept = silent_watch
    pods.read()
    assert {pod.key: pod for pod in pods.read_on_nodes(nodes).objects} == listed(client)


def test_a_silent_watch_is_not_trusted(server: Server, client: Client, add_pod: Callable[..., None]) -> None:
    """The watch never delivers the binding, but the list of unbound pods shows it."""
    add_pod("p0")
    pods = PodCache(client, min_pods_to_watch=1, max_silences=2)
    pods.read()
    bind(client, "p0")
    server.intercept = silent_watch
    assert read_by_key(pods)["default/p0"].spec.node_name == "n1"
    assert pods.lists == 2


def test_a_silent_watch_hides_the_end_of_pods_for_two_minutes_only(
    server: Server, client: Client, clock: Clock, add_pod: Callable[..., None]
) -> None:
    """Nothing that a list of unbound pods shows has changed."""
    add_pod("b0", nodeName="n1")
    add_pod("b1", nodeName="n1")
    with runtime.using(runtime.Runtime(environ={}, now=clock.now)):
        pods = PodCache(client, min_pods_to_watch=1)
        pods.read()
        client.delete(path("b0"), grace_period_seconds=0)
        server.intercept = silent_watch
        clock.time += MAX_UNPROVEN - timedelta(seconds=1)
        assert len(pods.read().objects) == 2
        clock.time += timedelta(seconds=1)
        assert read_by_key(pods) == listed(client)
    assert pods.lists == 2


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_bookmark_proves_a_silent_watch(
    client: Client, clock: Clock, add_pod: Callable[..., None], *, has_changed: bool
) -> None:
    add_pod("b0", nodeName="n1")
    add_pod("b1", nodeName="n1")
    with runtime.using(runtime.Runtime(environ={}, now=clock.now)):
        pods = PodCache(client, min_pods_to_watch=1, min_pods_for_bookmark=1)
        pods.read()
        if has_changed:
            client.patch(path("b0"), {"metadata": {"labels": {"x": "y"}}})
        clock.time += MAX_UNPROVEN
        client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "another"}})
        assert read_by_key(pods) == listed(client)
        clock.time += MAX_UNPROVEN - timedelta(seconds=1)
        assert read_by_key(pods) == listed(client)
    assert pods.lists == 1


def test_without_a_bookmark_the_pods_are_listed(
    server: Server, client: Client, clock: Clock, add_pod: Callable[..., None]
) -> None:
    add_pod("b0", nodeName="n1")
    add_pod("b1", nodeName="n1")
    with runtime.using(runtime.Runtime(environ={}, now=clock.now)):
        pods = PodCache(client, min_pods_to_watch=1, min_pods_for_bookmark=1)
        pods.read()
        client.delete(path("b0"), grace_period_seconds=0)
        server.intercept = silent_watch
        clock.time += MAX_UNPROVEN
        assert read_by_key(pods) == listed(client)
    assert pods.lists == 2


def test_a_small_cluster_is_listed_each_time(client: Client, add_pod: Callable[..., None]) -> None:
    add_pod("only")
    cache = PodCache(client, min_pods_to_watch=2)
    for _ in range(3):
        assert set(read_by_key(cache)) == {"default/only"}
    assert cache.lists == 3


def test_an_invalid_pod_is_reported_until_it_is_valid(
    client: Client, pods: PodCache, add_pod: Callable[..., None], server: Server
) -> None:
    valid = server.store.get(kinds.PODS, "b0", namespace="default")
    server.store.write(kinds.PODS, {**valid, "status": {"startTime": 7}}, valid)  # past the rules: of a later version
    add_pod("new")
    listed_pods = pods.read()
    assert [str(invalid.ref) for invalid in listed_pods.invalid] == ["Pod default/b0"]
    assert "default/b0" not in {pod.key for pod in listed_pods.objects}
    client.patch(path("b0", "status"), {"status": {"startTime": None}})
    add_pod("newer")
    assert pods.read().invalid == ()
    assert read_by_key(pods) == listed(client)


@pytest.mark.parametrize("seed", range(5))
def test_the_cache_always_equals_a_list(
    client: Client, pods: PodCache, add_pod: Callable[..., None], seed: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 (a test's dice)
    for turn in range(8):
        for i in range(rng.randrange(8)):
            there = sorted(listed(client).values(), key=lambda pod: pod.key)
            name = rng.choice(there).metadata.name
            match rng.randrange(4):
                case 0:
                    add_pod(f"t{turn}-{i}", **rng.choice([{}, {"nodeName": "n1"}]))
                case 1:
                    client.patch(path(name), {"metadata": {"labels": {"turn": str(turn)}}})
                case 2:
                    client.delete(path(name), grace_period_seconds=0)
                case _:
                    client.patch(path(name, "status"), {"status": {"phase": rng.choice(["Running", "Failed"])}})
        # the last change is to an unbound pod, and changes arrive in order
        add_pod(f"last{turn}")
        assert read_by_key(pods) == listed(client)
    assert pods.lists == 1


# --- nodes ---


def add_node(client: Client, name: str) -> None:
    client.create(resources.NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def report(client: Client, name: str) -> None:
    """What a kubelet does every five minutes."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    client.patch(resources.NODES.path(name, subresource="status"), {"status": {"conditions": [ready]}})


def listed_nodes(client: Client) -> dict[str, Node]:
    return {n.metadata.name: n for n in listing.list_objects(client, resources.NODES, Node).objects}


def read_nodes(nodes: NodeCache) -> dict[str, Node]:
    return {n.metadata.name: n for n in nodes.read().objects}


@pytest.fixture
def nodes(client: Client, monkeypatch: pytest.MonkeyPatch) -> NodeCache:
    monkeypatch.setattr(watched_objects, "MIN_NODES_TO_WATCH", 1)
    monkeypatch.setattr(watched_objects, "NODE_SILENCE_SECONDS", 0.2)
    for i in range(4):
        add_node(client, f"n{i}")
    cache = NodeCache(client)
    cache.read()
    return cache


def test_each_kind_of_change_of_a_node_is_applied(client: Client, nodes: NodeCache) -> None:
    client.patch(resources.NODES.path("n0"), {"metadata": {"labels": {"x": "y"}}})
    client.delete(resources.NODES.path("n1"))
    add_node(client, "new")
    report(client, "n2")
    by_name = read_nodes(nodes)
    assert by_name == listed_nodes(client)
    assert by_name["n0"].metadata.labels == {"x": "y"}
    assert by_name.keys() == {"n0", "n2", "n3", "new"}
    assert nodes.lists == 1
    assert read_nodes(nodes) == by_name
    assert nodes.lists == 1


def test_a_watch_of_nodes_that_proves_nothing_is_replaced_by_a_list(
    client: Client, nodes: NodeCache, add_pod: Callable[..., None]
) -> None:
    add_pod("later")  # a later resourceVersion than any node's
    assert read_nodes(nodes) == listed_nodes(client)
    assert nodes.lists == 2


@pytest.mark.parametrize(
    "fault", [Response(403), Response(410), Response(drop=True)], ids=["forbidden", "expired", "dropped"]
)
def test_a_failed_watch_of_nodes_is_replaced_by_a_list(
    server: Server, client: Client, nodes: NodeCache, fault: Response
) -> None:
    report(client, "n0")
    server.intercept = lambda request: fault if request.verb == "watch" else None
    assert read_nodes(nodes) == listed_nodes(client)
    assert nodes.lists == 2


def test_few_nodes_are_listed_each_time(client: Client, nodes: NodeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_objects, "MIN_NODES_TO_WATCH", 5)
    report(client, "n0")
    assert read_nodes(nodes) == listed_nodes(client)
    assert nodes.lists == 2


def test_nodes_of_a_cluster_that_was_restored_are_listed(server: Server, client: Client, nodes: NodeCache) -> None:
    before = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()
    answers = [Response(200, before)]
    server.intercept = lambda request: answers.pop() if request.query.get("limit") == "1" and answers else None
    assert read_nodes(nodes) == listed_nodes(client)
    assert (answers, nodes.lists) == ([], 2)
