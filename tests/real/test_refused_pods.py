"""Pods that no new node can run get none: of a real API server's templates, and by a real kube-scheduler's refusals."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import sample_objects

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World

PORT = 8126
REQUESTS = {"cpu": "300m", "memory": "256Mi"}
OBSERVED = timedelta(seconds=70)
REFUSED_TWICE = timedelta(minutes=4)


def messages(world: World, pod: str, component: str) -> set[str]:
    """The messages of a component's events FailedScheduling on pods whose names begin so."""
    return {
        e["message"]
        for e in world.store.list(kinds.EVENTS)
        if e["reason"] == "FailedScheduling"
        and e["involvedObject"]["name"].startswith(pod)
        and component in ((e.get("source") or {}).get("component"), e.get("reportingComponent"))
    }


def on_host_network(port: int) -> Obj:
    """A DaemonSet whose template names the port as a containerPort only."""
    agent: dict[str, Any] = sample_objects.daemon_set("agent", {"cpu": "50m"})
    spec = agent["spec"]["template"]["spec"]
    spec |= {"hostNetwork": True, "tolerations": [{"operator": "Exists"}]}
    spec["containers"][0]["ports"] = [{"containerPort": port}]
    return agent


@pytest.mark.long
def test_no_node_is_launched_for_a_port_that_a_daemon_set_on_the_host_network_takes(world: World) -> None:
    wanting = sample_objects.deployment("wanting", 1, REQUESTS)
    wanting["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": PORT}]
    world.apply([on_host_network(PORT), sample_objects.deployment("web", 1, REQUESTS), wanting])

    world.run_for(OBSERVED)

    (stored,) = [d for d in world.store.list(kinds.DAEMON_SETS) if d["metadata"]["name"] == "agent"]
    assert "hostPort" not in stored["spec"]["template"]["spec"]["containers"][0]["ports"][0]
    agents = [p for p in world.pods() if p["metadata"]["labels"]["app"] == "agent"]
    assert [p["spec"]["containers"][0]["ports"][0]["hostPort"] for p in agents] == [PORT]
    running = {p["metadata"]["labels"]["app"] for p in world.pods(phase="Running")}
    assert running == {"agent", "web"}
    assert len(world.claims()) == 1
    assert any(str(PORT) in message for message in messages(world, "wanting", "tenon"))
    assert any("free ports" in message for message in messages(world, "wanting", "default-scheduler"))


@pytest.mark.long
def test_a_pod_that_two_nodes_of_its_own_plan_refused_gets_no_third(world: World) -> None:
    world.apply(sample_objects.deployment("web", 1, REQUESTS))
    launched: set[str] = set()

    def taint_new_nodes() -> None:
        """What a policy agent does: each new node gets a taint that its NodePool doesn't know."""
        for node in world.nodes():
            name = node["metadata"]["name"]
            if name not in launched:
                taints = [*(node["spec"].get("taints") or []), {"key": "example.com/unscanned", "effect": "NoSchedule"}]
                world.store.patch(kinds.NODES, name, {"spec": {"taints": taints}})
                launched.add(name)

    def is_refused() -> bool:
        return any("didn't bind them there" in message for message in messages(world, "web", "tenon"))

    end = time.monotonic() + REFUSED_TWICE.total_seconds()
    while not is_refused() and time.monotonic() < end:
        taint_new_nodes()
        world.run_for(timedelta(seconds=0.5))
    assert is_refused()
    assert len(launched) == 2
    world.run_for(OBSERVED)
    assert not {n["metadata"]["name"] for n in world.nodes()} - launched
    assert not any(p["spec"].get("nodeName") for p in world.pods())
