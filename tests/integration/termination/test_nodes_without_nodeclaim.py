"""Nodes whose NodeClaim was deleted by force: they are drained and removed by one chain of reconciles."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base import hints
from shared.cluster.resources import NODE_CLAIMS

if TYPE_CHECKING:
    from tests.integration.termination.conftest import Rig


def test_a_node_without_nodeclaim_is_removed_by_one_chain_of_reconciles(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    rig.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    rig.client.delete(NODE_CLAIMS.path("claim-old"))
    rig.turn(60)

    def kubelets() -> None:
        for pod in rig.pods():
            if "deletionTimestamp" in pod["metadata"]:
                rig.stop(pod["metadata"]["name"])

    rig.after_each = kubelets
    rig.reconcile()
    began = rig.now
    rig.run(until=lambda: not rig.nodes(), limit=timedelta(seconds=60))  # no further sweep
    assert rig.nodes() == []
    assert rig.states()[instance] == "terminated"
    assert rig.now - began <= timedelta(seconds=30)


def test_messages_about_a_node_without_nodeclaim_are_one_chain(rig: Rig) -> None:
    rig.a_node("old")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    rig.client.delete(NODE_CLAIMS.path("claim-old"))
    rig.turn(60)
    for _ in range(5):
        rig.send(hints.NODES_DELETING, "old")
        rig.step()
    assert len(rig.due) == 1
