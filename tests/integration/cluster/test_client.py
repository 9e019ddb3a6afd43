"""The client and a server: which requests are retried, and which errors are raised."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes.apiserver.http import Request, Response
from shared.base import runtime
from shared.cluster import resources
from shared.cluster.client import ATTEMPTS, Client
from shared.cluster.connect import configuration
from shared.cluster.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.apiserver.server import Server
    from tests.integration.cluster.conftest import Clock

DEFAULT = resources.NAMESPACES.path("default")
DROP = Response(drop=True)
PODS = resources.PODS.path(namespace="default")
POD = resources.PODS.path("a", namespace="default")


def status(code: int, reason: str = "Faulty", **headers: str) -> Response:
    body = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": "injected"}).encode()
    return Response(code, body, headers=tuple(headers.items()))


class Faults:
    """Answers the next requests instead of the server, and counts all; ``after``: the server executes them first."""

    def __init__(self, server: Server, *answers: Response, method: str = "", after: bool = False) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers)
        self._method = method
        self._server = server
        self._after = after
        server.intercept = self

    def __call__(self, request: Request) -> Response | None:
        if self._method and request.method != self._method:
            return None
        self.requests.append(request)
        if not self._answers:
            return None
        answer = self._answers.pop(0)
        if self._after:
            self._server.intercept = None
            self._server.api.respond(request)
            self._server.intercept = self
        return answer


@pytest.mark.parametrize("fault", [status(429), status(500), status(503), status(504), DROP], ids=str)
def test_reads_are_retried_until_they_succeed(server: Server, client: Client, clock: Clock, fault: Response) -> None:
    faults = Faults(server, fault, fault)
    assert json.loads(client.get(DEFAULT))["metadata"]["name"] == "default"
    assert len(faults.requests) == 3
    assert clock.slept == [0.2, 0.4]


def test_retries_are_limited(server: Server, client: Client) -> None:
    faults = Faults(server, *[status(503)] * 99)
    with pytest.raises(UnavailableError) as caught:
        client.get(DEFAULT)
    assert caught.value.status == 503
    assert len(faults.requests) == ATTEMPTS


def test_retry_after_is_honoured(server: Server, client: Client, clock: Clock) -> None:
    Faults(server, status(429, **{"Retry-After": "2"}))
    client.get(DEFAULT)
    assert clock.slept == [2.0]


@pytest.mark.parametrize(("seconds", "ahead"), [(-300, -300), (45, 0), (300, 300)])
def test_a_difference_of_clocks_is_seen_if_it_is_more_than_a_minute(
    server: Server, client: Client, seconds: int, ahead: int
) -> None:
    server.store.now = lambda: runtime.now() + timedelta(seconds=seconds)
    client.get("/version")
    assert client.server_clock_ahead.total_seconds() == pytest.approx(ahead, abs=2)


def test_a_longer_wait_than_an_invocation_should_take_is_left_to_the_next_one(
    server: Server, client: Client, clock: Clock
) -> None:
    faults = Faults(server, *[status(429, **{"Retry-After": "30"})] * 9)
    with pytest.raises(TooManyRequestsError):
        client.get(DEFAULT)
    assert (len(faults.requests), clock.slept) == (1, [])


def test_an_eviction_that_waits_for_too_long_is_not_repeated(server: Server, client: Client) -> None:
    faults = Faults(server, *[status(504, "Timeout")] * 9)
    with pytest.raises(UnavailableError):
        client.evict("default", "a")
    assert len(faults.requests) == 1


def test_a_create_is_not_retried_when_it_may_have_succeeded(server: Server, client: Client) -> None:
    faults = Faults(server, DROP, method="POST", after=True)
    with pytest.raises(UnavailableError):
        client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}, "spec": CONTAINERS})
    assert len(faults.requests) == 1
    assert len(list(client.list_pages(PODS))) == 1


def test_a_throttled_create_is_retried(server: Server, client: Client) -> None:
    faults = Faults(server, status(429), method="POST")
    client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": CONTAINERS})
    assert len(faults.requests) == 2


def test_any_request_is_retried_when_no_connection_was_made(server: Server, client: Client, clock: Clock) -> None:
    server.stop()
    with pytest.raises(UnavailableError):
        client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": CONTAINERS})
    assert len(clock.slept) == ATTEMPTS - 1


CONTAINERS: dict[str, Any] = {"containers": [{"name": "c", "image": "x"}]}


def test_errors_have_types(client: Client, add_pod: Callable[..., None]) -> None:
    add_pod("a")
    with pytest.raises(NotFoundError):
        client.get(resources.PODS.path("nobody", namespace="default"))
    with pytest.raises(NotFoundError):
        list(client.list_pages(resources.PROVISIONERS.path()))
    with pytest.raises(AlreadyExistsError):
        add_pod("a")
    with pytest.raises(ConflictError):
        client.patch(POD, {"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}})
    with pytest.raises(ConflictError):
        client.delete(POD, uid="another")
    with pytest.raises(InvalidError):
        client.patch(POD, [{"op": "test", "path": "/metadata/name", "value": "b"}], kind="json")


def test_a_wrong_token_is_unauthorized(server: Server) -> None:
    stranger = Client(configuration(server.url, server.ca_pem, lambda: "wrong"))
    with pytest.raises(UnauthorizedError):
        stranger.get(DEFAULT)


def test_each_kind_of_patch_has_its_content_type(client: Client, add_pod: Callable[..., None]) -> None:
    add_pod("a")
    client.patch(POD, {"metadata": {"labels": {"merged": "yes", "app": None}}})
    client.patch(POD, [{"op": "add", "path": "/metadata/labels/stepped", "value": "yes"}], kind="json")
    applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"applied": "yes"}}}
    client.patch(POD, applied, kind="apply", field_manager="tenon", force=True)
    labels = json.loads(client.get(POD))["metadata"]["labels"]
    assert labels == {"merged": "yes", "stepped": "yes", "applied": "yes"}


def test_a_long_list_is_paged_at_one_resource_version(client: Client, add_pod: Callable[..., None]) -> None:
    for i in range(7):
        add_pod(f"p{i}")
    pages = []
    for page in client.list_pages(resources.PODS.path(), limit=2):
        pages.append(json.loads(page))
        if len(pages) == 1:
            add_pod("late")
    names = [item["metadata"]["name"] for page in pages for item in page["items"]]
    assert [len(page["items"]) for page in pages] == [2, 4, 1], "each page has twice as many as the one before"
    assert names == [f"p{i}" for i in range(7)]


def test_lists_take_selectors(client: Client, add_pod: Callable[..., None]) -> None:
    add_pod("free")
    add_pod("bound", nodeName="n1")
    [page] = client.list_pages(resources.PODS.path(), fields="spec.nodeName=", labels="app=web")
    assert [item["metadata"]["name"] for item in json.loads(page)["items"]] == ["free"]


def test_a_denied_eviction_is_not_retried(
    server: Server, client: Client, clock: Clock, add_pod: Callable[..., None], stored: Callable[[], list[str]]
) -> None:
    add_pod("a")
    add_pod("b")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    client.create(resources.POD_DISRUPTION_BUDGETS.path(namespace="default"), budget)
    for name in ("a", "b"):
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        client.patch(resources.PODS.path(name, namespace="default", subresource="status"), {"status": ready})
    faults = Faults(server)
    with pytest.raises(TooManyRequestsError) as caught:
        client.evict("default", "a")
    assert caught.value.by_budget
    assert len(faults.requests) == 1
    assert clock.slept == []
    client.patch(resources.POD_DISRUPTION_BUDGETS.path("web", namespace="default"), {"spec": {"minAvailable": 1}})
    client.evict("default", "a")
    assert stored() == ["b"]


def test_a_watch_resumes_from_its_resource_version(client: Client, add_pod: Callable[..., None]) -> None:
    add_pod("a")
    [page] = client.list_pages(resources.PODS.path())
    since = json.loads(page)["metadata"]["resourceVersion"]
    add_pod("b")
    client.patch(POD, {"metadata": {"labels": {"x": "y"}}})
    watch = client.watch(resources.PODS.path(), resource_version=since, timeout=30)
    events = []
    for event in watch:
        events.append((event.type, json.loads(bytes(event.object))["metadata"]["name"]))
        if len(events) == 2:
            watch.close()
    assert events == [("ADDED", "b"), ("MODIFIED", "a")]


def test_a_watch_from_an_expired_resource_version_raises(client: Client) -> None:
    with pytest.raises(ExpiredError):
        list(client.watch(resources.PODS.path(), resource_version="1", timeout=1))


def test_a_watch_ends_at_its_timeout(client: Client) -> None:
    [page] = client.list_pages(resources.PODS.path())
    since = json.loads(page)["metadata"]["resourceVersion"]
    assert {event.type for event in client.watch(resources.PODS.path(), resource_version=since, timeout=1)} <= {
        "BOOKMARK"
    }
