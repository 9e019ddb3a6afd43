"""The objects for the cluster."""

from typing import Any

import msgspec
import pytest
import yaml

from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests, flow_schemas
from relay.main import RelaySettings
from shared.base import settings
from shared.cluster import lease

WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def rules(objects: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [
        rule
        for obj in objects
        if obj["kind"] in {"ClusterRole", "Role"} and obj["metadata"]["name"] == name
        for rule in obj["rules"]
    ]


def may(function: str, verb: str, resource: str) -> bool:
    return any(
        verb in rule["verbs"] and resource in rule["resources"]
        for rule in rules(cluster_manifests.access(), cluster_manifests.role_name(function))
    )


def test_each_group_of_an_access_entry_is_bound_to_its_role() -> None:
    bound = {
        obj["roleRef"]["name"]: obj["subjects"][0]["name"]
        for obj in cluster_manifests.access()
        if obj["kind"] == "ClusterRoleBinding"
    }
    assert bound.pop("tenon-lifecycle-karpenter-lease") == "tenon:lifecycle"
    assert bound == {
        cluster_manifests.role_name(name): f"tenon:{name}"
        for name in function_sizes.FUNCTIONS
        if name != function_sizes.CATALOG
    }


def test_rbac_has_no_wildcards_and_no_secrets() -> None:
    objects = [
        *cluster_manifests.access(),
        *cluster_manifests.relay(cluster="demo", region="eu-west-1", image="i"),
    ]
    for obj in objects:
        for rule in obj.get("rules", []):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"secrets", "configmaps"} & set(rule["resources"])


@pytest.mark.parametrize("function", list(cluster_manifests.RULES))
def test_only_termination_deletes_pods(function: str) -> None:
    assert may(function, "create", "pods/eviction") == (function == function_sizes.TERMINATION)
    assert may(function, "delete", "pods") == (function == function_sizes.TERMINATION)
    assert may(function, "delete", "nodes") == (function == function_sizes.TERMINATION)


@pytest.mark.parametrize("function", list(cluster_manifests.RULES))
def test_only_functions_with_the_lease_create_nodeclaims(function: str) -> None:
    decides = function in {function_sizes.PROVISIONER, function_sizes.DISRUPTION, function_sizes.INTERRUPTION}
    # The lifecycle function writes lost NodeClaims again, under the same lease.
    assert may(function, "create", "nodeclaims") == (decides or function == function_sizes.LIFECYCLE)
    assert may(function, "create", "leases") == (
        decides or function in {function_sizes.LIFECYCLE, function_sizes.RELAY}
    )


def test_leases_are_granted_in_their_namespace() -> None:
    granted = [
        obj for obj in cluster_manifests.access() if obj["kind"] == "Role" and "create" in obj["rules"][0]["verbs"]
    ]
    assert {obj["metadata"]["namespace"] for obj in granted} == {lease.NAMESPACE}


@pytest.mark.parametrize("function", list(cluster_manifests.RULES))
def test_only_the_status_of_users_objects_is_written(function: str) -> None:
    """And, by the lifecycle function, the annotations with the hashes that Karpenter writes."""
    theirs = {"nodepools", "ec2nodeclasses", "provisioners", "awsnodetemplates", "poddisruptionbudgets", "daemonsets"}
    if function == function_sizes.LIFECYCLE:
        assert not any(may(function, verb, kind) for verb in WRITES - {"patch"} for kind in theirs)
        theirs -= {"nodepools", "ec2nodeclasses"}
    for rule in rules(cluster_manifests.access(), cluster_manifests.role_name(function)):
        if WRITES & set(rule["verbs"]):
            assert not theirs & set(rule["resources"])


def test_the_relay_only_watches() -> None:
    objects = cluster_manifests.relay(cluster="demo", region="eu-west-1", image="relay:1")
    assert {verb for rule in rules(objects, cluster_manifests.RELAY) for verb in rule["verbs"]} == {"list", "watch"}


