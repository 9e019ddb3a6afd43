"""The official Python client works with the API server as with a real one."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import kubernetes.client as k8s
import kubernetes.dynamic
import kubernetes.watch
import pytest
from kubernetes.client.rest import ApiException

from local.kubernetes import kinds
from local.kubernetes.apiserver.auth import User
from local.kubernetes.apiserver.http import Request, Response
from local.kubernetes.apiserver.server import Server
from tests.local.kubernetes_api.conftest import client_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.local.kubernetes_api.conftest import Cluster

_POD = {"metadata": {"name": "a", "labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}


def refused(status: int, reason: str) -> pytest.RaisesExc[Any]:
    return pytest.raises(ApiException, check=lambda e: e.status == status and json.loads(e.body)["reason"] == reason)


def test_typed_pods_are_created_read_patched_and_deleted(cluster: Cluster) -> None:
    core = k8s.CoreV1Api(cluster.client)
    created = core.create_namespaced_pod("default", _POD)
    assert created.metadata.uid
    assert core.read_namespaced_pod("a", "default").spec.containers[0].image == "web:1"
    patched = core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"app": None, "b": "1"}}})
    assert patched.metadata.labels == {"b": "1"}
    core.delete_namespaced_pod("a", "default")
    with refused(404, "NotFound"):
        core.read_namespaced_pod("a", "default")


def test_a_stale_replace_conflicts(cluster: Cluster) -> None:
    coordination = k8s.CoordinationV1Api(cluster.client)
    first = coordination.create_namespaced_lease(
        "default", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    )
    coordination.replace_namespaced_lease("l", "default", {**_plain(cluster, first), "spec": {"holderIdentity": "b"}})
    with refused(409, "Conflict"):
        coordination.replace_namespaced_lease("l", "default", _plain(cluster, first))


def _plain(cluster: Cluster, typed: object) -> dict[str, Any]:
    plain: dict[str, Any] = cluster.client.sanitize_for_serialization(typed)
    return plain


def test_pages_of_a_list_are_one_consistent_state(cluster: Cluster) -> None:
    for name in "abcde":
        cluster.pod(name)
    core = k8s.CoreV1Api(cluster.client)
    first = core.list_namespaced_pod("default", limit=2)
    assert first.metadata.remaining_item_count == 3
    cluster.pod("aa")
    cluster.store.delete(kinds.PODS, "d", namespace="default")
    names = [pod.metadata.name for pod in first.items]
    token = first.metadata._continue
    while token:
        page = core.list_namespaced_pod("default", limit=2, _continue=token)
        assert page.metadata.resource_version == first.metadata.resource_version
        names += [pod.metadata.name for pod in page.items]
        token = page.metadata._continue
    assert names == ["a", "b", "c", "d", "e"]


def test_a_page_after_compaction_is_410(cluster: Cluster) -> None:
    for name in "abc":
        cluster.pod(name)
    core = k8s.CoreV1Api(cluster.client)
    token = core.list_namespaced_pod("default", limit=1).metadata._continue
    cluster.pod("d")
    cluster.store.compact()
    with refused(410, "Expired"):
        core.list_namespaced_pod("default", limit=1, _continue=token)


def test_a_list_from_the_cache_ignores_the_limit(cluster: Cluster) -> None:
    for name in "abc":
        cluster.pod(name)
    fetched = k8s.CoreV1Api(cluster.client).list_namespaced_pod("default", limit=1, resource_version="0")
    assert len(fetched.items) == 3


def test_a_watch_reports_changes_since_a_version(cluster: Cluster) -> None:
    core = k8s.CoreV1Api(cluster.client)
    version = core.list_namespaced_pod("default").metadata.resource_version
    cluster.pod("a", node="n")
    cluster.store.delete(kinds.PODS, "a", namespace="default", grace_period_seconds=0)
    events = kubernetes.watch.Watch().stream(
        core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=1
    )
    assert [(event["type"], event["object"].metadata.name) for event in events] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]


def test_a_watch_without_a_version_begins_with_the_present_objects(cluster: Cluster) -> None:
    cluster.pod("a")
    watch = kubernetes.watch.Watch()
    seen: list[tuple[str, str]] = []
    for event in watch.stream(k8s.CoreV1Api(cluster.client).list_namespaced_pod, "default", timeout_seconds=5):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 1:
            cluster.pod("b")
        else:
            watch.stop()
    assert seen == [("ADDED", "a"), ("ADDED", "b")]


def test_in_a_watch_by_selector_objects_come_and_go_as_they_match(cluster: Cluster) -> None:
    core = k8s.CoreV1Api(cluster.client)
    cluster.pod("a")
    version = str(cluster.store.version)
    for value in ("x", "y"):
        cluster.store.patch(kinds.PODS, "a", {"metadata": {"labels": {"app": value}}}, namespace="default")
    events = kubernetes.watch.Watch().stream(
        core.list_namespaced_pod, "default", label_selector="app=x", resource_version=version, timeout_seconds=1
    )
    assert [event["type"] for event in events] == ["ADDED", "DELETED"]


def test_a_watch_from_a_version_that_is_too_old_is_410(cluster: Cluster) -> None:
    core = k8s.CoreV1Api(cluster.client)
    with pytest.raises(ApiException, check=lambda error: error.status == 410):
        list(
            kubernetes.watch.Watch().stream(
                core.list_namespaced_pod, "default", resource_version="1", timeout_seconds=2
            )
        )


def test_a_dropped_watch_ends_cleanly_so_that_its_client_can_resume(cluster: Cluster) -> None:
    core = k8s.CoreV1Api(cluster.client)
    watch = kubernetes.watch.Watch()
    names: list[str] = []
    cluster.pod("a")
    for event in watch.stream(core.list_namespaced_pod, "default"):
        names.append(event["object"].metadata.name)
        if names == ["a"]:
            cluster.server.drop_watches()
            cluster.pod("b")
        else:
            watch.stop()
    assert names == ["a", "b"]


def test_an_eviction_answers_429_when_a_budget_blocks(cluster: Cluster) -> None:
    cluster.pod("a", node="n", labels={"app": "x"})
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.store.patch(kinds.PODS, "a", running, namespace="default", subresource="status")
    budget = {"metadata": {"name": "k"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}}}
    policy, core = k8s.PolicyV1Api(cluster.client), k8s.CoreV1Api(cluster.client)
    policy.create_namespaced_pod_disruption_budget("default", budget)
    eviction = {"metadata": {"name": "a"}}
    with refused(429, "TooManyRequests"):
        core.create_namespaced_pod_eviction("a", "default", eviction)
    policy.delete_namespaced_pod_disruption_budget("k", "default")
    core.create_namespaced_pod_eviction("a", "default", eviction)
    assert core.read_namespaced_pod("a", "default").metadata.deletion_timestamp


def test_a_binding_puts_a_pod_on_its_node(cluster: Cluster) -> None:
    cluster.pod("a")
    core = k8s.CoreV1Api(cluster.client)
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    core.create_namespaced_pod_binding(
        "a", "default", {"metadata": {"name": "a"}, "target": target}, _preload_content=False
    )
    assert core.read_namespaced_pod("a", "default").spec.node_name == "n"


def test_deployments_are_scaled_by_their_subresource(cluster: Cluster) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    apps = k8s.AppsV1Api(cluster.client)
    apps.create_namespaced_deployment("default", {"metadata": {"name": "web"}, "spec": spec})
    apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 5}})
    assert apps.read_namespaced_deployment("web", "default").spec.replicas == 5
    assert apps.read_namespaced_deployment_scale("web", "default").spec.replicas == 5


def test_custom_kinds_are_found_by_discovery_the_moment_they_exist(cluster: Cluster) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"w": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [version],
    }
    extensions = k8s.ApiextensionsV1Api(cluster.client)
    extensions.create_custom_resource_definition({"metadata": {"name": "widgets.example.com"}, "spec": spec})
    widgets = kubernetes.dynamic.DynamicClient(cluster.client).resources.get(
        api_version="example.com/v1", kind="Widget"
    )
    widgets.create(
        {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"w": 1}}, "default"
    )
    assert [item.spec.w for item in widgets.get(namespace="default").items] == [1]


def test_metadata_alone_and_tables_are_served_on_request(cluster: Cluster) -> None:
    cluster.pod("a", node="n")
    shown = {}
    for form in ("PartialObjectMetadataList", "Table"):
        accept = {"Accept": f"application/json;as={form};v=v1;g=meta.k8s.io"}
        answer = cluster.client.call_api("GET", f"{cluster.server.url}/api/v1/pods", {**accept, **_bearer(cluster)})
        shown[form] = json.loads(answer.read())
    assert "spec" not in shown["PartialObjectMetadataList"]["items"][0]
    heads = [column["name"] for column in shown["Table"]["columnDefinitions"]]
    row = dict(zip(heads, shown["Table"]["rows"][0]["cells"], strict=True))
    assert (row["Name"], row["Ready"], row["Status"], row["Node"]) == ("a", "0/1", "Pending", "n")


def _bearer(cluster: Cluster) -> dict[str, str]:
    configuration = cluster.client.configuration
    return {"authorization": f"Bearer {configuration.api_key['authorization']}"}


def test_a_dry_run_answers_and_changes_nothing(cluster: Cluster) -> None:
    core = k8s.CoreV1Api(cluster.client)
    assert core.create_namespaced_pod("default", _POD, dry_run="All").metadata.name == "a"
    assert core.list_namespaced_pod("default").items == []


def test_a_collection_is_deleted_by_selector(cluster: Cluster) -> None:
    cluster.pod("a", labels={"app": "x"})
    cluster.pod("b")
    core = k8s.CoreV1Api(cluster.client)
    core.delete_collection_namespaced_pod("default", label_selector="app=x")
    assert [pod.metadata.name for pod in core.list_namespaced_pod("default").items] == ["b"]


def test_an_unknown_token_is_401_and_a_forbidden_verb_403(cluster: Cluster, tmp_path: Path) -> None:
    stranger = client_of(cluster.server, tmp_path, token="other")
    with refused(401, "Unauthorized"):
        k8s.CoreV1Api(stranger).list_node()
    stranger.rest_client.pool_manager.clear()
    reader = User("reader")
    with Server(
        cluster.store,
        authenticate=lambda _token: reader,
        authorize=lambda _user, verb, kind, _namespace, _name: (verb, kind.plural) == ("list", "nodes"),
    ) as server:
        client = client_of(server, tmp_path)
        core = k8s.CoreV1Api(client)
        assert core.list_node().items == []
        with pytest.raises(ApiException) as forbidden:
            core.list_namespaced_pod("default")
        assert json.loads(forbidden.value.body)["message"] == (
            'pods is forbidden: User "reader" cannot list resource "pods" in API group "" in the namespace "default"'
        )
        client.rest_client.pool_manager.clear()


def test_an_intercept_replaces_responses(cluster: Cluster) -> None:
    failures = [Response(500, b"{}"), Response(drop=True)]

    def fail(request: Request) -> Response | None:
        return failures.pop() if failures and (request.verb, request.resource) == ("list", "nodes") else None

    cluster.server.intercept = fail
    core = k8s.CoreV1Api(cluster.client)
    core.list_namespaced_pod("default")
    with pytest.raises(ApiException, check=lambda error: error.status == 500):
        core.list_node()  # the dropped connection is tried again by urllib3, and meets the 500
    assert core.list_node().items == []


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"name": "a"}, "spec": "text"},
        {"metadata": {"name": "a"}, "spec": {"containers": [7]}},
        {"metadata": []},
        [],
        "text",
        {"metadata": {"name": "a", "labels": {"a": 1}}},
        {"metadata": {"name": "a", "ownerReferences": "me"}},
    ],
)
def test_a_malformed_object_is_refused_and_the_server_keeps_running(cluster: Cluster, body: object) -> None:
    url = f"{cluster.server.url}/api/v1/namespaces/default/pods"
    headers = {"Content-Type": "application/json", **_bearer(cluster)}
    answer = cluster.client.call_api("POST", url, headers, body)
    assert (answer.status, json.loads(answer.read())["reason"]) == (400, "BadRequest")
    assert k8s.CoreV1Api(cluster.client).list_namespaced_pod("default").items == []


def test_many_clients_lose_no_update(cluster: Cluster, tmp_path: Path) -> None:
    cluster.store.create(kinds.CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"n": "0"}})

    def count(client: Any, times: int) -> None:
        core = k8s.CoreV1Api(client)
        while times:
            fetched = core.read_namespaced_config_map("c", "default")
            fetched.data["n"] = str(int(fetched.data["n"]) + 1)
            try:
                core.replace_namespaced_config_map("c", "default", fetched)
            except ApiException as error:
                assert error.status == 409  # noqa: PT017 (any other status is a fault; a conflict is tried again)
            else:
                times -= 1

    clients = [client_of(cluster.server, tmp_path) for _ in range(4)]
    threads = [threading.Thread(target=count, args=(client, 10)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.rest_client.pool_manager.clear()
    assert cluster.store.get(kinds.CONFIG_MAPS, "c", namespace="default")["data"] == {"n": "40"}
