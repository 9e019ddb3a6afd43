from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.registry.store import Store


class Time:
    """A clock that a test turns by hand."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def pass_seconds(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class Cluster:
    """A store, and the few objects that tests make over and over."""

    def __init__(self) -> None:
        self.time = Time()
        self.store = Store(now=self.time.now, rng=random.Random(7))  # noqa: S311 (names and uids of a test)

    def pod(self, name: str, *, node: str = "", ready: bool = False, **metadata: object) -> dict[str, Any]:
        spec = {"containers": [{"name": "main", "image": "web:1"}]}
        pod = self.store.create(kinds.PODS, {"metadata": {"name": name, **metadata}, "spec": spec})
        if node:
            pod = self.store.bind("default", name, node)
        if ready:
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            pod = self.store.patch(kinds.PODS, name, {"status": status}, namespace="default", subresource="status")
        return pod

    def deployment(self, name: str, replicas: int) -> dict[str, Any]:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        return self.store.create(kinds.DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})

    def replica_set(self, deployment: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": f"{deployment['metadata']['name']}-1", "ownerReferences": [owner(deployment)]}
        spec = {name: deployment["spec"][name] for name in ("replicas", "selector", "template")}
        return self.store.create(kinds.REPLICA_SETS, {"metadata": metadata, "spec": spec})

    def budget(self, name: str = "keep", **spec: object) -> dict[str, Any]:
        spec = {"selector": {"matchLabels": {"app": "web"}}, **spec}
        return self.store.create(kinds.POD_DISRUPTION_BUDGETS, {"metadata": {"name": name}, "spec": spec})


def owner(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def store(cluster: Cluster) -> Store:
    return cluster.store
