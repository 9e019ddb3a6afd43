"""The embedded scheduler places pods as the real one does: the same problems, put to both."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.kubernetes.errors import ApiError
from shared.api.labels import HOSTNAME, ZONE
from tests.real.scheduling import (
    Cluster,
    EmbeddedCluster,
    Json,
    RealCluster,
    add_deployment,
    add_node,
    add_pod,
    add_priority_class,
    nominate,
    nominations,
    placement,
    release,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Outcome = object
    Problem = Callable[[Cluster], Outcome]

SIZES = 5
"""Sizes for which no two nodes have equal scores, so that there is one right answer."""
SEEDS = range(6)
"""The embedded scheduler's seeds: where all give one outcome, there is one right answer."""


def sizes(cluster: Cluster) -> Outcome:
    """LeastAllocated and BalancedAllocation, with pods of many sizes on nodes of different sizes."""
    for name, cpu, memory in (("n1", "4", "16Gi"), ("n2", "8", "16Gi"), ("n3", "16", "128Gi"), ("n4", "2", "31Gi")):
        add_node(cluster, name, cpu=cpu, memory=memory)
    rng = random.Random(SIZES)  # noqa: S311 (sizes of pods)
    for i in range(40):
        millicores, mebibytes = rng.randrange(50, 900, 37), rng.randrange(100, 4000, 113)
        add_pod(cluster, f"pod-{i}", cpu=f"{millicores}m", memory=f"{mebibytes}Mi")
    cluster.settle()
    return placement(cluster)


def pods_without_requests(cluster: Cluster) -> Outcome:
    """Missing requests count as 100m and 200Mi in scores."""
    add_node(cluster, "n1", cpu="2", memory="4Gi")
    add_node(cluster, "n2", cpu="7", memory="9Gi")
    for i in range(9):
        add_pod(cluster, f"none-{i}")
    for i in range(7):
        add_pod(cluster, f"cpu-{i}", cpu="310m")
    cluster.settle()
    return placement(cluster)


def deployments_are_spread(cluster: Cluster) -> Outcome:
    """The default soft constraints, by hostname and zone."""
    for i, zone in enumerate("aabbbc"):
        add_node(cluster, f"n{i}", cpu="16", memory=f"{60 + i}Gi", zone=zone)
    for name, replicas in (("web", 9), ("api", 6)):
        add_deployment(cluster, name, replicas, cpu="200m", memory="300Mi")
        cluster.settle()
    zones = {f"n{i}": zone for i, zone in enumerate("aabbbc")}
    return sorted(Counter((name.split("-")[0], zones[node]) for name, node in placement(cluster).items()).items())


def soft_rules(cluster: Cluster) -> Outcome:
    """Soft taints, preferred node and pod affinity and anti-affinity, soft spread of the pod's own."""
    soft = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}
    add_node(cluster, "n1", cpu="8", memory="32Gi", zone="a", labels={"disk": "ssd"})
    add_node(cluster, "n2", cpu="16", memory="64Gi", zone="b", taints=[soft])
    add_node(cluster, "n3", cpu="15", memory="61Gi", zone="b", labels={"disk": "ssd", "size": "9"})
    add_node(cluster, "n4", cpu="12", memory="30Gi", zone="c", taints=[soft, {**soft, "key": "other"}])
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    ssd = {"weight": 30, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
    big = {"weight": 70, "preference": {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["8"]}]}}
    near = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": ZONE}
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    kinds_of_pods: list[Json] = [
        {"labels": {"app": "cache"}, "affinity": {"nodeAffinity": {preferred: [ssd, big]}}},
        {"labels": {"app": "web"}, "affinity": {"podAffinity": {preferred: [{"weight": 60, "podAffinityTerm": near}]}}},
        {
            "labels": {"app": "web"},
            "affinity": {"podAntiAffinity": {preferred: [{"weight": 80, "podAffinityTerm": apart}]}},
        },
        {"labels": {"app": "web"}, "topologySpreadConstraints": [spread]},
        {"labels": {"app": "plain"}, "tolerations": [{"key": "team", "operator": "Exists"}]},
    ]
    for i in range(25):
        add_pod(cluster, f"pod-{i}", cpu=f"{211 + i}m", memory=f"{500 + 7 * i}Mi", **kinds_of_pods[i % 5])
    cluster.settle()
    return placement(cluster)


