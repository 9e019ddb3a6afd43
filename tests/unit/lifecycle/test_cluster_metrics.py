"""Metrics of the whole cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from functions.lifecycle.cluster_metrics import measure
from functions.lifecycle.statuses import node_overlay_status
from shared.api import labels as names
from shared.api.kubernetes import Node, Pod
from shared.base.struct import with_fields
from shared.instance_types.catalog import InstanceTypeCatalog
from shared.snapshot import Snapshot
from tests.unit.instance_types.node_overlays import overlay

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CATALOG = InstanceTypeCatalog(
    region="us-east-1",
    types_at=NOW,
    prices_at=NOW,
    on_demand={"m5.large": 0.1},
    spot={"m5.large": {"us-east-1a": 0.04}},
)


def node(name: str, *, pool: str = "default", capacity_type: str = "spot", instance_type: str = "m5.large") -> Node:
    labels = {
        names.NODEPOOL: pool,
        names.INSTANCE_TYPE: instance_type,
        names.CAPACITY_TYPE: capacity_type,
        names.ZONE: "us-east-1a",
    }
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels if pool else {}},
            "status": {"allocatable": {"cpu": "2", "memory": "8Gi"}},
        },
        Node,
    )


def cluster(*, nodes: tuple[Node, ...] = (), pods: tuple[Pod, ...] = ()) -> Snapshot:
    return Snapshot(taken_at=NOW, nodes=nodes, pods=pods)


def pod(name: str, *, on: str = "", phase: str = "Running", waiting: timedelta | None = None) -> Pod:
    status: dict[str, Any] = {"phase": phase}
    if waiting is not None:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "lastTransitionTime": (NOW - waiting).isoformat(),
            }
        ]
    requests = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "resources": requests}], "nodeName": on},
            "status": status,
        },
        Pod,
    )


def test_cost_is_the_sum_of_current_prices() -> None:
    snapshot = cluster(nodes=(node("a"), node("b", capacity_type="on-demand"), node("c", pool="batch")))
    cluster_metrics = measure(snapshot, CATALOG, now=NOW)
    assert cluster_metrics.nodes == 3
    assert cluster_metrics.cost == pytest.approx(0.18)
    assert cluster_metrics.by_pool == {"batch": (1, 0.04), "default": (2, 0.14)}
    assert cluster_metrics.by_type == {"m5.large on-demand": (1, 0.1), "m5.large spot": (2, 0.08)}


def test_cost_is_by_the_prices_that_node_overlays_set_for_the_nodes_of_their_pools() -> None:
    half = overlay("half", (names.NODEPOOL, "In", ["batch"]), priceAdjustment="-50%")
    conflicting = overlay("again", price="9")
    conflicting = with_fields(conflicting, status=node_overlay_status.status(conflicting, "half sets it, too", now=NOW))
    nodes = (node("a"), node("b", capacity_type="on-demand", pool="batch"))
    snapshot = Snapshot(taken_at=NOW, nodes=nodes, node_overlays=(half, conflicting))
    assert measure(snapshot, CATALOG, now=NOW).by_pool == {"batch": (1, 0.05), "default": (1, 0.04)}


def test_a_node_without_a_price_is_counted_as_unpriced() -> None:
    snapshot = cluster(nodes=(node("a", instance_type="x9.large"), node("b")))
    assert measure(snapshot, CATALOG, now=NOW).unpriced == 1
    assert measure(snapshot, None, now=NOW).unpriced == 2


def test_nodes_without_a_nodepool_are_not_counted() -> None:
    assert measure(cluster(nodes=(node("managed", pool=""),)), CATALOG, now=NOW).nodes == 0


def test_utilization_is_requests_of_unfinished_pods_over_allocatable() -> None:
    pods = (pod("x", on="a"), pod("y", on="a"), pod("done", on="a", phase="Succeeded"), pod("z", on="elsewhere"))
    cluster_metrics = measure(cluster(nodes=(node("a"),), pods=pods), CATALOG, now=NOW)
    assert cluster_metrics.cpu == pytest.approx(0.5)
    assert cluster_metrics.memory == pytest.approx(0.25)


def test_the_oldest_pending_pod_is_measured() -> None:
    waits = (pod("x", phase="Pending", waiting=timedelta(seconds=30)), pod("y", phase="Pending", waiting=timedelta(0)))
    cluster_metrics = measure(cluster(pods=waits), CATALOG, now=NOW)
    assert (cluster_metrics.pending, cluster_metrics.oldest_pending) == (2, 30.0)
