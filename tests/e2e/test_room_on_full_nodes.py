"""Room on full nodes: DaemonSets that are added to them run, within all budgets, and no node or pod is lost."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from local.kubelets import pod_status
from local.kubernetes import kinds
from local.world import World, sample_objects
from local.world.sample_objects import budget, daemon_set
from shared.base import hints
from tests.e2e.test_forged_hints import forge
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


MINUTE = timedelta(minutes=1)
PODS_ON_NODE = 4
"""Of 900m each, on nodes of four vCPUs: less than half a vCPU is left."""
LIMIT = 2 * MINUTE


def fill(world: World, nodes: int, *, pool: dict[str, Any] | None = None, **deployment: Any) -> list[str]:
    """Fill that many nodes with the pods of a Deployment; returns the nodes' names."""
    requirements = {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-cpu": ["4"]}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", **(pool or {}).pop("disruption", {})}
    world.apply(
        [
            sample_objects.node_class(world),
            sample_objects.node_pool(requirements, disruption=disruption, **(pool or {})),
            sample_objects.deployment("web", PODS_ON_NODE * nodes, {"cpu": "900m", "memory": "1Gi"}, **deployment),
        ]
    )
    world.run_until(lambda: len(running(world, "web")) == PODS_ON_NODE * nodes, limit=10 * MINUTE)
    world.run_for(2 * MINUTE)
    names = [node["metadata"]["name"] for node in world.nodes()]
    assert len(names) == nodes
    return names


def evictions(world: World, nodes: Collection[str]) -> int:
    """How many pods have left these nodes; nodes that were launched since may be full too."""
    return sum(happening.details["node"] in nodes for happening in world.timeline.of("pod deleted"))


def failures_to_make_room(world: World) -> list[tuple[str, str]]:
    """The kinds of the objects that have such an event, with its message."""
    return sorted((e["involvedObject"]["kind"], e["message"]) for e in events(world, "FailedMakingRoom"))


def cordoned(world: World) -> list[str]:
    return [n["metadata"]["name"] for n in world.nodes() if n["spec"].get("unschedulable")]


def agents(world: World, app: str = "agent") -> set[str]:
    """The nodes on which the DaemonSet's pods run."""
    pods = world.pods(phase="Running")
    return {p["spec"]["nodeName"] for p in pods if p["metadata"]["labels"].get("app") == app}


