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


def with_missing_drivers(
    limits: Mapping[str, Mapping[str, int]], snapshot: Snapshot
) -> Mapping[str, Mapping[str, int]]:
    """The volumes that each node takes of each driver: none of one that it lacks and that must be there.

    That is a driver whose CSIDriver has ``preventPodSchedulingIfMissing``, which kube-scheduler follows from 1.37 on.
    New nodes count as having all drivers.
    """
    required = {
        driver.metadata.name for driver in snapshot.csi_drivers if driver.spec.prevent_pod_scheduling_if_missing
    }
    drivers = {csi_node.metadata.name: {d.name for d in csi_node.spec.drivers} for csi_node in snapshot.csi_nodes}
    missing = {
        node.metadata.name: dict.fromkeys(required - drivers.get(node.metadata.name, set()), 0)
        for node in snapshot.nodes
        if node.metadata.creation_timestamp is None
        or snapshot.taken_at - node.metadata.creation_timestamp > _REGISTERING
    }
    return {name: {**limits.get(name, {}), **missing.get(name, {})} for name in {**limits, **missing}}
