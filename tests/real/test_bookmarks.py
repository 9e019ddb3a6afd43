"""A real API server sends a bookmark before the time-out of a short watch, which proves what a function has cached."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from local.real.control_plane import ControlPlane
from shared.base import runtime
from shared.cluster.watched_objects import MAX_UNPROVEN, PodCache

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """The time, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def test_pods_are_listed_once_although_none_changes(kubeconfig: Path | None, kubernetes: str) -> None:
    if kubeconfig is not None:
        pytest.skip("needs an API server of its own, in which nothing changes")
    clock = Clock()
    with ControlPlane(kubernetes=kubernetes, components=()) as control_plane:
        client = control_plane.client()
        namespace = "/api/v1/namespaces/default"
        client.create(f"{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
        spec = {"nodeName": "n1", "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "x"}]}
        for name in ("a", "b"):
            client.create(f"{namespace}/pods", {"metadata": {"name": name}, "spec": spec})
        with runtime.using(runtime.Runtime(environ={}, now=clock.now)):
            pods = PodCache(client, min_pods_to_watch=1, min_pods_for_bookmark=1, now=clock.now)
            pods.read()
            for name in ("x", "y"):
                clock.ahead += MAX_UNPROVEN
                client.create("/api/v1/namespaces", {"metadata": {"name": name}})  # newer than any pod
                assert {pod.metadata.name for pod in pods.read().objects} == {"a", "b"}
            assert pods.lists == 1
        client.close()
