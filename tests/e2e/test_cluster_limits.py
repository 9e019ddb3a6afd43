"""Annotation ``tenon.sh/cluster-limits`` on a NodePool limits the nodes of all NodePools together, also in a burst."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import Options, World, sample_objects
from shared.api import labels as names
from tests.e2e.cli.conftest import Shell
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from pathlib import Path

    from local.kubernetes.objects import Change

LIMIT = "nodes=4, cpu=12"
NODE_POOL = ("karpenter.sh/v1", "NodePool")


def pool(name: str, annotation: str = "", **spec: Any) -> dict[str, Any]:
    requirements = {
        "karpenter.sh/capacity-type": ["on-demand"],
        "karpenter.k8s.aws/instance-cpu": ["2", "4", "8"],
        "karpenter.k8s.aws/instance-category": ["m"],
    }
    annotations = {names.CLUSTER_LIMITS: annotation} if annotation else {}
    node_pool = sample_objects.node_pool(requirements, name=name, annotations=annotations, **spec)
    node_pool["spec"]["template"].setdefault("metadata", {})["labels"] = {"for": name}
    return node_pool


def apart(name: str, replicas: int, **pod: Any) -> dict[str, Any]:
    """Pods that need a node each."""
    affinity = sample_objects.one_per_node(name)
    return sample_objects.deployment(name, replicas, {"cpu": "500m"}, affinity=affinity, **pod)


class Most:
    """The most instances and vCPUs that ever ran, and NodeClaims that ever were, at once."""

    def __init__(self, world: World) -> None:
        self.instances = self.cpus = self.claims = 0
        self._world = world
        world.store.subscribe(self._change)

    def _change(self, change: Change) -> None:
        if change.kind.kind not in {"NodeClaim", "Node"}:
            return
        claims = self._world.claims()
        cpus = [int(c.get("status", {}).get("capacity", {}).get("cpu", "0")) for c in claims]
        self.claims, self.cpus = max(self.claims, len(claims)), max(self.cpus, sum(cpus))
        self.instances = max(self.instances, len(self._world.instances()))


def condition(world: World, name: str) -> tuple[str, str]:
    status = world.store.get(world.store.kind(*NODE_POOL), name).get("status", {})
    own = next(c for c in status["conditions"] if c["type"] == "WithinClusterLimits")
    return own["status"], own["message"]


@pytest.mark.flow
def test_a_burst_over_several_nodepools_keeps_to_the_limits_until_they_are_raised(tmp_path: Path) -> None:
    with World(cluster="demo", options=Options()) as world:
        most = Most(world)
        world.apply([sample_objects.node_class(world), pool("fixed", replicas=1), pool("a", LIMIT), pool("b")])
        world.run_until(lambda: len(world.claims()) == 1)
        world.apply([apart(n, 4, nodeSelector={"for": n}) for n in ("a", "b")])
        world.run_for(timedelta(minutes=12))
        assert (most.claims, most.instances, len(running(world))) == (4, 4, 3)
        assert most.cpus <= 12
        assert condition(world, "b")[0] == "False"
        assert condition(world, "b")[1].endswith("nodes 4 of 4")

        pending = [p["metadata"]["name"] for p in world.pending()]
        waits = [e for e in events(world, "FailedScheduling") if "limits of all NodePools together" in e["message"]]
        assert {e["involvedObject"]["name"] for e in waits} == set(pending)
        assert len(waits) == len(pending) == 5

        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        explained = Shell(world, path).tenon("explain", "nodepool", "b")
        assert explained.lines[1] == "  limit on nodes of all NodePools: 4 of 4 in use", explained.out

        raised = {"metadata": {"annotations": {names.CLUSTER_LIMITS: "nodes=9"}}}
        world.store.patch(world.store.kind(*NODE_POOL), "a", raised)
        world.run_until(lambda: len(running(world)) == 8)
        assert most.claims == 9
        assert world.failures() == []
