"""Validating webhooks of the local API server: who is asked, who may deny, and whom nobody waits for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from infra.cluster.kubernetes import webhook_configuration
from local.kubernetes import kinds
from local.kubernetes.errors import ApiError
from local.kubernetes.registry.admission_webhooks import CallError
from local.kubernetes.registry.store import Store

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj

URL = "https://example.com/path"
DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "1"}


class Webhook:
    """Answers reviews, and remembers them."""

    def __init__(self) -> None:
        self.reviews: list[dict[str, Any]] = []
        self.timeouts: list[float] = []
        self.fails = False
        self.denies = ""
        self.answers_for = ""

    def __call__(self, url: str, review: bytes, timeout: float) -> bytes:
        assert url == URL
        request = json.loads(review)["request"]
        self.reviews.append(request)
        self.timeouts.append(timeout)
        if self.fails:
            raise CallError("connection refused")
        response: dict[str, Any] = {"uid": self.answers_for or request["uid"], "allowed": not self.denies}
        if self.denies:
            response["status"] = {"message": self.denies}
        return json.dumps({"response": response}).encode()


def pod(name: str = "web", metadata: dict[str, Any] | None = None, **spec: Any) -> Obj:
    containers = [{"name": "app", "image": "app"}]
    return {
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": {"containers": containers, **spec},
    }


@pytest.fixture
def webhook() -> Webhook:
    return Webhook()


@pytest.fixture
def store(webhook: Webhook) -> Store:
    """A cluster with Tenon's configuration."""
    cluster = Store(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    cluster.webhooks.call = webhook
    cluster.create(kinds.VALIDATING_WEBHOOK_CONFIGURATIONS, webhook_configuration.configuration(URL))
    return cluster


def configure(store: Store, **fields: object) -> None:
    configuration = webhook_configuration.configuration(URL)
    configuration["webhooks"][0].update(fields)
    store.patch(kinds.VALIDATING_WEBHOOK_CONFIGURATIONS, "tenon", {"webhooks": configuration["webhooks"]})


def test_a_new_pod_is_reviewed_once_with_its_name_and_the_timeout(store: Store, webhook: Webhook) -> None:
    created = store.create(kinds.PODS, pod(metadata={"name": "", "generateName": "web-"}))
    store.patch(kinds.PODS, created["metadata"]["name"], {"metadata": {"labels": {"a": "b"}}}, namespace="default")
    (request,) = webhook.reviews
    assert request["object"]["metadata"]["name"] == created["metadata"]["name"]
    assert (request["operation"], request["namespace"], request["dryRun"]) == ("CREATE", "default", False)
    assert webhook.timeouts == [1.0]


@pytest.mark.parametrize(
    "excluded",
    [
        pod(metadata={"ownerReferences": [DAEMON]}),
        pod(nodeName="node-1"),
        pod(schedulingGates=[{"name": "example.com/quota"}]),
    ],
)
def test_pods_that_the_conditions_leave_out_are_not_reviewed(store: Store, webhook: Webhook, excluded: Obj) -> None:
    store.create(kinds.PODS, excluded)
    assert webhook.reviews == []
    store.create(kinds.PODS, pod("ordinary", {"ownerReferences": [{**DAEMON, "kind": "ReplicaSet"}]}, nodeName=""))
    assert len(webhook.reviews) == 1


def test_other_kinds_are_not_reviewed(store: Store, webhook: Webhook) -> None:
    store.create(kinds.CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "default"}})
    store.create(kinds.NODES, {"metadata": {"name": "node-1"}})
    assert webhook.reviews == []


def test_selectors_leave_namespaces_and_objects_out(store: Store, webhook: Webhook) -> None:
    configure(store, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}})
    store.create(kinds.PODS, pod())
    assert webhook.reviews == []
    configure(store, objectSelector={"matchLabels": {"app": "web"}})
    store.create(kinds.PODS, pod("other"))
    assert webhook.reviews == []
    store.create(kinds.PODS, pod("same", {"labels": {"app": "web"}}))
    assert len(webhook.reviews) == 1


def test_a_dry_run_is_reviewed_as_one_and_creates_nothing(store: Store, webhook: Webhook) -> None:
    store.create(kinds.PODS, pod(), dry_run=True)
    assert [request["dryRun"] for request in webhook.reviews] == [True]
    assert store.list(kinds.PODS) == []


def test_whom_a_webhook_denies_is_not_created(store: Store, webhook: Webhook) -> None:
    webhook.denies = "not today"
    with pytest.raises(ApiError, match=r'admission webhook "pods.tenon.sh" denied the request: not today'):
        store.create(kinds.PODS, pod())
    assert store.list(kinds.PODS) == []


@pytest.mark.parametrize("how", ["unreachable", "answer for another request"])
def test_a_failed_call_is_ignored_or_not_by_the_failure_policy(store: Store, webhook: Webhook, how: str) -> None:
    webhook.fails, webhook.answers_for = how == "unreachable", "another"
    store.create(kinds.PODS, pod())
    configure(store, failurePolicy="Fail")
    with pytest.raises(ApiError, match="failed calling webhook"):
        store.create(kinds.PODS, pod("second"))
    assert [p["metadata"]["name"] for p in store.list(kinds.PODS)] == ["web"]


def test_who_took_the_name_while_a_webhook_was_asked_keeps_it(store: Store, webhook: Webhook) -> None:
    def faster(url: str, review: bytes, timeout: float) -> bytes:
        store.webhooks.call = None
        store.create(kinds.PODS, pod(metadata={"labels": {"first": "yes"}}))
        return webhook(url, review, timeout)

    store.webhooks.call = faster
    with pytest.raises(ApiError, match="already exists"):
        store.create(kinds.PODS, pod())
    (kept,) = store.list(kinds.PODS)
    assert kept["metadata"]["labels"] == {"first": "yes"}
