"""The control plane that Go builds: it serves the pinned version, and its scheduler and controllers work."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from local.real import binary
from local.real.control_plane import ControlPlane
from local.world import sample_objects

if TYPE_CHECKING:
    from pathlib import Path


def test_a_deployments_pods_are_made_and_found_unschedulable_where_there_is_no_node(
    kubeconfig: Path | None, kubernetes: str
) -> None:
    if kubeconfig is not None:
        pytest.skip("this is about the control plane that Go builds")
    with ControlPlane(kubernetes=kubernetes) as control_plane:
        client = control_plane.client()
        try:
            version = json.loads(client.get("/version"))["gitVersion"]
            assert version == f"v{binary.kubernetes_version(kubernetes)}"

            client.create("/apis/apps/v1/namespaces/default/deployments", sample_objects.deployment("web", 2, {}))

            end = time.monotonic() + 30
            pods: list[dict[str, Any]] = []
            while time.monotonic() < end and not (len(pods) == 2 and all(map(_unschedulable, pods))):
                time.sleep(0.2)
                pods = json.loads(client.get("/api/v1/namespaces/default/pods"))["items"]
            assert [_unschedulable(pod) for pod in pods] == [True, True]
        finally:
            client.close()


def _unschedulable(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "PodScheduled" and c["reason"] == "Unschedulable" for c in conditions)
