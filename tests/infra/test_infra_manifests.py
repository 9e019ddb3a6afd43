"""What is applied to the cluster."""

from typing import Any

import pytest
import yaml

from infra import manifests, sizes

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
        for rule in rules(manifests.access(), f"tenon-{function}")
    )


def test_each_group_of_an_access_entry_is_bound_to_its_role() -> None:
    bound = {
        obj["roleRef"]["name"]: obj["subjects"][0]["name"]
        for obj in manifests.access()
        if obj["kind"] == "ClusterRoleBinding"
    }
    assert bound == {f"tenon-{name}": f"tenon:{name}" for name in sizes.FUNCTIONS if name != sizes.CATALOG}


def test_nothing_is_granted_by_wildcard_and_secrets_are_nobodys() -> None:
    objects = [*manifests.access(), *manifests.relay(cluster="demo", bus="b", region="eu-west-1", image="i")]
    for obj in objects:
        for rule in obj.get("rules", []):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"secrets", "configmaps"} & set(rule["resources"])


@pytest.mark.parametrize("function", list(manifests.RULES))
def test_pods_are_removed_by_termination_only(function: str) -> None:
    assert may(function, "create", "pods/eviction") == (function == sizes.TERMINATION)
    assert may(function, "delete", "pods") == (function == sizes.TERMINATION)
    assert may(function, "delete", "nodes") == (function == sizes.TERMINATION)


@pytest.mark.parametrize("function", list(manifests.RULES))
def test_claims_are_made_by_those_who_decide_under_the_lease(function: str) -> None:
    decides = function in {sizes.PROVISIONER, sizes.DISRUPTION}
    assert may(function, "create", "nodeclaims") == decides
    assert may(function, "create", "leases") == decides


@pytest.mark.parametrize("function", list(manifests.RULES))
def test_what_users_write_is_never_written_but_for_its_status(function: str) -> None:
    theirs = {"nodepools", "ec2nodeclasses", "provisioners", "awsnodetemplates", "poddisruptionbudgets", "daemonsets"}
    for rule in rules(manifests.access(), f"tenon-{function}"):
        if WRITES & set(rule["verbs"]):
            assert not theirs & set(rule["resources"])


def test_the_relay_only_watches() -> None:
    objects = manifests.relay(cluster="demo", bus="tenon-demo", region="eu-west-1", image="relay:1")
    assert {verb for rule in rules(objects, manifests.RELAY) for verb in rule["verbs"]} == {"list", "watch"}


def test_the_relay_runs_twice_unprivileged_and_survives_a_drain() -> None:
    objects = manifests.relay(cluster="demo", bus="tenon-demo", region="eu-west-1", image="relay:1")
    by_kind = {obj["kind"]: obj for obj in objects}
    deployment = by_kind["Deployment"]["spec"]
    assert deployment["replicas"] == 2
    pod = deployment["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["image"] == "relay:1"
    assert {e["name"]: e["value"] for e in container["env"]} == {
        "TENON_CLUSTER_NAME": "demo",
        "TENON_EVENT_BUS_NAME": "tenon-demo",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert by_kind["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_the_yaml_is_what_was_meant() -> None:
    objects = manifests.access()
    assert list(yaml.safe_load_all(manifests.to_yaml(objects))) == objects