def priority_goes_first(cluster: Cluster) -> Outcome:
    """Waiting pods are tried by priority, then by the time of their last attempt."""
    add_priority_class(cluster, "high", 1000)
    add_node(cluster, "n1", cpu="2", held=True)
    for i in range(4):
        add_pod(cluster, f"low-{i}", cpu="500m")
    for i in range(2):
        add_pod(cluster, f"high-{i}", cpu="500m", priority_class="high")
    cluster.settle()
    release(cluster, "n1")
    cluster.settle()
    return placement(cluster)


def a_nominated_node_is_taken(cluster: Cluster) -> Outcome:
    """The nominated node is taken even though another scores higher."""
    add_node(cluster, "n1", cpu="2", memory="4Gi", held=True)
    add_node(cluster, "n2", cpu="64", memory="256Gi", held=True)
    for i in range(3):
        add_pod(cluster, f"pod-{i}", cpu="500m")
    cluster.settle()
    nominate(cluster, "pod-1", "n1")
    nominate(cluster, "pod-2", "n1")
    release(cluster, "n2")
    cluster.settle()
    waiting = nominations(cluster)
    return placement(cluster), waiting


def room_is_withheld(cluster: Cluster) -> Outcome:
    """Room of nominated pods is kept from pods of equal and lower priority, not from higher ones."""
    add_priority_class(cluster, "high", 1000)
    add_node(cluster, "n1", cpu="2")
    add_pod(cluster, "seated", cpu="1500m", nodeSelector={"nowhere": "yes"})
    cluster.settle()
    nominate(cluster, "seated", "n1")
    cluster.settle()
    add_pod(cluster, "equal", cpu="600m")
    cluster.settle()
    add_pod(cluster, "high", cpu="600m", priority_class="high")
    cluster.settle()
    add_pod(cluster, "small", cpu="400m")
    cluster.settle()
    return placement(cluster), nominations(cluster)


def a_failed_try_clears_the_nomination(cluster: Cluster) -> Outcome:
    """It clears it and retries those that had yielded; a pod that may not preempt keeps its nomination."""
    add_priority_class(cluster, "never", 0, preemptionPolicy="Never")
    add_node(cluster, "n1", cpu="2")
    add_node(cluster, "n2", cpu="4", held=True)
    add_pod(cluster, "large", cpu="3")
    add_pod(cluster, "polite", cpu="3", priority_class="never")
    cluster.settle()
    nominate(cluster, "large", "n1")
    nominate(cluster, "polite", "n2")
    cluster.settle()
    add_pod(cluster, "yields", cpu="500m")
    cluster.settle()
    before = placement(cluster), nominations(cluster)
    add_node(cluster, "n3", cpu="8", held=True)  # large enough for both, so both are tried, without success
    cluster.settle()
    return before, placement(cluster), nominations(cluster)


def a_nomination_alone_retries_nobody(cluster: Cluster) -> Outcome:
    """A nomination that is set for a waiting pod doesn't let the scheduler try it, and a heartbeat neither."""
    add_node(cluster, "n1", cpu="1")
    add_pod(cluster, "large", cpu="3")
    cluster.settle()
    nominate(cluster, "large", "n1")
    cluster.store.patch(kinds.NODES, "n1", {"metadata": {"annotations": {"a": "b"}}}, patch_type="merge")
    cluster.settle()
    cluster.wait(3)
    return nominations(cluster)


def a_nomination_to_a_missing_node_is_ignored(cluster: Cluster) -> Outcome:
    """The pod goes elsewhere."""
    add_node(cluster, "n1", held=True)
    add_pod(cluster, "pod", cpu="500m")
    cluster.settle()
    nominate(cluster, "pod", "gone")
    release(cluster, "n1")
    cluster.settle()
    return placement(cluster), nominations(cluster)


