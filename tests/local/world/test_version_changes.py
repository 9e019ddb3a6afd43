"""Rollbacks of a world's control plane are refused where EKS refuses them."""

from __future__ import annotations

import json
from datetime import timedelta

import boto3
import pytest

from local.kubernetes import kinds
from local.world import Options, World, version_changes
from local.world.version_changes import RollbackRefusedError


def stated_version(world: World) -> tuple[str, str]:
    """The version by EKS, and by the API server."""
    version = json.loads(world.control_plane.relay_client().get("/version"))
    described = boto3.client("eks").describe_cluster(name=world.cluster)["cluster"]["version"]
    return described, f"{version['major']}.{version['minor']}"


def test_a_control_plane_goes_back_one_minor_version_within_seven_days_if_no_node_is_newer() -> None:
    with World(cluster="demo", options=Options(version="1.36", catalog=False)) as world:
        assert stated_version(world) == ("1.36", "1.36")
        upgraded = version_changes.upgrade(world, "1.37")
        assert stated_version(world) == ("1.37", "1.37")
        with pytest.raises(RollbackRefusedError, match="the minor version before it only"):
            version_changes.roll_back(world, "1.35", upgraded=upgraded)
        with pytest.raises(RollbackRefusedError, match="seven days"):
            version_changes.roll_back(world, "1.36", upgraded=upgraded - timedelta(days=8))
        node = {"metadata": {"name": "a"}, "status": {"nodeInfo": {"kubeletVersion": "v1.37.0"}}}
        world.store.create(kinds.NODES, node)
        with pytest.raises(RollbackRefusedError, match=r"newer than 1\.36: a"):
            version_changes.roll_back(world, "1.36", upgraded=upgraded)
        assert stated_version(world) == ("1.37", "1.37")
        world.store.delete(kinds.NODES, "a")
        version_changes.roll_back(world, "1.36", upgraded=upgraded)
        assert stated_version(world) == ("1.36", "1.36")
