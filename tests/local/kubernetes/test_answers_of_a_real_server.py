"""Answers in which the differential test (tests/real/differential) once saw the embedded server differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from local.kubernetes import kinds
from local.kubernetes.apiserver import auth
from local.kubernetes.apiserver.api import Api
from local.kubernetes.apiserver.http import Request
from local.kubernetes.errors import ApiError
from local.kubernetes.registry.quantities import canonical_quantity

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from local.kubernetes.registry.store import Store
    from tests.local.kubernetes.conftest import Cluster

Json = dict[str, Any]
_CONTAINERS = [{"name": "main", "image": "web"}]
_NAMESPACE = "/api/v1/namespaces/default"


def answer(store: Store, method: str, path: str, body: Json | None = None, **query: str) -> tuple[int, Json]:
    api = Api(store, authenticate=lambda _: auth.ADMIN)
    content = {"PATCH": "application/merge-patch+json"}.get(method, "application/json")
    encoded = b"" if body is None else msgspec.json.encode(body)
    response = api.respond(Request(method, path, query, {"content-type": content}, encoded))
    return response.status, msgspec.json.decode(response.body)


def test_a_pod_that_is_removed_at_once_is_marked_first(cluster: Cluster) -> None:
    cluster.pod("a")
    seen: list[Change] = []
    cluster.store.subscribe(seen.append)
    status, pod = answer(cluster.store, "DELETE", f"{_NAMESPACE}/pods/a")
    assert [change.type for change in seen] == ["MODIFIED", "DELETED"]
    assert (status, pod["metadata"]["deletionGracePeriodSeconds"], pod["metadata"]["generation"]) == (200, 0, 2)


def test_a_negative_grace_period_is_a_second_and_a_longer_one_changes_nothing(cluster: Cluster) -> None:
    cluster.pod("a", node="n")
    assert (
        answer(cluster.store, "DELETE", f"{_NAMESPACE}/pods/a", {"gracePeriodSeconds": -5})[1]["metadata"][
            "deletionGracePeriodSeconds"
        ]
        == 1
    )
    before = cluster.store.version
    assert answer(cluster.store, "DELETE", f"{_NAMESPACE}/pods/a", {"gracePeriodSeconds": 9})[0] == 200
    assert cluster.store.version == before


def test_a_grace_period_that_is_shortened_after_its_end_ends_now(cluster: Cluster) -> None:
    cluster.pod("a", node="n")
    cluster.store.delete(kinds.PODS, "a", namespace="default", grace_period_seconds=30)
    cluster.time.pass_seconds(10)
    _, pod = answer(cluster.store, "DELETE", f"{_NAMESPACE}/pods/a", {"gracePeriodSeconds": 20})
    assert pod["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:20Z"
    _, pod = answer(cluster.store, "DELETE", f"{_NAMESPACE}/pods/a", {"gracePeriodSeconds": 5})
    assert pod["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:10Z"
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 1


def test_foreground_deletion_leaves_a_finalizer_while_there_are_dependents(cluster: Cluster) -> None:
    deployment = cluster.deployment("web", 1)
    replica_set = cluster.replica_set(deployment)
    cluster.store.patch(
        kinds.REPLICA_SETS,
        replica_set["metadata"]["name"],
        {"metadata": {"finalizers": ["example.com/hold"]}},
        namespace="default",
    )
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    status, body = answer(cluster.store, "DELETE", path, {"propagationPolicy": "Foreground"})
    assert (status, body["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
    assert cluster.store.find(kinds.DEPLOYMENTS, "web", namespace="default") is not None


def test_the_pods_of_a_job_are_orphaned_unless_the_request_says_otherwise(store: Store) -> None:
    template = {"spec": {"containers": _CONTAINERS, "restartPolicy": "Never"}}
    job = store.create(kinds.JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"]}
    pod = {"metadata": {"name": "a", "ownerReferences": [owner]}, "spec": {"containers": _CONTAINERS}}
    store.create(kinds.PODS, pod)
    assert answer(store, "DELETE", "/apis/batch/v1/namespaces/default/jobs/j")[0] == 200
    assert store.find(kinds.JOBS, "j", namespace="default") is None
    assert "ownerReferences" not in store.get(kinds.PODS, "a", namespace="default")["metadata"]


def test_an_eviction_counts_in_the_budget_before_its_controller_sees_the_pod_go(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.pod(name, node="n", ready=True, labels={"app": "web"})
    cluster.budget(minAvailable=1)
    seen: list[Json] = []
    cluster.store.subscribe(lambda c: seen.append(c.object) if c.kind == kinds.POD_DISRUPTION_BUDGETS else None)
    cluster.store.evict("default", "a")
    assert (seen[0]["status"]["disruptionsAllowed"], list(seen[0]["status"]["disruptedPods"])) == (0, ["a"])
    assert "disruptedPods" not in seen[-1]["status"]
    with pytest.raises(ApiError) as error:
        cluster.store.evict("default", "b")
    assert error.value.details["causes"][0]["message"].endswith("needs 1 healthy pods and has 1 currently")


def test_an_eviction_waits_for_a_budget_that_its_controller_has_not_seen(cluster: Cluster) -> None:
    cluster.pod("a", node="n", ready=True, labels={"app": "web"})
    budget = cluster.budget(minAvailable=0)
    stale = {**cluster.store.get(kinds.POD_DISRUPTION_BUDGETS, "keep", namespace="default")}
    cluster.store.write(
        kinds.POD_DISRUPTION_BUDGETS, {**stale, "metadata": {**stale["metadata"], "generation": 2}}, stale
    )
    with pytest.raises(ApiError) as error:
        cluster.store.evict("default", "a")
    assert (error.value.status, error.value.details["retryAfterSeconds"]) == (429, 10)
    assert budget["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("sent", "written"),
    [("0.5", "500m"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("1000m", "1"), (2, "2"), ("1e3", "1e3"), ("x", "x"),
     ("0", "0"), ("100Ki", "100Ki"), ("1500000", "1500k"), ("512Ki", "512Ki"), ("1Ei", "1Ei"), ("12E", "12E")],
)  # fmt: skip
def test_quantities_are_written_in_their_canonical_text(sent: object, written: str) -> None:
    assert canonical_quantity(sent) == written


def test_an_invalid_object_is_refused_as_such_even_where_its_name_exists(store: Store) -> None:
    store.create(kinds.CONFIG_MAPS, {"metadata": {"name": "a"}})
    path = f"{_NAMESPACE}/configmaps"
    assert answer(store, "POST", path, {"metadata": {"name": "a", "labels": {"a": "no spaces"}}})[0] == 422
    assert answer(store, "POST", path, {"metadata": {"name": "a"}})[0] == 409


def test_an_object_that_is_being_deleted_gets_no_new_finalizers(store: Store) -> None:
    store.create(kinds.CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
    store.delete(kinds.CONFIG_MAPS, "a", namespace="default")
    patch = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    assert answer(store, "PATCH", f"{_NAMESPACE}/configmaps/a", patch)[0] == 422


@pytest.mark.parametrize(
    ("image", "policy"),
    [("web", "Always"), ("web:latest", "Always"), ("web:1", "IfNotPresent"), ("host:5000/web", "Always")],
)
def test_images_without_a_tag_are_always_pulled(store: Store, image: str, policy: str) -> None:
    pod = store.create(kinds.PODS, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": image}]}})
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_a_templates_requests_are_not_set_to_its_limits(store: Store) -> None:
    container = {**_CONTAINERS[0], "resources": {"limits": {"cpu": "0.5"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    daemonset = store.create(kinds.DAEMON_SETS, {"metadata": {"name": "d"}, "spec": spec})
    assert daemonset["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m"}}


def test_a_pods_tolerations_may_be_added_and_not_removed(cluster: Cluster) -> None:
    cluster.pod("a")
    path = f"{_NAMESPACE}/pods/a"
    status, pod = answer(cluster.store, "PATCH", path, {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}})
    assert (status, [t["key"].rpartition("/")[2] for t in pod["spec"]["tolerations"]]) == (
        200,
        ["x", "not-ready", "unreachable"],
    )
    assert (
        answer(cluster.store, "PATCH", path, {"spec": {"tolerations": [{"key": "y", "operator": "Exists"}]}})[0] == 422
    )


def test_a_full_page_has_a_token_if_there_are_more_objects_though_none_is_selected(store: Store) -> None:
    for name in ("a", "b"):
        store.create(kinds.CONFIG_MAPS, {"metadata": {"name": name, "labels": {"app": name}}})
    path = f"{_NAMESPACE}/configmaps"
    _, page = answer(store, "GET", path, limit="1", labelSelector="app=a")
    _, last = answer(store, "GET", path, limit="1", labelSelector="app=a", **{"continue": page["metadata"]["continue"]})
    assert (last["items"], "continue" in last["metadata"]) == ([], False)


def test_options_in_the_query_are_not_read_where_a_deletion_has_a_body(store: Store) -> None:
    store.create(kinds.CONFIG_MAPS, {"metadata": {"name": "a"}})
    assert answer(store, "DELETE", f"{_NAMESPACE}/configmaps/a", {"gracePeriodSeconds": 0}, dryRun="All")[0] == 200
    assert store.find(kinds.CONFIG_MAPS, "a", namespace="default") is None


def test_a_deployments_generation_counts_its_annotations_too(cluster: Cluster) -> None:
    cluster.deployment("web", 1)
    patch = {"metadata": {"annotations": {"a": "b"}}}
    _, changed = answer(cluster.store, "PATCH", "/apis/apps/v1/namespaces/default/deployments/web", patch)
    assert changed["metadata"]["generation"] == 2


def test_a_secrets_texts_are_encoded_by_an_update_too(store: Store) -> None:
    store.create(kinds.SECRETS, {"metadata": {"name": "a"}})
    _, secret = answer(store, "PATCH", f"{_NAMESPACE}/secrets/a", {"stringData": {"key": "one"}})
    assert (secret["data"], "stringData" in secret) == ({"key": "b25l"}, False)


def test_a_lease_is_created_by_an_update(store: Store) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
    assert answer(store, "PUT", path, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "x"}})[0] == 201
    assert answer(store, "PUT", f"{_NAMESPACE}/configmaps/a", {"metadata": {"name": "a"}})[0] == 404