class ReadyPods:
    """The least number of pods of the Deployment that ran at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.least = len(running(world, "web"))

    def run_until(self, condition: Callable[[], bool], *, limit: timedelta) -> None:
        def checked() -> bool:
            self.least = min(self.least, len(running(self._world, "web")))
            return condition()

        self._world.run_until(checked, limit=limit)


@pytest.mark.long
def test_a_daemon_set_that_is_added_to_fifty_full_nodes_runs_on_all_within_two_minutes(world: World) -> None:
    nodes = set(fill(world, 50))
    world.apply(budget("web", "30%"))
    ready_pods = ReadyPods(world)
    world.apply(daemon_set("agent", {"cpu": "500m"}))
    ready_pods.run_until(lambda: nodes <= agents(world), limit=LIMIT)
    ready_pods.run_until(lambda: len(running(world, "web")) == 200, limit=5 * MINUTE)
    assert ready_pods.least >= 140
    world.run_for(5 * MINUTE)
    assert nodes <= {node["metadata"]["name"] for node in world.nodes()}
    assert evictions(world, nodes) == 50
    assert cordoned(world) == []
    assert (world.failures(), world.dead_letters()) == ([], [])


@pytest.mark.flow
def test_all_daemons_run_where_a_budget_allows_one_eviction_at_a_time(world: World) -> None:
    nodes = set(fill(world, 4))
    world.apply(budget("web", 1))
    ready_pods = ReadyPods(world)
    world.apply(daemon_set("agent", {"cpu": "500m"}))
    ready_pods.run_until(lambda: nodes <= agents(world), limit=15 * MINUTE)
    ready_pods.run_until(lambda: len(running(world, "web")) == 16, limit=5 * MINUTE)
    assert ready_pods.least == 15
    assert evictions(world, nodes) == 4


def test_the_room_of_several_evicted_pods_is_not_given_to_their_replacements(world: World) -> None:
    # Both replacements wait for a place too, and fit where the first evicted pod was.
    nodes = set(fill(world, 3))
    for number, pod in enumerate(world.pods(phase="Running")):
        stops = {"metadata": {"annotations": {pod_status.STOPS_AFTER: str(5 + 2 * number)}}}
        world.store.patch(kinds.PODS, pod["metadata"]["name"], stops, namespace="default")
    world.apply(daemon_set("agent", {"cpu": "1500m"}))
    world.run_until(lambda: nodes <= agents(world), limit=LIMIT)
    world.run_until(lambda: len(running(world, "web")) == 12, limit=5 * MINUTE)
    assert evictions(world, nodes) == 6
    world.run_until(lambda: not cordoned(world), limit=MINUTE)


def test_a_daemon_that_is_larger_than_what_can_be_freed_gets_an_event_and_evicts_nothing(world: World) -> None:
    nodes = fill(world, 1)
    web = world.pods(phase="Running")
    for pod in web[:3]:
        annotations = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        world.store.patch(kinds.PODS, pod["metadata"]["name"], annotations, namespace="default")
    world.apply(daemon_set("agent", {"cpu": "2"}))
    world.run_for(3 * MINUTE)
    (about_node, about_pod) = failures_to_make_room(world)
    assert [about_node[0], about_pod[0]] == ["Node", "Pod"]
    assert about_node[1] == about_pod[1]
    assert f"node {nodes[0]} lacks cpu " in about_pod[1]
    assert "its 1 movable pods free cpu 900m at most, and pod default/web-" in about_pod[1]
    assert "has annotation karpenter.sh/do-not-disrupt (and 2 more)" in about_pod[1]
    assert evictions(world, nodes) == 0
    assert cordoned(world) == []


@pytest.mark.parametrize("owner", ["pod", "pool"])
def test_no_room_is_made_for_those_who_opt_out(world: World, owner: str) -> None:
    opt_out = {"tenon.sh/make-room": "false"}
    nodes = fill(world, 2, pool={"annotations": opt_out} if owner == "pool" else {})
    world.apply(daemon_set("agent", {"cpu": "500m"}, annotations=opt_out if owner == "pod" else {}))
    world.run_for(4 * MINUTE)
    assert agents(world) == set()
    assert evictions(world, nodes) == 0
    assert failures_to_make_room(world) == []


def test_a_freeze_window_is_respected_even_if_a_message_says_otherwise(world: World) -> None:
    nodes = fill(world, 2, pool={"disruption": {"budgets": [{"nodes": "0"}]}})
    world.apply(daemon_set("agent", {"cpu": "500m"}))
    world.run_for(2 * MINUTE)
    forge(world, "termination", hints.ROOM_NEEDED, nodes, source=hints.FUNCTIONS)
    world.run_for(2 * MINUTE)
    assert evictions(world, nodes) == 0
    text = "the disruption budgets of NodePool default allow no disruption now"
    assert all(text in message for _, message in failures_to_make_room(world))


def test_messages_that_arrive_again_evict_no_more(world: World) -> None:
    nodes = fill(world, 3)
    world.apply(daemon_set("agent", {"cpu": "500m"}))
    for _ in range(30):
        forge(world, "termination", hints.ROOM_NEEDED, nodes, source=hints.FUNCTIONS)
        forge(world, "termination", hints.ROOM_NEEDED, [*nodes, "missing"], source=hints.FUNCTIONS)
        world.run_for(timedelta(seconds=3))
    world.run_until(lambda: set(nodes) <= agents(world), limit=MINUTE)
    world.run_until(lambda: not cordoned(world) and len(running(world, "web")) == 12, limit=5 * MINUTE)
    assert evictions(world, nodes) == 3


def test_a_crash_between_any_two_writes_leaves_no_cordon_and_violates_no_budget(world: World) -> None:
    nodes = set(fill(world, 4))
    world.apply(budget("web", 2))
    ready_pods = ReadyPods(world)
    crashes = world.faults.crash_around_each_write("termination")
    for number in range(3):
        name = f"agent-{number}"
        world.apply(daemon_set(name, {"cpu": "900m"}))
        ready_pods.run_until(partial(_runs_everywhere, world, name, nodes), limit=30 * MINUTE)
        ready_pods.run_until(lambda: len(running(world, "web")) == 16 and not cordoned(world), limit=10 * MINUTE)
    assert not crashes.remaining
    assert ready_pods.least >= 14
    assert evictions(world, nodes) == 12


def _runs_everywhere(world: World, name: str, nodes: set[str]) -> bool:
    return nodes <= agents(world, name)
