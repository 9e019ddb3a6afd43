"""Upgrades of a world's control plane, and rollbacks, as EKS carries them out for ``aws eks update-cluster-version``.

EKS checks a rollback's readiness first. It refuses one of more than a minor version, one without an upgrade in the
seven days before, and one with nodes that would be newer than the API server.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.world.control_plane import EmbeddedControlPlane

if TYPE_CHECKING:
    from datetime import datetime

    from local.world.world import World

ROLLBACK_WINDOW = timedelta(days=7)


class RollbackRefusedError(RuntimeError):
    """EKS refuses the rollback; the message says why."""


def upgrade(world: World, version: str) -> datetime:
    """Let the control plane have the version ("1.37"); returns when it was upgraded."""
    world.aws.upgrade(world.cluster, version)
    _state(world, version)
    return world.clock.now()


def roll_back(world: World, version: str, *, upgraded: datetime) -> None:
    """Let the control plane go back to the version before its upgrade at that time.

    Raises:
        RollbackRefusedError: EKS refuses it.
    """
    before = world.aws.version(world.cluster)
    if _minor(version) != _minor(before) - 1:
        raise RollbackRefusedError(f"from {before} the control plane goes back to the minor version before it only")
    if world.clock.now() - upgraded > ROLLBACK_WINDOW:
        raise RollbackRefusedError("the upgrade is more than seven days ago")
    newer = sorted(
        node["metadata"]["name"]
        for node in world.nodes()
        if _minor(node["status"]["nodeInfo"]["kubeletVersion"]) > _minor(version)
    )
    if newer:
        raise RollbackRefusedError(f"nodes are newer than {version}: {', '.join(newer)}")
    world.aws.roll_back(world.cluster, version)
    _state(world, version)


def _state(world: World, version: str) -> None:
    assert isinstance(world.control_plane, EmbeddedControlPlane)  # a real one isn't replaced while it runs
    world.control_plane.state_version(version)


def _minor(version: str) -> int:
    return int(version.split(".")[1])
