"""The lower bound of a report, also for pods of which no two may share a node."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from cli.report.lower_bound import BoundedPod, LowerBound
from local.world import sample_objects
from shared.api.kubernetes import Pod

BOUND = LowerBound(
    ("cpu", "memory"),
    np.array([[0.04 / 2000, 0.0]]),
    free=np.array([[500, 1 << 30], [2000, 4 << 30], [8000, 16 << 30]], np.float64),
    cost=np.array([0.01, 0.04, 0.16]),
)
"""$0.04/h for two vCPUs, on three sizes of nodes."""


def pods(count: int, cpu: str, **spec: Any) -> list[BoundedPod]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}]
    meta = {"name": "web", "namespace": "default", "labels": {"app": "web"}}
    pod = msgspec.convert({"metadata": meta, "spec": {"containers": containers, **spec}}, Pod)
    return [BoundedPod.of(pod)] * count


def test_pods_that_may_share_nodes_cost_their_requests() -> None:
    assert BOUND.of(pods(10, "500m")) == pytest.approx(0.1)
    assert BOUND.of([]) == 0


def test_pods_that_are_apart_cost_a_node_each() -> None:
    apart = sample_objects.one_per_node("web")
    assert BOUND.of(pods(10, "100m", affinity=apart)) == pytest.approx(0.1)
    assert BOUND.of(pods(10, "600m", affinity=apart)) == pytest.approx(0.4)
    assert BOUND.of([*pods(3, "600m", affinity=apart), *pods(20, "1")]) == pytest.approx(0.436)


def test_anti_affinity_to_others_or_by_zone_is_no_reason_for_nodes() -> None:
    for_others = sample_objects.one_per_node("db")
    assert BOUND.of(pods(10, "100m", affinity=for_others)) == pytest.approx(0.02)
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    by_zone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert BOUND.of(pods(10, "100m", affinity=by_zone)) == pytest.approx(0.02)
