"""Volumes that exist on one node: their pods run there or nowhere, and no node is bought for them.

kube-scheduler refuses every other node ("didn't match PersistentVolume's node affinity").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]

HOSTNAME = "kubernetes.io/hostname"


def volume(name: str, *hosts: str, source: str = "local", claim: str = "", operator: str = "In") -> Raw:
    terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": operator, "values": [host]}]} for host in hosts]
    spec = {
        source: {"path": "/mnt/disk"},
        "storageClassName": "disks",
        "capacity": {"storage": "40Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        **({"claimRef": {"namespace": "default", "name": claim, "uid": "u"}} if claim else {}),
    }
    phase = "Bound" if claim else "Available"
    head = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    return {**head, "spec": spec, "status": {"phase": phase}}


def claim(name: str, volume_name: str = "", **annotations: str) -> Raw:
    spec = {
        "storageClassName": "disks",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "volumeName": volume_name,
    }
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def storage_class(provisioner: str = "kubernetes.io/no-provisioner") -> Raw:
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"}}
    return {**head, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}


def database(clusters: ModuleType, cpu: str = "500m") -> list[Raw]:
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pods: list[Raw] = clusters.pods("db", 1, cpu, volumes=mounted)
    return pods


@pytest.mark.parametrize("source", ["local", "hostPath"])
def test_no_node_is_bought_for_a_pod_whose_volume_is_on_a_node_that_is_gone(
    decide: Decide, clusters: ModuleType, source: str
) -> None:
    objects = [storage_class(), volume("disk-3", "lost", source=source, claim="data"), claim("data", "disk-3")]
    decision = decide(clusters.document(clusters.pool(), clusters.node("here", 8), objects, database(clusters)))
    assert (decision["nodeClaims"], decision["existingNodes"]) == ([], {})
    assert decision["errors"]["default/db-0000"] == (
        "PersistentVolumeClaim default/data is bound to PersistentVolume disk-3, "
        "which exists only on node lost, and the cluster has no such node"
    )


def test_a_pod_goes_back_to_the_node_of_its_volume_and_to_no_cheaper_or_emptier_one(
    decide: Decide, clusters: ModuleType
) -> None:
    nodes = [clusters.node(name, 8) for name in ("a", "b", "c")]
    objects = [storage_class(), volume("disk", "b", claim="data"), claim("data", "disk")]
    decision = decide(clusters.document(clusters.pool(), nodes, objects, database(clusters)))
    assert decision["existingNodes"] == {"b": ["default/db-0000"]}
    assert decision["nodeClaims"] == []


def test_a_full_node_of_a_volume_gets_no_second_one_next_to_it(decide: Decide, clusters: ModuleType) -> None:
    objects = [storage_class(), volume("disk", "b", claim="data"), claim("data", "disk")]
    document = clusters.document(clusters.pool(), clusters.node("b", 4), objects, database(clusters, cpu="6"))
    decision = decide(document)
    assert decision["nodeClaims"] == []
    assert "its volumes exist on a node with kubernetes.io/hostname In b" in decision["errors"]["default/db-0000"]


def test_one_node_of_several_is_enough_and_a_volume_for_all_but_one_node_allows_new_ones(
    decide: Decide, clusters: ModuleType
) -> None:
    shared = [storage_class(), volume("disk", "lost", "here", claim="data"), claim("data", "disk")]
    decision = decide(clusters.document(clusters.pool(), clusters.node("here", 8), shared, database(clusters)))
    assert decision["existingNodes"] == {"here": ["default/db-0000"]}
    anywhere = [storage_class(), volume("disk", "lost", claim="data", operator="NotIn"), claim("data", "disk")]
    assert len(decide(clusters.document(clusters.pool(), anywhere, database(clusters)))["nodeClaims"]) == 1


def test_an_unbound_claim_takes_a_free_volume_of_a_node_that_exists(decide: Decide, clusters: ModuleType) -> None:
    objects = [storage_class(), volume("on-a", "a"), volume("on-lost", "lost"), claim("data")]
    nodes = [clusters.node(name, 8) for name in ("a", "b")]
    decision = decide(clusters.document(clusters.pool(), nodes, objects, database(clusters)))
    assert decision["existingNodes"] == {"a": ["default/db-0000"]}


@pytest.mark.parametrize(("selected", "placed"), [("b", {"b": ["default/db-0000"]}), ("lost", {})])
def test_a_claim_whose_volume_is_being_provisioned_keeps_its_pod_on_the_selected_node(
    decide: Decide, clusters: ModuleType, selected: str, placed: Raw
) -> None:
    objects = [
        storage_class("ebs.csi.aws.com"),
        claim("data", **{"volume.kubernetes.io/selected-node": selected}),
    ]
    nodes = [clusters.node(name, 8) for name in ("a", "b")]
    decision = decide(clusters.document(clusters.pool(), nodes, objects, database(clusters)))
    assert (decision["nodeClaims"], decision["existingNodes"]) == ([], placed)
