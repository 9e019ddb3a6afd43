"""Devices of a machine: reported by its kubelet for a device plugin, or published by a driver in a ResourceSlice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from shared.api.quantity import format_resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.kubelets.behavior import MachineBehavior
    from local.kubelets.machine import Machine
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store


def registered_devices(store: Store, node: Obj, machine: Machine, behavior: MachineBehavior) -> dict[str, str]:
    """The devices that the machine's kubelet reports. Those of a driver are published instead."""
    if not behavior.dynamic_devices:
        return format_resources(machine.devices)
    if store.find(kinds.RESOURCE_SLICES, node["metadata"]["name"]) is None:
        store.create(kinds.RESOURCE_SLICES, _resource_slice(node, machine.devices))
    return {}


def _resource_slice(node: Obj, devices: Mapping[str, int]) -> Obj:
    """The ResourceSlice by which a driver publishes all devices of a node; it goes with the node."""
    name, count = node["metadata"]["name"], sum(devices.values())
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    return {
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}"} for i in range(count)],
        },
    }
