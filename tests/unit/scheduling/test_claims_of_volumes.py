"""Claims and volumes as kube-scheduler reads them: zones in labels, classes in annotations, claims for one pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]

ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def storage(kind: str, name: str, spec: Raw, **metadata: Raw) -> Raw:
    namespace = {"namespace": "default"} if kind == "PersistentVolumeClaim" else {}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **namespace, **metadata}, "spec": spec}


def storage_class(name: str, mode: str = "WaitForFirstConsumer", provisioner: str = "ebs.csi.aws.com") -> Raw:
    metadata = {"name": name}
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata}
    return {**head, "provisioner": provisioner, "volumeBindingMode": mode}


def mounting(*claims: str) -> Raw:
    return {"volumes": [{"name": f"v-{c}", "persistentVolumeClaim": {"claimName": c}} for c in claims]}


def exclusive_claim(name: str) -> Raw:
    return storage("PersistentVolumeClaim", name, {"storageClassName": "fast", "accessModes": ["ReadWriteOncePod"]})


@pytest.mark.parametrize(
    ("labels", "zones"), [({ZONE: "z-c"}, {"z-c"}), ({BETA_ZONE: "z-b"}, {"z-b"}), ({ZONE: "z-b__z-c"}, {"z-b", "z-c"})]
)
def test_a_volume_without_node_affinity_is_reached_in_the_zones_of_its_label(
    decide: Decide, clusters: ModuleType, labels: dict[str, str], zones: set[str]
) -> None:
    volume = storage("PersistentVolume", "old", {"awsElasticBlockStore": {"volumeID": "vol-7"}}, labels=labels)
    claim = storage("PersistentVolumeClaim", "ledger", {"volumeName": "old", "storageClassName": ""})
    pods = clusters.pods("db", 1, "600m", **mounting("ledger"))
    decision = decide(clusters.document(clusters.pool(), volume, claim, pods))
    (node_claim,) = decision["nodeClaims"]
    assert node_claim["cheapest"]["zone"] in zones
    values = [r["values"] for r in node_claim["requirements"] if r["key"] == ZONE]
    assert set(values[0]) <= zones


def test_the_class_in_the_old_annotation_takes_precedence(decide: Decide, clusters: ModuleType) -> None:
    claim = storage(
        "PersistentVolumeClaim", "ledger", {"storageClassName": "early"}, annotations={CLASS_ANNOTATION: "late"}
    )
    classes = [storage_class("early", "Immediate"), storage_class("late")]
    pods = clusters.pods("db", 1, **mounting("ledger"))
    assert decide(clusters.document(clusters.pool(), classes, claim, pods))["errors"] == {}


@pytest.mark.parametrize(("of_volume", "fits"), [("bronze", True), ("gold", False), (None, False)])
def test_a_volume_is_matched_by_its_attributes_class(
    decide: Decide, clusters: ModuleType, of_volume: str | None, *, fits: bool
) -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z-c"]}]}
    spec = {
        "storageClassName": "local",
        "capacity": {"storage": "30Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "volumeAttributesClassName": of_volume,
    }
    wanted = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "20Gi"}},
        "volumeAttributesClassName": "bronze",
    }
    objects = [
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        {**storage("PersistentVolume", "disk", spec), "status": {"phase": "Available"}},
        storage("PersistentVolumeClaim", "ledger", wanted),
    ]
    decision = decide(clusters.document(clusters.pool(), objects, clusters.pods("db", 1, **mounting("ledger"))))
    assert [c["cheapest"]["zone"] for c in decision["nodeClaims"]] == (["z-c"] if fits else [])


def test_a_claim_for_one_pod_is_not_planned_for_a_second(decide: Decide, clusters: ModuleType) -> None:
    objects = [storage_class("fast"), exclusive_claim("ledger"), exclusive_claim("other")]
    (running,) = clusters.pods("old", 1, "200m", nodeName="here", **mounting("ledger"))
    running["status"] = {"phase": "Running"}
    pods = [
        running,
        *clusters.pods("new", 2, "200m", **mounting("ledger")),
        *clusters.pods("free", 1, "200m", **mounting("other")),
    ]
    decision = decide(clusters.document(clusters.pool(), clusters.node("here", 1), objects, pods))
    assert set(decision["errors"]) == {"default/new-0000", "default/new-0001"}
    assert "pod default/old-0000 uses it" in decision["errors"]["default/new-0000"]


def test_of_pending_pods_with_one_claim_the_first_gets_a_node(decide: Decide, clusters: ModuleType) -> None:
    objects = [storage_class("fast"), exclusive_claim("ledger")]
    pods = clusters.pods("twin", 3, "15", "2Gi", **mounting("ledger"))
    decision = decide(clusters.document(clusters.pool(), objects, pods))
    assert [c["pods"] for c in decision["nodeClaims"]] == [["default/twin-0000"]]
    assert set(decision["errors"]) == {"default/twin-0001", "default/twin-0002"}


def test_a_pod_that_has_ended_has_given_its_claim_back(decide: Decide, clusters: ModuleType) -> None:
    (ended,) = clusters.pods("old", 1, nodeName="gone", **mounting("ledger"))
    ended["status"] = {"phase": "Succeeded"}
    objects = [storage_class("fast"), exclusive_claim("ledger"), ended]
    decision = decide(clusters.document(clusters.pool(), objects, clusters.pods("new", 1, **mounting("ledger"))))
    assert decision["errors"] == {}
