"""Annotation ``tenon.sh/spot-share`` on pods: at most that share of a workload's pods is launched for as spot."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e.cli.conftest import Shell
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = timedelta(minutes=10)


def pool() -> dict[str, Any]:
    requirements = {
        names.CAPACITY_TYPE: ["spot", "on-demand"],
        "karpenter.k8s.aws/instance-category": ["m"],
        "karpenter.k8s.aws/instance-cpu": ["2"],
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"}
    return sample_objects.node_pool(requirements, disruption=disruption)


def web(name: str, replicas: int, share: str) -> dict[str, Any]:
    """Pods that fill a node each."""
    return sample_objects.deployment(name, replicas, {"cpu": "1500m"}, annotations={names.SPOT_SHARE: share})


def capacity_types(world: World, app: str) -> Counter[str]:
    """How many running pods nodes of each capacity type have."""
    nodes = {n["metadata"]["name"]: n["metadata"]["labels"][names.CAPACITY_TYPE] for n in world.nodes()}
    return Counter(nodes[pod["spec"]["nodeName"]] for pod in running(world, app))


@pytest.mark.flow
def test_a_workload_keeps_its_share_through_an_interruption_and_consolidation(tmp_path: Path) -> None:
    with World(cluster="demo") as world:
        world.apply([sample_objects.node_class(world), pool(), web("web", 6, "70%")])
        world.run_until(lambda: len(running(world, "web")) == 6, limit=LIMIT)
        assert capacity_types(world, "web") == {"spot": 4, "on-demand": 2}

        spot = [i.id for i in world.instances() if i.lifecycle == "spot"]
        world.interrupt_spot(spot[:1])
        world.run_for(timedelta(minutes=5))
        world.run_until(lambda: len(running(world, "web")) == 6, limit=LIMIT)
        assert spot[0] not in {i.id for i in world.instances()}
        assert capacity_types(world, "web") == {"spot": 4, "on-demand": 2}

        world.run_for(timedelta(minutes=30))
        assert capacity_types(world, "web") == {"spot": 4, "on-demand": 2}

        world.scale("default", "web", 10)
        world.run_until(lambda: len(running(world, "web")) == 10, limit=LIMIT)
        assert capacity_types(world, "web") == {"spot": 7, "on-demand": 3}

        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        pod = running(world, "web")[0]["metadata"]["name"]
        explained = Shell(world, path).tenon("explain", "pod", f"default/{pod}").out
        assert "7 of 10 pods of its workload, at most 7 (70%)" in explained
        assert world.failures() == []


def test_a_share_that_cannot_be_read_is_named_once_for_each_pod_and_holds_nothing_back() -> None:
    with World(cluster="demo") as world:
        world.apply([sample_objects.node_class(world), pool(), web("web", 2, "0.7")])
        world.run_until(lambda: len(running(world, "web")) == 2, limit=LIMIT)
        world.run_for(timedelta(minutes=3))
        assert capacity_types(world, "web") == {"spot": 2}
        invalid = events(world, "InvalidAnnotation", kind="Pod")
        assert [(e["count"], e["message"]) for e in invalid] == [
            (1, 'annotation tenon.sh/spot-share: "0.7" has no effect: it must be a share from "0%" to "100%"')
        ] * 2
