"""Attached volumes: how many an existing node takes of each driver, and EBS volumes as a resource of new nodes.

A node that exists has a CSINode with the limits of each driver, and existing capacity counts volumes by name. For nodes
that don't exist yet, packing counts amounts: the volumes that no other pending pod mounts.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.snapshot import Snapshot

ATTACHED_VOLUMES = "attachable-volumes-aws-ebs"
"""The resource; the name is that of Kubernetes' in-tree driver. It is in no object."""
NO_LIMIT = 1 << 30
"""More volumes than any node has."""
_REGISTERING = timedelta(minutes=5)
"""The age of a node up to which its drivers may still register."""


def limits_by_node(snapshot: Snapshot) -> Mapping[str, Mapping[str, int]]:
    """By node: how many volumes of each driver it takes; drivers without a limit are left out.

    It takes none of a driver that it lacks and whose CSIDriver has ``preventPodSchedulingIfMissing``, as in
    kube-scheduler from 1.37 on. New nodes count as having all drivers.
    """
    limits = {
        csi_node.metadata.name: {
            driver.name: driver.allocatable.count
            for driver in csi_node.spec.drivers
            if driver.allocatable and driver.allocatable.count is not None
        }
        for csi_node in snapshot.csi_nodes
    }
    required = {
        driver.metadata.name for driver in snapshot.csi_drivers if driver.spec.prevent_pod_scheduling_if_missing
    }
    if not required:
        return limits
    drivers = {csi_node.metadata.name: {d.name for d in csi_node.spec.drivers} for csi_node in snapshot.csi_nodes}
    for node in snapshot.nodes:
        name, created = node.metadata.name, node.metadata.creation_timestamp
        if created is None or snapshot.taken_at - created > _REGISTERING:
            missing = required - drivers.get(name, set())
            limits[name] = {**limits.get(name, {}), **dict.fromkeys(missing, 0)}
    return limits