def nominated_pods_count_for_anti_affinity_and_spread(cluster: Cluster) -> Outcome:
    """A nominated pod keeps away pods that its terms, or theirs, don't let share its domain."""
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
    add_node(cluster, "n1", cpu="2", zone="a")
    add_node(cluster, "n2", cpu="8", zone="b")
    for name, app in (("web-0", "web"), ("db-0", "db")):
        add_pod(cluster, name, cpu="100m", labels={"app": app}, nodeSelector={"nowhere": "yes"}, affinity=anti)
    cluster.settle()
    nominate(cluster, "web-0", "n2")
    nominate(cluster, "db-0", "n2")
    cluster.settle()
    add_pod(cluster, "web-1", cpu="100m", labels={"app": "web"}, affinity=anti)
    cluster.settle()
    add_pod(cluster, "web-2", cpu="100m", labels={"app": "web"})
    cluster.settle()
    for i in range(1, 4):
        add_pod(cluster, f"db-{i}", cpu="100m", labels={"app": "db"}, topologySpreadConstraints=[spread])
        cluster.settle()
    return placement(cluster), nominations(cluster)


def a_change_of_taints_retries_pods_that_other_plugins_rejected(cluster: Cluster) -> Outcome:
    """Until 1.36 a taint that is added to any node lets pods be tried that lack room, and clears their nominations."""
    add_node(cluster, "n1", cpu="1")
    add_node(cluster, "n2", cpu="1")
    add_pod(cluster, "large", cpu="3")
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    add_pod(cluster, "lonely", cpu="100m", labels={"app": "db"}, affinity=anti)
    cluster.settle()
    add_pod(cluster, "web", cpu="100m", labels={"app": "web"})
    cluster.settle()
    nominate(cluster, "large", "n1")
    nominate(cluster, "web", "n1")
    cluster.settle()
    before = nominations(cluster)
    taint = {"key": "team", "effect": "NoSchedule"}
    cluster.store.patch(kinds.NODES, "n2", {"spec": {"taints": [taint]}}, patch_type="merge")
    cluster.settle()
    return before, nominations(cluster), sorted(name for name, node in placement(cluster).items() if not node)


def a_new_node_for_a_pod_that_only_others_anti_affinity_keeps_away(cluster: Cluster) -> Outcome:
    """Until 1.36 the node's taint that goes retries the pod. Later it waits until its own labels change."""
    apart = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOSTNAME}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    add_node(cluster, "n1", cpu="4")
    add_pod(cluster, "lonely", cpu="100m", labels={"app": "web"}, affinity=anti)
    cluster.settle()
    add_pod(cluster, "db", cpu="100m", labels={"app": "db"})
    cluster.settle()
    add_node(cluster, "n2", cpu="4", held=True)
    cluster.settle()
    nominate(cluster, "db", "n2")
    release(cluster, "n2")
    cluster.settle()
    cluster.wait(3)
    outcomes = [placement(cluster), nominations(cluster)]
    labels = {"metadata": {"labels": {"tried": "again"}}}
    cluster.store.patch(kinds.PODS, "db", labels, namespace="default", subresource="status", patch_type="merge")
    cluster.settle()
    return [*outcomes, placement(cluster)]


def leftovers_wait_for_what_concerns_them(cluster: Cluster) -> Outcome:
    """Labels, taints, room and affinity that come later retry exactly the pods that they concern."""
    add_node(cluster, "n1", cpu="1", taints=[{"key": "team", "effect": "NoSchedule"}])
    near = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": ZONE}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    add_pod(cluster, "needs-label", cpu="100m", nodeSelector={"disk": "ssd"})
    add_pod(cluster, "needs-room", cpu="2")
    add_pod(cluster, "needs-friend", cpu="100m", affinity=affinity)
    cluster.settle()
    outcomes = [placement(cluster)]
    for patch in (
        {"metadata": {"labels": {"disk": "ssd"}}},
        {"spec": {"taints": None}},
        {"spec": {"unschedulable": True}},
    ):
        cluster.store.patch(kinds.NODES, "n1", patch, patch_type="merge")
        cluster.settle()
        outcomes.append(placement(cluster))
    add_node(cluster, "n2", cpu="4")
    cluster.settle()
    outcomes.append(placement(cluster))
    add_pod(cluster, "friend", cpu="100m", labels={"app": "cache"})
    cluster.settle()
    return [*outcomes, placement(cluster)]


