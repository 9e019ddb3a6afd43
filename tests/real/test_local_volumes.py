"""kube-scheduler runs the pods of a volume of one node there or nowhere, so no node is bought for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from shared.api.labels import HOSTNAME
from tests.real.scheduling import EmbeddedCluster, add_node, add_pod, placement

if TYPE_CHECKING:
    from tests.real.scheduling import Cluster, Json, RealCluster

SELECTED_NODE = "volume.kubernetes.io/selected-node"
SPEC = {"storageClassName": "disks", "accessModes": ["ReadWriteOnce"]}


def add_class(cluster: Cluster, name: str, provisioner: str) -> None:
    fields = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    cluster.store.create(kinds.STORAGE_CLASSES, {"metadata": {"name": name}, **fields})


def add_claim(cluster: Cluster, name: str, spec: Json, annotations: Json | None = None) -> None:
    full_spec = {**SPEC, "resources": {"requests": {"storage": "3Gi"}}, **spec}
    body = {"metadata": {"name": name, "annotations": annotations or {}}, "spec": full_spec}
    cluster.store.create(kinds.PERSISTENT_VOLUME_CLAIMS, body, namespace="default")


def add_local_volume(cluster: Cluster, name: str, node: str) -> None:
    """A volume on the node, and a claim that is bound to it."""
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
    spec = {
        **SPEC,
        "capacity": {"storage": "3Gi"},
        "local": {"path": "/mnt/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    add_bound_volume(cluster, name, spec)


def add_bound_volume(cluster: Cluster, name: str, spec: Json) -> None:
    """A volume, and a claim of the same name that is bound to it."""
    cluster.store.create(kinds.PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": spec})
    add_claim(cluster, name, {"volumeName": name, "storageClassName": spec["storageClassName"]})
    for _ in range(1000):
        claim = cluster.store.get(kinds.PERSISTENT_VOLUME_CLAIMS, name, namespace="default")
        if claim["status"].get("phase") == "Bound":
            return
        cluster.wait(0.02)
    raise TimeoutError(f"claim {name} isn't bound")


def mounting(claim: str) -> list[Json]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]


def pods_of_local_volumes(cluster: Cluster) -> dict[str, str]:
    add_class(cluster, "disks", "kubernetes.io/no-provisioner")
    for name, cpu in (("n1", "2"), ("n2", "16"), ("n3", "8")):
        add_node(cluster, name, cpu=cpu)
    for name, node in (("small", "n1"), ("full", "n3"), ("lost", "n4")):
        add_local_volume(cluster, f"on-{name}", node)
        add_pod(cluster, name, cpu="12" if name == "full" else "500m", volumes=mounting(f"on-{name}"))
    cluster.settle()
    return placement(cluster)


def test_a_pod_runs_on_the_node_of_its_local_volume_or_nowhere(real: RealCluster) -> None:
    expected = {"small": "n1", "full": "", "lost": ""}
    assert pods_of_local_volumes(EmbeddedCluster()) == expected
    assert pods_of_local_volumes(real) == expected
    lost = real.store.get(kinds.PODS, "lost", namespace="default")
    (scheduled,) = [c for c in lost["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert "3 node(s) didn't match PersistentVolume's node affinity" in scheduled["message"]
    real.clear()


def test_a_claim_of_a_selected_node_keeps_its_pod_from_all_others(real: RealCluster) -> None:
    real.clear()
    add_class(real, "provisioned", "storage.example.com")
    add_node(real, "n5")
    spec = {"storageClassName": "provisioned"}
    add_claim(real, "selected", spec, {SELECTED_NODE: "n6"})
    add_pod(real, "waiting", volumes=mounting("selected"))
    real.settle()
    assert placement(real) == {"waiting": ""}
    waiting = real.store.get(kinds.PODS, "waiting", namespace="default")
    (scheduled,) = [c for c in waiting["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert scheduled["reason"] == "Unschedulable"
    assert "didn't find available persistent volumes to bind" in scheduled["message"]
    real.clear()


def pods_by_drivers(cluster: Cluster) -> dict[str, str]:
    """A pod of a driver that must be there, first without and then with a node that has it, and a pod of another."""
    add_node(cluster, "n1")
    for name, fields in (("strict", {"preventPodSchedulingIfMissing": True}), ("lenient", {})):
        driver = f"{name}.example.com"
        cluster.store.create(kinds.CSI_DRIVERS, {"metadata": {"name": driver}, "spec": fields})
        add_class(cluster, name, driver)
        source = {"csi": {"driver": driver, "volumeHandle": name}, "capacity": {"storage": "3Gi"}}
        add_bound_volume(cluster, name, {**SPEC, **source, "storageClassName": name})
        add_pod(cluster, name, volumes=mounting(name))
    cluster.settle()
    before = placement(cluster)
    drivers = [{"name": "strict.example.com", "nodeID": "n1"}]
    cluster.store.create(kinds.CSI_NODES, {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    cluster.settle()
    return {f"{name} before": node for name, node in before.items()} | placement(cluster)


def test_from_1_37_a_pod_waits_for_a_node_with_the_driver_that_must_be_there(real: RealCluster) -> None:
    real.clear()
    outcome = pods_by_drivers(real)
    for name in ("strict", "lenient"):
        real.store.delete(kinds.STORAGE_CLASSES, name)
        real.store.delete(kinds.CSI_DRIVERS, f"{name}.example.com")
    real.store.delete(kinds.CSI_NODES, "n1")
    real.clear()
    assert outcome == pods_by_drivers(EmbeddedCluster(version=real.version))
    first = "" if real.version == "1.37" else "n1"
    assert outcome == {"strict before": first, "lenient before": "n1", "strict": "n1", "lenient": "n1"}
