"""A node that reboots in place: no candidate, one of the budget's nodes, and room that comes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from shared.api import labels as names
from shared.api import reboot
from shared.api.kubernetes import Taint
from shared.api.meta import Condition
from shared.api.nodepool import Budget
from shared.base.struct import with_fields
from shared.disruption.candidates import initialized_nodes
from shared.disruption.disruption_queue import is_queued, queue_status
from shared.disruption.simulated_scheduling import initialized_node_names
from shared.scheduling.state.state_nodes import build_state_nodes

if TYPE_CHECKING:
    from shared.scheduling.state.state_nodes import StateNode
    from tests.unit.disruption.conftest import Cluster

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def request(cluster: Cluster, index: int = 0, *, issued: bool = False) -> None:
    """Let a node reboot: drained, or down since its reboot was called."""
    claim = reboot.with_request(cluster.claims[index], "why", now=NOW)
    cluster.claims[index] = reboot.issued(claim, now=NOW) if issued else claim
    node = cluster.nodes[index]
    taints = [Taint(key=names.REBOOTING_TAINT, effect="NoSchedule")]
    node = with_fields(node, spec=with_fields(node.spec, taints=taints))
    if issued:
        labels = {key: value for key, value in node.metadata.labels.items() if key != names.INITIALIZED}
        taints = [*taints, Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule")]
        conditions = [Condition(type="Ready", status="Unknown")]
        node = with_fields(
            node,
            metadata=with_fields(node.metadata, labels=labels),
            spec=with_fields(node.spec, taints=taints),
            status=with_fields(node.status, conditions=conditions),
        )
    cluster.nodes[index] = node


def state_node(cluster: Cluster) -> StateNode:
    (node,) = build_state_nodes(cluster.snapshot, {"default": cluster.types}, frozenset()).nodes
    return node


@pytest.mark.parametrize("issued", [False, True])
def test_it_is_no_candidate_and_counts_as_disrupted(cluster: Cluster, *, issued: bool) -> None:
    for name in ("rebooting", "a", "b", "c"):
        cluster.node(name, 1)
    cluster.disruption(budgets=[Budget(nodes="50%")])
    request(cluster, issued=issued)
    assert [n.metadata.name for _, n in initialized_nodes(cluster.state())] == ["a", "b", "c"]
    assert cluster.budget_tracker().remaining("default", "Drifted") == 1  # 50 % of four, less the one that reboots
    assert cluster.budget_tracker().remaining("default", "Unhealthy") == 1


def test_its_reason_is_no_place_in_the_disruption_queue(cluster: Cluster) -> None:
    cluster.node("rebooting", 1)
    request(cluster)
    assert not is_queued(cluster.claims[0])
    assert queue_status(cluster.claims, now=NOW).rollbacks == ()


@pytest.mark.parametrize("issued", [False, True])
def test_pods_that_wait_for_it_find_its_room(cluster: Cluster, *, issued: bool) -> None:
    cluster.node("rebooting", 2)
    cluster.pod("kept", "rebooting", 500)
    cluster.pod("evicted", "rebooting", 1000)
    request(cluster, issued=issued)
    evicted = cluster.pods[1]
    metadata = with_fields(evicted.metadata, deletion_timestamp=NOW + timedelta(minutes=5))
    cluster.pods[1] = with_fields(evicted, metadata=metadata)
    node = state_node(cluster)
    assert (node.taints, node.initialized, node.available["cpu"]) == ((), False, 1500)


def test_no_other_node_is_removed_because_of_its_room(cluster: Cluster) -> None:
    for name in ("rebooting", "a"):
        cluster.node(name, 1)
    request(cluster)
    assert initialized_node_names(cluster.snapshot) == {"a"}


def test_once_it_is_back_it_is_like_any_other(cluster: Cluster) -> None:
    cluster.node("back", 1)
    request(cluster)
    cluster.claims[0] = reboot.ended(cluster.claims[0], reboot.SUCCEEDED, "", now=NOW)
    assert [n.metadata.name for _, n in initialized_nodes(cluster.state())] == ["back"]
    assert state_node(cluster).taints  # the taint goes with the boot; a node that keeps it takes no pods