PROBLEMS: list[Problem] = [
    sizes,
    pods_without_requests,
    deployments_are_spread,
    soft_rules,
    priority_goes_first,
    a_nominated_node_is_taken,
    room_is_withheld,
    a_failed_try_clears_the_nomination,
    a_nomination_alone_retries_nobody,
    a_nomination_to_a_missing_node_is_ignored,
    nominated_pods_count_for_anti_affinity_and_spread,
    a_change_of_taints_retries_pods_that_other_plugins_rejected,
    a_new_node_for_a_pod_that_only_others_anti_affinity_keeps_away,
    leftovers_wait_for_what_concerns_them,
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.__name__)
def test_both_schedulers_decide_alike(real: RealCluster, problem: Problem) -> None:
    embedded = [problem(EmbeddedCluster(seed, version=real.version)) for seed in SEEDS]
    real.clear()
    outcome = problem(real)
    assert outcome in embedded


SIZES_OF_DEPLOYMENTS = [(100 + 50 * (i % 7), 400 + 300 * (i % 9)) for i in range(12)]
"""Millicores and MiB of a pod of each Deployment."""
NODE = (3900, 15000)
REPLICAS = 6
PATCH_SECONDS = 0.008
"""How long a patch takes; the embedded cluster's time doesn't pass by itself."""


def planned_nodes() -> list[Counter[str]]:
    """The pods of each node by Deployment: the largest first, each on the first node with room."""
    pods = [(i, *size) for i, size in enumerate(SIZES_OF_DEPLOYMENTS) for _ in range(REPLICAS)]
    free: list[list[int]] = []
    planned: list[Counter[str]] = []
    for i, cpu, memory in sorted(pods, key=lambda pod: -(pod[1] / NODE[0] + pod[2] / NODE[1])):
        place = next((at for at, room in enumerate(free) if room[0] >= cpu and room[1] >= memory), len(free))
        if place == len(free):
            free.append(list(NODE))
            planned.append(Counter())
        free[place][0] -= cpu
        free[place][1] -= memory
        planned[place][f"app-{i}"] += 1
    return planned


def pods_as_planned(cluster: Cluster, *, nominated: bool, seconds_between: float) -> int:
    """How many pods run on the nodes planned for them, which open one after another."""
    planned = planned_nodes()
    for i in range(len(planned)):
        add_node(cluster, f"n{i}", cpu=f"{NODE[0]}m", memory=f"{NODE[1]}Mi", zone="abc"[i % 3], held=True)
    for i, (cpu, memory) in enumerate(SIZES_OF_DEPLOYMENTS):
        add_deployment(cluster, f"app-{i}", REPLICAS, cpu=f"{cpu}m", memory=f"{memory}Mi")
    cluster.wait(2)
    cluster.settle()
    for i, wanted in enumerate(planned):
        if nominated:
            nominate_pods(cluster, f"n{i}", wanted)
        release(cluster, f"n{i}")
        cluster.wait(seconds_between)
    cluster.settle()
    placed = Counter((node, name.rpartition("-")[0].rpartition("-")[0]) for name, node in placement(cluster).items())
    return sum(min(placed[f"n{i}", app], count) for i, wanted in enumerate(planned) for app, count in wanted.items())


def nominate_pods(cluster: Cluster, node: str, wanted: Counter[str]) -> None:
    left = Counter(wanted)
    for pod in cluster.store.list(kinds.PODS):
        app = pod["metadata"]["labels"]["app"]
        if left[app] and not pod["spec"].get("nodeName") and not pod["status"].get("nominatedNodeName"):
            left[app] -= 1
            with suppress(ApiError):  # bound meanwhile
                nominate(cluster, pod["metadata"]["name"], node)
            if isinstance(cluster, EmbeddedCluster):
                cluster.wait(PATCH_SECONDS)


@pytest.mark.parametrize(("nominated", "seconds_between"), [(False, 0.3), (True, 0.3), (True, 1.5)])
def test_as_many_pods_run_as_planned(real: RealCluster, *, nominated: bool, seconds_between: float) -> None:
    pods = len(SIZES_OF_DEPLOYMENTS) * REPLICAS
    embedded = [
        pods_as_planned(
            EmbeddedCluster(seed, version=real.version), nominated=nominated, seconds_between=seconds_between
        )
        for seed in SEEDS
    ]
    real.clear()
    placed = pods_as_planned(real, nominated=nominated, seconds_between=seconds_between)
    # Two runs of the real scheduler differ by as much.
    margin = pods // 4
    assert min(embedded) - margin <= placed <= max(embedded) + margin
