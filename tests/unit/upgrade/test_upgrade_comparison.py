"""What an upgrade of Tenon changes: versions and objects, compared without a cluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cli.upgrade import comparison
from infra.cluster.kubernetes import cluster_manifests

KINDS = cluster_manifests.kinds()
ROLE = next(obj for obj in cluster_manifests.access() if obj["kind"] == "ClusterRole")


def stored(obj: dict[str, Any]) -> dict[str, Any]:
    """The object as an API server has it: with a uid, a status and defaults."""
    result = copy.deepcopy(obj)
    result["metadata"]["uid"] = "1"
    if result["kind"] == "CustomResourceDefinition":
        result["spec"]["conversion"] = {"strategy": "None"}
        result["status"] = {"acceptedNames": {}}
    return result


@pytest.mark.parametrize("definition", KINDS, ids=lambda definition: definition["metadata"]["name"])
def test_a_definition_with_the_servers_defaults_is_unchanged(definition: dict[str, Any]) -> None:
    assert comparison.change(definition, stored(definition)).state == "unchanged"


def test_a_field_that_is_new_and_one_that_is_gone_are_named() -> None:
    definition = next(d for d in KINDS if d["metadata"]["name"] == "nodepools.karpenter.sh")
    older = stored(definition)
    properties = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del properties["spec"]["properties"]["weight"]
    properties["spec"]["properties"]["formerly"] = {"type": "string"}
    change = comparison.change(definition, older)
    assert change.state == "changed"
    assert "weight set" in change.detail
    assert "spec.formerly removed" in change.detail


def test_a_missing_object_is_created_and_another_rule_is_set() -> None:
    assert comparison.change(ROLE, None).state == "missing"
    older = stored(ROLE)
    older["rules"][0]["verbs"] = ["get"]
    assert comparison.change(ROLE, older).detail == "rules[0].verbs set"


def outcome(deployed: list[str], *objects: comparison.ObjectChange, pools: int = 0) -> comparison.UpgradeCheck:
    return comparison.check(cluster="prod", installed="0.2.0", deployed=deployed, objects=objects, rehashed_pools=pools)


def test_the_same_version_needs_nothing() -> None:
    same = comparison.change(ROLE, stored(ROLE))
    assert outcome(["0.2.0"], same).next.startswith("nothing")
    assert outcome(["0.2.0"], same).objects == []


def test_an_older_or_unknown_version_is_deployed_again() -> None:
    assert outcome(["0.1.10"]).next.startswith("deploy again as before")
    changed = comparison.change(ROLE, None)
    assert "tenon manifests prod" in outcome([comparison.UNKNOWN], changed).next
    assert outcome(["0.1.10"], changed).obstacles == []


def test_a_newer_version_is_an_obstacle() -> None:
    assert outcome(["0.2.0", "0.10.0"]).obstacles == [
        "version 0.10.0 is deployed, and this is the older 0.2.0: install 0.10.0"
    ]


def test_a_definition_of_another_owner_is_an_obstacle() -> None:
    definition = next(d for d in KINDS if "capacitybuffers" in d["metadata"]["name"])
    foreign = stored(definition)
    foreign["metadata"]["annotations"] = {"meta.helm.sh/release-name": "cluster-autoscaler"}
    change = comparison.change(definition, foreign)
    assert (change.state, change.detail) == ("foreign", "it belongs to cluster-autoscaler")
    assert outcome(["0.2.0"], change).obstacles
