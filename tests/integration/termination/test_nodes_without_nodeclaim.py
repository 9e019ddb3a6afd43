"""Nodes whose NodeClaim was deleted by force: they are drained and removed by one chain of reconciles."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base import hints
from shared.cluster.resources import NODE_CLAIMS, NODE_POOLS

if TYPE_CHECKING:
    from tests.integration.termination.conftest import Environment


def test_a_node_without_nodeclaim_is_removed_by_one_chain_of_reconciles(env: Environment) -> None:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}}
    env.client.create(NODE_POOLS.path(), {**pool, "spec": {"template": {"spec": {"nodeClassRef": reference}}}})
    instance = env.a_node("old")
    env.pod("web", "old")
    env.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    env.client.delete(NODE_CLAIMS.path("claim-old"))
    env.turn(60)

    def kubelets() -> None:
        for pod in env.pods():
            if "deletionTimestamp" in pod["metadata"]:
                env.stop(pod["metadata"]["name"])

    env.after_each = kubelets
    env.reconcile()
    began = env.now
    env.run(until=lambda: not env.nodes(), limit=timedelta(seconds=60))  # no further sweep
    assert env.nodes() == []
    assert env.states()[instance] == "terminated"
    assert env.now - began <= timedelta(seconds=30)


def test_messages_about_a_node_without_nodeclaim_are_one_chain(env: Environment) -> None:
    env.a_node("old")
    env.pod("web", "old")
    env.budget("web", 1)
    env.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    env.client.delete(NODE_CLAIMS.path("claim-old"))
    env.turn(60)
    for _ in range(5):
        env.send(hints.NODES_DELETING, "old")
        env.step()
    assert len(env.due) == 1
