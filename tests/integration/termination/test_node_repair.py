"""Node repair: which unhealthy nodes are replaced, and which are only named."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from functions.lifecycle.claims.node_repair import REPAIR_ANNOTATION
from shared.api import labels as names
from shared.cluster.resources import NODE_CLAIMS, NODES

if TYPE_CHECKING:
    from shared.cluster.resources import Resource
    from tests.integration.termination.conftest import Environment


def repair_pool(env: Environment) -> None:
    env.client.create(
        "/apis/karpenter.sh/v1/nodepools",
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default", "annotations": {REPAIR_ANNOTATION: "true"}},
            "spec": {
                "template": {
                    "spec": {
                        "requirements": [],
                        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    }
                }
            },
        },
    )


def test_unhealthy_nodes_are_replaced_if_repair_is_enabled_and_at_most_a_fifth_is_unhealthy(env: Environment) -> None:
    for i in range(10):
        env.a_node(f"n-{i}")
    repair_pool(env)
    for i in range(3):
        env.set_ready(f"n-{i}", "Unknown")
    env.turn(timedelta(minutes=31).total_seconds())
    env.settle(minutes=2)
    assert len(env.claims()) == 10
    assert env.events("NodeRepairBlocked")
    env.set_ready("n-2", "True")
    env.settle(minutes=3)
    assert {c["metadata"]["name"] for c in env.claims()} == {f"claim-n-{i}" for i in range(2, 10)}
    assert {e["involvedObject"]["name"] for e in env.events("NodeUnhealthy")} == {"claim-n-0", "claim-n-1"}


@pytest.mark.parametrize("kind", [NODES, NODE_CLAIMS], ids=["node", "NodeClaim"])
def test_an_unhealthy_node_that_must_not_be_repaired_stays_and_is_named(env: Environment, kind: Resource) -> None:
    for i in range(5):
        env.a_node(f"n-{i}")
    repair_pool(env)
    name = "n-0" if kind is NODES else "claim-n-0"
    env.client.patch(kind.path(name), {"metadata": {"annotations": {names.DO_NOT_REPAIR: "true"}}})
    env.set_ready("n-0", "Unknown")
    env.turn(timedelta(minutes=31).total_seconds())
    env.settle(minutes=3)
    assert len(env.claims()) == 5
    (event,) = env.events("NodeRepairBlocked")
    assert event["involvedObject"]["name"] == "claim-n-0"
    assert "karpenter.sh/do-not-repair keeps the node" in event["message"]
