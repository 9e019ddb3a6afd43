"""DaemonSets on new nodes: their pods and those that the node was launched for run there together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from local.world import Options, World
from local.world.sample_objects import daemon_set, deployment, node_class, node_pool
from shared.api import labels as names
from shared.base.struct import with_fields
from tests.e2e.test_hostility import CALM
from tests.e2e.world_state import events


@pytest.mark.flow
def test_a_node_has_room_for_a_daemon_whose_requests_come_from_a_limit_range(spot_default: World) -> None:
    world = spot_default
    world.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "LimitRange",
                "metadata": {"name": "defaults", "namespace": "default"},
                "spec": {"limits": [{"type": "Container", "default": {"cpu": "3", "memory": "1Gi"}}]},
            },
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": "agent", "namespace": "default"},
                "spec": {
                    "selector": {"matchLabels": {"app": "agent"}},
                    "template": {
                        "metadata": {"labels": {"app": "agent"}},
                        "spec": {
                            "containers": [{"name": "agent", "image": "x"}],
                            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                        },
                    },
                },
            },
            deployment("web", 1, {"cpu": "500m", "memory": "128Mi"}),
        ]
    )
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))
    world.run_for(timedelta(minutes=2))
    assert len(world.pods(phase="Running")) == 2
    assert len(world.timeline.of("claim created")) == 1


def test_a_daemon_set_whose_device_no_node_has_is_named_once_and_blocks_nothing(spot_default: World) -> None:
    world = spot_default
    world.apply(
        [
            daemon_set("sampler", {"cpu": "100m", "lab.example.org/probe": "2"}),
            daemon_set("logs", {"cpu": "100m"}),
            deployment("web", 3, {"cpu": "1500m", "memory": "256Mi"}),
        ]
    )
    world.run_until(lambda: len(world.pods(phase="Running")) >= 4, limit=timedelta(minutes=3))
    nodes = len(world.timeline.of("claim created"))
    world.run_for(timedelta(minutes=12))
    assert len(world.timeline.of("claim created")) == nodes
    assert {p["metadata"]["labels"]["app"] for p in world.pods(phase="Running")} == {"web", "logs"}
    (event,) = events(world, kind="DaemonSet")
    assert (event["reason"], event["type"], event["count"]) == ("DaemonSetIgnored", "Warning", 1)
    assert (event["involvedObject"]["name"], event["metadata"]["namespace"]) == ("sampler", "default")
    assert event["message"] == (
        "lab.example.org/probe is offered by no instance type of NodePool default; "
        "its pods are left out of the room that new nodes keep for DaemonSets"
    )


CPUS = "karpenter.k8s.aws/instance-cpu"


def split_agent(name: str, cpu: str, operator: str, cpus: str) -> dict[str, Any]:
    """A DaemonSet for the machines of some sizes."""
    agent = daemon_set(name, {"cpu": cpu})
    terms = [{"matchExpressions": [{"key": CPUS, "operator": operator, "values": [cpus]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    agent["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    return agent


def apart_from(app: str) -> dict[str, Any]:
    term = {"topologyKey": names.HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.flow
def test_daemon_sets_for_some_instance_types_take_room_only_there() -> None:
    """The small pod gets a machine that the large agent would fill; the large one a machine that has room for it."""
    with World(cluster="demo") as world:
        family = {"karpenter.k8s.aws/instance-family": ["m5"], names.CAPACITY_TYPE: ["on-demand"]}
        world.apply(
            [
                node_class(world),
                node_pool(family),
                split_agent("small-agent", "300m", "Lt", "5"),
                split_agent("large-agent", "1500m", "Gt", "4"),
                deployment("small", 1, {"cpu": "1500m"}, affinity=apart_from("large")),
                deployment("large", 1, {"cpu": "6500m"}, affinity=apart_from("small")),
            ]
        )
        world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=timedelta(minutes=5))
        world.run_for(timedelta(minutes=5))
        types = {n["metadata"]["name"]: n["metadata"]["labels"][names.INSTANCE_TYPE] for n in world.nodes()}
        by_app = {p["metadata"]["labels"]["app"]: types[p["spec"]["nodeName"]] for p in world.pods(phase="Running")}
        assert by_app == {
            "small": "m5.large",
            "small-agent": "m5.large",
            "large": "m5.4xlarge",  # an m5.2xlarge has 7,910 mCPU, 90 too few for both
            "large-agent": "m5.4xlarge",
        }
        assert len(world.timeline.of("claim created")) == 2
        assert world.failures() == []


def test_a_daemon_set_that_fits_on_no_node_keeps_no_pod_from_its_own() -> None:
    """Its controller counts the pod for each node, though none of them has one, and no other pod runs."""
    with World(cluster="demo", options=Options(hostility=with_fields(CALM, foreign_objects=True))) as world:
        family = {"karpenter.k8s.aws/instance-family": ["m5"], names.CAPACITY_TYPE: ["on-demand"]}
        agent = daemon_set("agent", {"cpu": "3"})
        agent["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
        world.apply([node_class(world), node_pool(family), agent, deployment("web", 1, {"cpu": "500m"})])
        world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))
        assert world.failures() == []
