"""What a client may rely on when it creates, changes and deletes objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.errors import ApiError
from local.kubernetes.registry import scale
from local.kubernetes.registry.custom_resources import Definition
from local.kubernetes.registry.structural_schema import Schema

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from local.kubernetes.registry.store import Store
    from tests.local.kubernetes.conftest import Cluster


def raises_api_error(status: int, reason: str) -> pytest.RaisesExc[ApiError]:
    return pytest.raises(ApiError, check=lambda error: (error.status, error.reason) == (status, reason))


def test_a_new_object_gets_uid_version_and_time_and_loses_what_only_the_server_sets(cluster: Cluster) -> None:
    created = cluster.store.create(
        kinds.CONFIG_MAPS, {"metadata": {"name": "a", "uid": "mine", "deletionTimestamp": "2020-01-01T00:00:00Z"}}
    )
    metadata = created["metadata"]
    assert metadata["creationTimestamp"] == "2026-11-21T12:00:00Z"
    assert metadata["uid"] != "mine"
    assert metadata["namespace"] == "default"
    assert "deletionTimestamp" not in metadata
    assert int(metadata["resourceVersion"]) == cluster.store.version


def test_an_object_without_a_name_gets_one_from_generate_name(store: Store) -> None:
    names = {store.create(kinds.SECRETS, {"metadata": {"generateName": "s-"}})["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("s-") and len(name) == 7 for name in names)


def test_a_name_can_be_used_once(store: Store) -> None:
    store.create(kinds.SECRETS, {"metadata": {"name": "s"}})
    with raises_api_error(409, "AlreadyExists"):
        store.create(kinds.SECRETS, {"metadata": {"name": "s"}})


def test_a_namespace_must_exist(store: Store) -> None:
    with raises_api_error(404, "NotFound"):
        store.create(kinds.SECRETS, {"metadata": {"name": "s"}}, namespace="nowhere")


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dot.", "x" * 254])
def test_a_name_has_to_be_a_dns_name(store: Store, name: str) -> None:
    with raises_api_error(422, "Invalid"):
        store.create(kinds.SECRETS, {"metadata": {"name": name}})


def test_a_label_value_has_to_be_one(store: Store) -> None:
    with raises_api_error(422, "Invalid"):
        store.create(kinds.SECRETS, {"metadata": {"name": "s", "labels": {"a": "not a label"}}})


def test_stored_objects_are_copies(store: Store) -> None:
    secret: dict[str, Any] = {"metadata": {"name": "s"}, "data": {"a": "MQ=="}}
    store.create(kinds.SECRETS, secret)
    secret["data"]["a"] = "Mg=="
    assert store.get(kinds.SECRETS, "s", namespace="default")["data"] == {"a": "MQ=="}


def test_a_write_that_carries_an_old_version_conflicts(store: Store) -> None:
    old = store.create(kinds.LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    store.replace(kinds.LEASES, {**old, "spec": {"holderIdentity": "b"}})
    with raises_api_error(409, "Conflict"):
        store.replace(kinds.LEASES, {**old, "spec": {"holderIdentity": "c"}})
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"], "labels": {"a": "b"}}}
    with raises_api_error(409, "Conflict"):
        store.patch(kinds.LEASES, "l", stale, namespace="default")


def test_replacing_a_lease_needs_a_resource_version(store: Store) -> None:
    store.create(kinds.LEASES, {"metadata": {"name": "l"}})
    with raises_api_error(422, "Invalid"):
        store.replace(kinds.LEASES, {"metadata": {"name": "l", "namespace": "default"}, "spec": {}})


def test_a_write_that_changes_nothing_is_no_change(cluster: Cluster) -> None:
    pod = cluster.pod("a", labels={"x": "1"})
    again = cluster.store.patch(kinds.PODS, "a", {"metadata": {"labels": {"x": "1"}}}, namespace="default")
    assert again["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


def test_no_client_changes_uid_generation_or_creation_time(cluster: Cluster) -> None:
    pod = cluster.pod("a")
    patch = {"metadata": {"creationTimestamp": None, "generation": 9, "deletionTimestamp": "2020-01-01T00:00:00Z"}}
    after = cluster.store.patch(kinds.PODS, "a", patch, namespace="default")
    assert after["metadata"] == pod["metadata"]
    with raises_api_error(409, "Conflict"):
        cluster.store.patch(kinds.PODS, "a", {"metadata": {"uid": "other"}}, namespace="default")


def test_status_is_a_subresource(cluster: Cluster) -> None:
    cluster.deployment("web", 2)
    both = {"spec": {"replicas": 5}, "status": {"readyReplicas": 1}}
    main = cluster.store.patch(kinds.DEPLOYMENTS, "web", both, namespace="default")
    assert (main["spec"]["replicas"], main["status"]) == (5, {})
    both = {"spec": {"replicas": 7}, "status": {"readyReplicas": 1}}
    status = cluster.store.patch(kinds.DEPLOYMENTS, "web", both, namespace="default", subresource="status")
    assert (status["spec"]["replicas"], status["status"]) == (5, {"readyReplicas": 1})


def test_the_generation_changes_with_the_spec_only(cluster: Cluster) -> None:
    store = cluster.store
    assert cluster.deployment("web", 2)["metadata"]["generation"] == 1
    store.patch(kinds.DEPLOYMENTS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
    status = {"status": {"readyReplicas": 1}}
    after = store.patch(kinds.DEPLOYMENTS, "web", status, namespace="default", subresource="status")
    assert after["metadata"]["generation"] == 1
    after = store.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, namespace="default")
    assert after["metadata"]["generation"] == 2


def test_the_scale_subresource_sets_replicas_and_conflicts_on_an_old_version(cluster: Cluster) -> None:
    store = cluster.store
    scale = store.scale_of(kinds.DEPLOYMENTS, cluster.deployment("web", 2))
    assert scale["spec"] == {"replicas": 2}
    after = store.replace(kinds.DEPLOYMENTS, {**scale, "spec": {"replicas": 4}}, subresource="scale")
    assert after["spec"]["replicas"] == 4
    with raises_api_error(409, "Conflict"):
        store.replace(kinds.DEPLOYMENTS, {**scale, "spec": {"replicas": 6}}, subresource="scale")


def test_an_object_with_finalizers_lingers_until_the_last_is_removed(cluster: Cluster) -> None:
    store = cluster.store
    store.create(kinds.NODES, {"metadata": {"name": "n", "finalizers": ["a/b", "c/d"]}})
    lingering = store.delete(kinds.NODES, "n")
    assert lingering is not None
    assert lingering["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:00Z"
    cluster.time.pass_seconds(60)
    again = store.delete(kinds.NODES, "n")
    assert again == lingering
    store.patch(kinds.NODES, "n", {"metadata": {"finalizers": ["c/d"]}})
    assert store.find(kinds.NODES, "n") is not None
    store.patch(kinds.NODES, "n", {"metadata": {"finalizers": None}})
    assert store.find(kinds.NODES, "n") is None


def test_a_delete_checks_its_preconditions(cluster: Cluster) -> None:
    pod = cluster.pod("a")
    with raises_api_error(409, "Conflict"):
        cluster.store.delete(kinds.PODS, "a", namespace="default", preconditions={"uid": "other"})
    right = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    assert cluster.store.delete(kinds.PODS, "a", namespace="default", preconditions=right) is None


def test_a_pod_on_a_node_stays_terminating_until_its_kubelet_confirms(cluster: Cluster) -> None:
    cluster.pod("a", node="n")
    stopping = cluster.store.delete(kinds.PODS, "a", namespace="default")
    assert stopping is not None
    assert stopping["metadata"]["deletionGracePeriodSeconds"] == 30
    assert stopping["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:30Z"
    sooner = cluster.store.delete(kinds.PODS, "a", namespace="default", grace_period_seconds=5)
    assert sooner is not None
    assert sooner["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:05Z"
    assert cluster.store.delete(kinds.PODS, "a", namespace="default", grace_period_seconds=0) is None


def test_a_pod_without_a_node_is_removed_at_once(cluster: Cluster) -> None:
    cluster.pod("a")
    assert cluster.store.delete(kinds.PODS, "a", namespace="default") is None


def test_a_pod_gets_the_defaults_that_decisions_read(store: Store) -> None:
    store.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}}}
    spec = {"containers": [container], "priorityClassName": "high"}
    pod = store.create(kinds.PODS, {"metadata": {"name": "a"}, "spec": spec})
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert pod["spec"]["priority"] == 1000
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert [(t["key"], t["tolerationSeconds"]) for t in pod["spec"]["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}


def test_a_pod_of_a_priority_class_that_does_not_exist_is_forbidden(store: Store) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}], "priorityClassName": "none"}
    with raises_api_error(403, "Forbidden"):
        store.create(kinds.PODS, {"metadata": {"name": "a"}, "spec": spec})


def test_a_pods_spec_may_not_change_but_for_images_and_tolerations(cluster: Cluster) -> None:
    cluster.pod("a")
    with raises_api_error(422, "Invalid"):
        cluster.store.patch(kinds.PODS, "a", {"spec": {"nodeName": "n"}}, namespace="default")
    added = {"spec": {"tolerations": [{"key": "spot", "operator": "Exists"}]}}
    assert cluster.store.patch(kinds.PODS, "a", added, namespace="default")["spec"]["tolerations"]


def test_a_nomination_ends_with_the_binding_and_is_refused_after_it(cluster: Cluster) -> None:
    cluster.pod("a")
    nominated = {"status": {"nominatedNodeName": "n"}}
    cluster.store.patch(kinds.PODS, "a", nominated, namespace="default", subresource="status")
    assert "nominatedNodeName" not in cluster.store.bind("default", "a", "n")["status"]
    with pytest.raises(ApiError, match="may not be set on pods that are already bound to a node") as error:
        cluster.store.patch(kinds.PODS, "a", nominated, namespace="default", subresource="status")
    assert error.value.status == 422


def test_a_pod_is_bound_once(cluster: Cluster) -> None:
    bound = cluster.pod("a", node="n")
    assert bound["spec"]["nodeName"] == "n"
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    with raises_api_error(409, "Conflict"):
        cluster.store.bind("default", "a", "m")


def test_a_new_node_is_not_ready_and_keeps_the_status_it_registers_with(store: Store) -> None:
    node = store.create(kinds.NODES, {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2"}}})
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["node.kubernetes.io/not-ready"]
    assert node["status"]["allocatable"] == {"cpu": "2"}


def test_deleting_a_namespace_deletes_its_objects(cluster: Cluster) -> None:
    store = cluster.store
    store.create(kinds.NAMESPACES, {"metadata": {"name": "team"}})
    store.create(kinds.SECRETS, {"metadata": {"name": "s", "finalizers": ["a/b"]}}, namespace="team")
    store.create(kinds.CONFIG_MAPS, {"metadata": {"name": "c"}}, namespace="team")
    store.delete(kinds.NAMESPACES, "team")
    assert store.get(kinds.NAMESPACES, "team")["status"]["phase"] == "Terminating"
    assert store.find(kinds.CONFIG_MAPS, "c", namespace="team") is None
    with raises_api_error(403, "Forbidden"):
        store.create(kinds.CONFIG_MAPS, {"metadata": {"name": "c"}}, namespace="team")
    store.patch(kinds.SECRETS, "s", {"metadata": {"finalizers": None}}, namespace="team")
    assert store.find(kinds.NAMESPACES, "team") is None


def test_pods_are_found_by_their_node(cluster: Cluster) -> None:
    cluster.pod("a", node="n")
    cluster.pod("b")
    names = [pod["metadata"]["name"] for pod in cluster.store.list(kinds.PODS, fields="spec.nodeName=n")]
    pending = [pod["metadata"]["name"] for pod in cluster.store.list(kinds.PODS, fields="spec.nodeName=")]
    assert (names, pending) == (["a"], ["b"])


def test_changes_come_in_order_and_only_newer_ones(cluster: Cluster) -> None:
    store = cluster.store
    seen: list[Change] = []
    stop = store.subscribe(seen.append)
    begin = store.version
    cluster.pod("a", node="n")
    store.delete(kinds.PODS, "a", namespace="default", grace_period_seconds=0)
    stop()
    cluster.pod("b")
    # The last but one is how a real server begins to delete a pod, even one that it removes at once.
    assert [change.type for change in seen] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert store.changes_since(kinds.PODS, begin)[:4] == seen
    assert store.changes_since(kinds.PODS, seen[-1].version)[0].object["metadata"]["name"] == "b"
    assert [change.version for change in store.changes_since(None, begin)] == sorted(
        change.version for change in store.changes_since(None, begin)
    )


def test_versions_before_the_history_are_expired(cluster: Cluster) -> None:
    begin = cluster.store.version
    with raises_api_error(410, "Expired"):
        cluster.store.changes_since(kinds.PODS, 1)
    cluster.pod("a")
    cluster.store.compact()
    with raises_api_error(410, "Expired"):
        cluster.store.changes_since(kinds.PODS, begin)
    assert cluster.store.changes_since(kinds.PODS, cluster.store.version) == []


def test_a_list_of_an_older_version_has_the_state_of_that_version(cluster: Cluster) -> None:
    store = cluster.store
    for name in ("a", "b", "c"):
        cluster.pod(name)
    then, version = store.list(kinds.PODS), store.version
    cluster.pod("d")
    store.delete(kinds.PODS, "a", namespace="default")
    store.bind("default", "b", "n")
    assert store.list(kinds.PODS, version=version) == then


def test_a_kind_without_changes_can_be_watched_from_any_version(cluster: Cluster) -> None:
    begin = cluster.store.version
    cluster.pod("a")
    assert cluster.store.changes_since(kinds.LEASES, begin) == []


def test_a_subresource_can_only_be_what_the_kind_has(cluster: Cluster) -> None:
    cluster.pod("a")
    with raises_api_error(404, "NotFound"):
        cluster.store.patch(kinds.PODS, "a", {"spec": {"replicas": 1}}, namespace="default", subresource="scale")


def test_fields_that_are_null_count_as_absent(store: Store) -> None:
    container = {"name": "c", "image": "x", "resources": None, "env": [{"name": "A", "value": None}]}
    spec = {"containers": [container], "nodeSelector": None}
    pod = store.create(kinds.PODS, {"metadata": {"name": "a", "creationTimestamp": None, "labels": None}, "spec": spec})
    assert "nodeSelector" not in pod["spec"]
    assert pod["spec"]["containers"][0]["resources"] == {}
    assert pod["spec"]["containers"][0]["env"] == [{"name": "A"}]


def test_a_custom_object_with_negative_replicas_is_refused_as_by_its_scale() -> None:
    kind = kinds.Kind("example.com", "v1", "shops", "Shop", subresources=("scale",), custom=True)
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    definition = Definition(kind, Schema({}), scale=paths)
    (cause,) = scale.invalid_replicas({"spec": {"replicas": -1}, "status": {"replicas": 0}}, definition)
    assert (cause.field, cause.message) == (".spec.replicas", "Invalid value: -1: should be a non-negative integer")
    assert scale.invalid_replicas({"spec": {"replicas": 3}}, definition) == []
