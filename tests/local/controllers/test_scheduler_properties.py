"""Invariants of the scheduler: nodes fit their pods, and constraints hold for pods that were scheduled under them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from local.kubernetes import kinds
from local.kubernetes.scheduler.scheduler import Scheduler
from shared.api.quantity import parse_quantity
from tests.local.controllers.environment import Environment

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

events = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(0, 2500)),
        st.tuples(st.just("node"), st.integers(500, 4000)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=25,
)


def run_steps(env: Environment, steps: list[tuple[str, int]], **spec: Any) -> None:
    """Create and delete pods and nodes, and step the scheduler after each action."""
    for i, (action, number) in enumerate(steps):
        if action == "pod":
            env.pod(f"pod-{i}", labels={"app": "web"}, cpu=f"{number}m", **spec)
        elif action == "node":
            env.node(f"node-{i}", zone="abc"[i % 3], cpu=f"{number}m", pods="5")
        elif pods := env.pods():
            name = pods[number % len(pods)]["metadata"]["name"]
            env.store.delete(kinds.PODS, name, namespace="default", grace_period_seconds=0)
        env.settle()


@settings(max_examples=60, deadline=None)
@given(steps=events)
def test_no_node_ever_holds_more_than_it_can(steps: list[tuple[str, int]]) -> None:
    env = Environment()
    run_steps(env, steps)
    used: Counter[str] = Counter()
    pods: Counter[str] = Counter()
    for pod in env.pods():
        node = pod["spec"].get("nodeName", "")
        used[node] += parse_quantity("cpu", pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        pods[node] += 1
    for node in env.store.list(kinds.NODES):
        name = node["metadata"]["name"]
        assert used[name] <= parse_quantity("cpu", node["status"]["allocatable"]["cpu"])
        assert pods[name] <= 5


@settings(max_examples=60, deadline=None)
@given(steps=events)
def test_no_pod_is_pending_while_a_node_is_feasible(steps: list[tuple[str, int]]) -> None:
    env = Environment()
    run_steps(env, steps)
    free: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for node in env.store.list(kinds.NODES):
        free[node["metadata"]["name"]] = parse_quantity("cpu", node["status"]["allocatable"]["cpu"])
        places[node["metadata"]["name"]] = 5
    waiting: list[int] = []
    for pod in env.pods():
        cpu = parse_quantity("cpu", pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        if node := pod["spec"].get("nodeName"):
            free[node] -= cpu
            places[node] -= 1
        else:
            waiting.append(cpu)
    assert not any(cpu <= free[name] and places[name] > 0 for cpu in waiting for name in free)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.sampled_from([("pod", 100), ("node", 1000)]), min_size=1, max_size=25), skew=st.integers(1, 3))
def test_pods_created_one_by_one_never_exceed_max_skew(steps: list[tuple[str, int]], skew: int) -> None:
    env = Environment()
    # all zones exist from the start, for a zone that comes later is emptier than any rule allows
    for zone in "abc":
        env.node(f"first-{zone}", zone=zone, cpu="200m")
    constraint = {
        "maxSkew": skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    run_steps(env, steps, topologySpreadConstraints=[constraint])
    zone_of = {n["metadata"]["name"]: n["metadata"]["labels"][ZONE] for n in env.store.list(kinds.NODES)}
    counts = Counter(zone_of[p["spec"]["nodeName"]] for p in env.pods() if p["spec"].get("nodeName"))
    assert max(counts[z] for z in "abc") - min(counts[z] for z in "abc") <= skew


@settings(max_examples=40, deadline=None)
@given(steps=events)
def test_pods_with_anti_affinity_never_share_a_domain(steps: list[tuple[str, int]]) -> None:
    env = Environment()
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    run_steps(env, steps, affinity=affinity)
    nodes = [p["spec"]["nodeName"] for p in env.pods() if p["spec"].get("nodeName")]
    assert len(nodes) == len(set(nodes))


SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
NEAR_CACHE = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": ZONE}
APART_FROM_WEB = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
KINDS_OF_PODS: list[dict[str, Any]] = [
    {"labels": {"app": "web"}, "topologySpreadConstraints": [SPREAD]},
    {"labels": {"app": "web"}, "affinity": {"podAffinity": {REQUIRED: [NEAR_CACHE]}}},
    {"labels": {"app": "cache"}, "affinity": {"podAntiAffinity": {REQUIRED: [APART_FROM_WEB]}}},
    {"labels": {"app": "cache"}, "nodeSelector": {ZONE: "b"}},
    {"labels": {"app": "port"}, "container": {"ports": [{"containerPort": 80, "hostPort": 80}]}},
    {"labels": {"app": "web"}, "cpu": "900m", "tolerations": [{"operator": "Exists"}]},
]
turns = st.lists(
    st.tuples(
        st.sampled_from(["pod", "pod", "pod", "node", "node", "delete pod", "delete node", "cordon", "move"]),
        st.integers(0, 30),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(steps=turns)
def test_an_old_scheduler_decides_as_a_new_one(
    steps: list[tuple[str, int]],
) -> None:
    env = Environment()
    for i, (action, number) in enumerate(steps):
        nodes, pods = env.store.list(kinds.NODES), env.pods()
        node = nodes[number % len(nodes)]["metadata"]["name"] if nodes else ""
        if action == "pod":
            env.pod(f"pod-{i}", **KINDS_OF_PODS[number % len(KINDS_OF_PODS)])
        elif action == "node":
            taints = [{"key": "team", "effect": "NoSchedule"}] if number % 5 == 0 else None
            env.node(f"node-{i}", zone="abc"[number % 3], cpu="1", taints=taints)
        elif action == "delete pod" and pods:
            name = pods[number % len(pods)]["metadata"]["name"]
            env.store.delete(kinds.PODS, name, namespace="default", grace_period_seconds=0)
        elif node and action == "delete node":
            env.store.delete(kinds.NODES, node)
        elif node and action == "cordon":
            env.patch(kinds.NODES, node, {"spec": {"unschedulable": number % 2 == 0}})
        elif node and action == "move":
            env.patch(kinds.NODES, node, {"metadata": {"labels": {ZONE: "abc"[number % 3]}}})
        env.settle(limit=timedelta(seconds=1))
    # Longer than a pod is left out that no change concerns: by then every pod was tried in the present cluster.
    env.run(seconds=400)
    before = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in env.pods()}
    Scheduler(env.store).step(env.now)
    assert {p["metadata"]["name"]: p["spec"].get("nodeName") for p in env.pods()} == before