def test_the_relay_has_two_unprivileged_replicas_and_a_disruption_budget() -> None:
    objects = cluster_manifests.relay(cluster="demo", region="eu-west-1", image="relay:1")
    by_kind = {obj["kind"]: obj for obj in objects}
    deployment = by_kind["Deployment"]["spec"]
    assert deployment["replicas"] == 2
    pod = deployment["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["image"] == "relay:1"
    environ = {e["name"]: e["value"] for e in container["env"]}
    assert environ.pop("AWS_DEFAULT_REGION") == "eu-west-1"
    assert settings.read(RelaySettings, environ) == RelaySettings(
        cluster_name="demo", event_bus_name="tenon-demo", health_port=container["ports"][0]["containerPort"]
    )
    assert set(environ) <= {settings.variable(field.name) for field in msgspec.structs.fields(RelaySettings)}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert by_kind["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_the_yaml_has_all_objects() -> None:
    objects = cluster_manifests.access()
    assert list(yaml.safe_load_all(cluster_manifests.to_yaml(objects))) == objects


def test_the_definitions_come_first_and_are_upstreams() -> None:
    objects = cluster_manifests.everything(cluster="demo", region="eu-west-1", image="relay:1")
    names = [obj["metadata"]["name"] for obj in objects if obj["kind"] == "CustomResourceDefinition"]
    assert names == [
        "capacitybuffers.autoscaling.x-k8s.io",
        "awsnodetemplates.karpenter.k8s.aws",
        "ec2nodeclasses.karpenter.k8s.aws",
        "nodeclaims.karpenter.sh",
        "nodeoverlays.karpenter.sh",
        "nodepools.karpenter.sh",
        "provisioners.karpenter.sh",
    ]
    assert [obj["kind"] for obj in objects[: len(names)]] == ["CustomResourceDefinition"] * len(names)
    namespace = next(i for i, obj in enumerate(objects) if obj["kind"] == "Namespace")
    assert all(
        i > namespace
        for i, obj in enumerate(objects)
        if obj["metadata"].get("namespace") == cluster_manifests.NAMESPACE
    )


def test_rbac_only_names_existing_kinds() -> None:
    crds = [obj for obj in cluster_manifests.kinds() if obj["kind"] == "CustomResourceDefinition"]
    known = {(crd["spec"]["group"], crd["spec"]["names"]["plural"]) for crd in crds}
    objects = cluster_manifests.everything(cluster="demo", region="eu-west-1", image="relay:1")
    for obj in objects:
        for rule in obj.get("rules", []):
            if rule["apiGroups"][0].startswith("karpenter."):
                assert {(rule["apiGroups"][0], r.partition("/")[0]) for r in rule["resources"]} <= known


def test_requests_of_functions_have_a_priority_level_of_their_own() -> None:
    leases, requests = flow_schemas.flow_schemas(function_sizes.FUNCTIONS, relay_pod=True)
    assert leases["spec"]["matchingPrecedence"] < requests["spec"]["matchingPrecedence"] < 9000
    assert leases["spec"]["priorityLevelConfiguration"]["name"] == "leader-election"
    assert requests["spec"]["priorityLevelConfiguration"]["name"] == "workload-high"
    (rule,) = leases["spec"]["rules"]
    assert rule["subjects"] == requests["spec"]["rules"][0]["subjects"]
    assert rule["resourceRules"][0]["resources"] == ["leases"]
    groups = {subject["group"]["name"] for subject in rule["subjects"] if subject["kind"] == "Group"}
    assert groups == {
        obj["subjects"][0]["name"] for obj in cluster_manifests.access() if obj["kind"] == "ClusterRoleBinding"
    }
    assert rule["subjects"][-1] == {
        "kind": "ServiceAccount",
        "serviceAccount": {"namespace": "tenon", "name": "tenon-relay"},
    }


def test_shadow_mode_has_no_priority() -> None:
    assert flow_schemas.flow_schemas(function_sizes.SHADOW_MODE) == []
