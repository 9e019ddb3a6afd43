"""The Node, CSINode and Lease that a kubelet writes for its machine, as objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.controllers.node_lifecycle import RENEWED_CONTINUOUSLY
from local.kubernetes.objects import timestamp
from shared.api import labels
from shared.api.quantity import format_resources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from local.kubelets.kubelet_configuration import KubeletConfiguration
    from local.kubelets.machine import Machine
    from local.kubernetes.objects import Obj
    from shared.api.quantity import Resources

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
CONTINUOUSLY = "continuously"
"""Value of the lease's annotation; stands for a renewal every 10 s, which a simulation need not write."""

EBS_DRIVER = "ebs.csi.aws.com"


def labels_of(machine: Machine, configuration: KubeletConfiguration) -> dict[str, str]:
    """The labels of the user data, the kubelet and the cloud provider."""
    kubelet_labels = {
        labels.ARCH: machine.architecture,
        labels.OS: "linux",
        labels.HOSTNAME: machine.private_dns_name,
        labels.INSTANCE_TYPE: machine.instance_type,
        labels.REGION: machine.region,
        labels.ZONE: machine.zone,
        "beta.kubernetes.io/arch": machine.architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/instance-type": machine.instance_type,
        "failure-domain.beta.kubernetes.io/region": machine.region,
        "failure-domain.beta.kubernetes.io/zone": machine.zone,
    }
    if machine.zone_id:
        kubelet_labels[labels.ZONE_ID] = machine.zone_id
    return {**configuration.labels, **kubelet_labels}


def registration(
    machine: Machine,
    configuration: KubeletConfiguration,
    *,
    capacity: Resources,
    allocatable: Resources,
    version: str,
    now: datetime,
) -> Obj:
    """The node as it registers: not ready and without its devices. The API adds the not-ready taint."""
    taints: list[Obj] = [dict(taint) for taint in configuration.taints]
    taints.append({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"})
    return {
        "metadata": {
            "name": machine.private_dns_name,
            "labels": labels_of(machine, configuration),
            "annotations": {"alpha.kubernetes.io/provided-node-ip": machine.private_ip},
        },
        "spec": {"providerID": machine.provider_id, "taints": taints},
        "status": {
            "capacity": format_resources(capacity),
            "allocatable": format_resources(allocatable),
            "conditions": conditions(now),
            "addresses": [
                {"type": "InternalIP", "address": machine.private_ip},
                {"type": "InternalDNS", "address": machine.private_dns_name},
                {"type": "Hostname", "address": machine.private_dns_name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": _node_info(machine, version),
        },
    }


def _node_info(machine: Machine, version: str) -> Obj:
    return {
        "architecture": machine.architecture,
        "operatingSystem": "linux",
        "kubeletVersion": f"v{version}.0-eks-local",
        "kubeProxyVersion": f"v{version}.0-eks-local",
        "containerRuntimeVersion": "containerd://2.1.0",
        "osImage": machine.image_id,
        "kernelVersion": "6.12.0",
        **dict.fromkeys(("machineID", "systemUUID", "bootID"), machine.instance_id),
    }


def conditions(now: datetime) -> list[Obj]:
    """A node's conditions before its network is ready."""
    pressures = (
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    )
    time = timestamp(now)
    times = {"lastHeartbeatTime": time, "lastTransitionTime": time}
    false: list[Obj] = [{"type": t, "status": "False", "reason": r, "message": m, **times} for t, r, m in pressures]
    return [*false, ready_condition(now, ready=False)]


def ready_condition(now: datetime, *, ready: bool) -> Obj:
    """The Ready condition with the kubelet's reasons and messages."""
    time = timestamp(now)
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "kubelet is posting ready status"
        if ready
        else "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady",
        "lastHeartbeatTime": time,
        "lastTransitionTime": time,
    }


def booted(node: Obj, *, boot: int) -> Obj:
    """The node with another boot ID, that of a machine's second boot or a later one."""
    info = node["status"]["nodeInfo"]
    boot_id = f"{info['machineID']}-{boot}"
    return {**node, "status": {**node["status"], "nodeInfo": {**info, "bootID": boot_id}}}


def initialized(node: Obj) -> Obj:
    """The node without the taint of nodes that the cloud provider has not initialized."""
    return _without_taint(node, UNINITIALIZED)


def with_ready(node: Obj, now: datetime, *, ready: bool, devices: Mapping[str, str]) -> Obj:
    """The node with its kubelet's Ready condition and these devices; Ready, it loses the shutdown taint."""
    status = node["status"]
    condition = ready_condition(now, ready=ready)
    changed = [
        condition if c["type"] == "Ready" and c["status"] != condition["status"] else c for c in status["conditions"]
    ]
    after = {
        **node,
        "status": {
            **status,
            "conditions": changed,
            "capacity": {**status["capacity"], **devices},
            "allocatable": {**status["allocatable"], **devices},
        },
    }
    return _without_taint(after, SHUTDOWN) if ready else after


def shut_down(node: Obj) -> Obj:
    """The node with the taint by which the cloud provider says that its instance is stopped."""
    taints = node["spec"].get("taints") or []
    if any(t["key"] == SHUTDOWN for t in taints):
        return node
    return {**node, "spec": {**node["spec"], "taints": [*taints, {"key": SHUTDOWN, "effect": "NoSchedule"}]}}


def _without_taint(node: Obj, key: str) -> Obj:
    taints = node["spec"].get("taints") or []
    if all(t["key"] != key for t in taints):
        return node
    return {**node, "spec": {**node["spec"], "taints": [t for t in taints if t["key"] != key]}}


def owned_by(node: Obj) -> list[Obj]:
    """The owner reference by which an object is deleted with its node."""
    meta = node["metadata"]
    return [{"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}]


def csi_node(machine: Machine, node: Obj) -> Obj:
    """The CSINode with the EBS driver's volume limit."""
    driver = {
        "name": EBS_DRIVER,
        "nodeID": machine.instance_id,
        "topologyKeys": [labels.ZONE],
        "allocatable": {"count": machine.max_volumes},
    }
    meta = {"name": machine.private_dns_name, "ownerReferences": owned_by(node)}
    return {"metadata": meta, "spec": {"drivers": [driver]}}


def lease(node: Obj, now: datetime, *, continuously: bool) -> Obj:
    """The node's lease; with ``continuously`` it counts as renewed until its annotation is removed."""
    name = node["metadata"]["name"]
    annotations = {"annotations": {RENEWED_CONTINUOUSLY: CONTINUOUSLY}} if continuously else {}
    return {
        "metadata": {"name": name, "ownerReferences": owned_by(node), **annotations},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time(now)},
    }


def renewed(lease: Obj, now: datetime, *, continuously: bool) -> Obj:
    """The lease renewed now; ``continuously``: as in :func:`lease`."""
    annotations = dict(lease["metadata"].get("annotations") or {})
    annotations.pop(RENEWED_CONTINUOUSLY, None)
    if continuously:
        annotations[RENEWED_CONTINUOUSLY] = CONTINUOUSLY
    metadata = {**lease["metadata"], "annotations": annotations}
    return {**lease, "metadata": metadata, "spec": {**lease["spec"], "renewTime": micro_time(now)}}


def micro_time(time: datetime) -> str:
    """The time as ``metav1.MicroTime`` writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
