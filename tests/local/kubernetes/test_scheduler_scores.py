"""The scores of kube-scheduler's default profile, against numbers worked out by hand from its formulas."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from local.kubernetes.conversion import convert
from local.kubernetes.scheduler.cache import Cache
from local.kubernetes.scheduler.node_info import NodeInfo, PodInfo
from local.kubernetes.scheduler.pod_counts import PodSelector
from local.kubernetes.scheduler.pod_signature import PodSignature, signature_of
from local.kubernetes.scheduler.scheduling_cycle import NodeSearch, SchedulingCycle, feasible_nodes_to_find
from local.kubernetes.scheduler.score_plugins import NodeScores, balanced_allocation, least_allocated, normalized
from local.kubernetes.scheduler.volume_plugins import VolumeBinder
from local.kubernetes.scheduler.workload_selectors import WorkloadSelectors
from shared.api.kubernetes import Node, Pod
from shared.api.meta import LabelSelector

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(name: str = "n1", *, cpu: str = "4", memory: str = "8Gi", zone: str = "a", **more: Any) -> Node:
    labels = {HOST: name, ZONE: zone, **more.pop("labels", {})}
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    return convert(
        {"metadata": {"name": name, "labels": labels}, "spec": more, "status": {"allocatable": allocatable}}, Node
    )


def pod(*, app: str = "web", requests: dict[str, str] | None = None, **spec: Any) -> PodSignature:
    container = {"name": "main", "resources": {"requests": requests or {}}}
    meta = {"name": "pod", "namespace": "default", "labels": {"app": app}}
    return signature_of(convert({"metadata": meta, "spec": {"containers": [container], **spec}}, Pod))


def node_info(*pods: PodSignature, **size: str) -> NodeInfo:
    info = NodeInfo(node(**size), 1)
    for i, signature in enumerate(pods):
        info.add_pod(PodInfo(f"uid-{i}", signature))
    return info


def cluster(*nodes: Node, pods: dict[str, list[PodSignature]] | None = None) -> Cache:
    cache = Cache()
    cache.namespaces["default"] = {}
    for each in nodes:
        cache.update_node(each)
    for name, signatures in (pods or {}).items():
        for i, signature in enumerate(signatures):
            cache.add_pod(name, PodInfo(f"{name}-{i}", signature))
    return cache


def scores(signature: PodSignature, cache: Cache, *selectors: PodSelector) -> list[int]:
    """The scores beyond those of resources, which are the same for all of the cache's equal nodes."""
    plugins = NodeScores(signature, cache, selectors)
    for name, info in cache.nodes.items():
        plugins.update_node(name, info, is_feasible=True)
    infos = list(cache.nodes.values())
    resources = [least_allocated(signature, info) + balanced_allocation(signature, info) for info in infos]
    return [score - own for score, own in zip(plugins.scores(infos), resources, strict=True)]


def test_least_allocated_is_the_mean_of_free_cpu_and_memory() -> None:
    used = pod(requests={"cpu": "1", "memory": "1Gi"})
    # cpu: (4000 - 1000 - 500) x 100 / 4000 = 62; memory: (8 - 1 - 2) x 100 / 8 = 62; mean 62
    assert least_allocated(pod(requests={"cpu": "500m", "memory": "2Gi"}), node_info(used)) == 62
    # cpu: 2600 x 100 / 4000 = 65; memory: 7 x 100 / 8 = 87; mean 76
    assert least_allocated(pod(requests={"cpu": "400m", "memory": "0"}), node_info(used)) == 76


def test_missing_requests_count_100m_and_200mi_for_each_container() -> None:
    two = pod(containers=[{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "300m"}}}])
    assert two.requests_for_scoring == {"cpu": 400, "memory": 400 * 2**20}
    # cpu: (4000 - 400 - 400) / 40 = 80; memory: (8192 - 400 - 400) x 100 / 8192 = 90; mean 85
    assert least_allocated(two, node_info(two)) == 85


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        # Before: shares 25 % and 50 %: (1 - 0.125) x 100 = 87. After 50 % and 50 %: 100. 50 + (50 + 13) / 2 = 81
        ({"cpu": "1"}, 81),
        # After 25 % and 75 %: 75. 50 + (50 - 12) / 2 = 69
        ({"memory": "2Gi"}, 69),
        # After 50 % and 75 %: 87. 50 + 50 / 2 = 75
        ({"cpu": "1", "memory": "2Gi"}, 75),
        ({}, 0),
    ],
)
def test_balanced_allocation_rewards_what_makes_shares_more_equal(requests: dict[str, str], expected: int) -> None:
    used = pod(requests={"cpu": "1", "memory": "4Gi"})
    assert balanced_allocation(pod(requests=requests), node_info(used)) == expected


def test_scores_are_normalized_to_the_highest() -> None:
    assert normalized([0, 1, 3]) == [0, 33, 100]
    assert normalized([0, 0]) == [0, 0]


def test_soft_taints_weigh_three() -> None:
    taints = [{"key": key, "effect": "PreferNoSchedule"} for key in ("a", "b")]
    cache = cluster(node("n1"), node("n2", taints=taints[:1]), node("n3", taints=taints))
    assert scores(pod(), cache) == [300, 150, 0]
    assert scores(pod(tolerations=[{"key": "b", "operator": "Exists"}]), cache) == [300, 0, 0]


def test_preferred_node_affinity_weighs_two() -> None:
    def prefers(key: str, weight: int) -> dict[str, Any]:
        return {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}

    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefers("x", 30), prefers("y", 60)]}
    }
    cache = cluster(node("n1", labels={"x": ""}), node("n2", labels={"y": ""}), node("n3"))
    assert scores(pod(affinity=affinity), cache) == [2 * 50, 2 * 100, 0]


def test_pods_of_a_workload_are_spread_by_default_over_hosts_and_zones() -> None:
    web = pod()
    cache = cluster(
        node("n1", zone="a"), node("n2", zone="a"), node("n3", zone="b"), pods={"n1": [web, web], "n2": [web]}
    )
    selector = PodSelector(frozenset(["default"]), LabelSelector(match_labels={"app": "web"}))
    host, zone = math.log(3 + 2), math.log(2 + 2)
    raw = [round(2 * host + 2 + 3 * zone + 4), round(host + 2 + 3 * zone + 4), (2 + 4)]
    assert raw == [13, 12, 6]
    # 100 x (13 + 6 - raw) / 13, twice
    assert scores(web, cache, selector) == [2 * 46, 2 * 53, 2 * 100]
    assert scores(web, cache) == [0, 0, 0]


def test_own_soft_constraints_replace_the_default_ones_and_need_their_key() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "rack",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    web = pod(topologySpreadConstraints=[spread])
    cache = cluster(
        node("n1", labels={"rack": "1"}), node("n2", labels={"rack": "2"}), node("n3"), pods={"n1": [web], "n3": [web]}
    )
    # ln(2 + 2) x 1 rounds to 1 on n1, 0 on n2; 100 x (1 + 0 - raw) / 1, twice; n3 has no rack
    assert scores(web, cache) == [0, 200, 0]


def test_affinity_counts_own_preferences_and_terms_of_existing_pods() -> None:
    def term(app: str) -> dict[str, Any]:
        return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}

    preferred, required = (
        "preferredDuringSchedulingIgnoredDuringExecution",
        "requiredDuringSchedulingIgnoredDuringExecution",
    )
    db = pod(app="db")
    wants_web = pod(app="near", affinity={"podAffinity": {required: [term("web")]}})
    shuns_web = pod(
        app="far", affinity={"podAntiAffinity": {preferred: [{"weight": 40, "podAffinityTerm": term("web")}]}}
    )
    likes_db = pod(affinity={"podAffinity": {preferred: [{"weight": 9, "podAffinityTerm": term("db")}]}})
    cache = cluster(
        node("n1"), node("n2"), node("n3"), node("n4"), pods={"n1": [db], "n2": [wants_web], "n3": [shuns_web]}
    )
    # raw 9, 1, -40, 0: from the lowest to the highest, 100 x (raw + 40) / 49, twice
    assert scores(likes_db, cache) == [2 * 100, 2 * 83, 0, 2 * 81]
    assert scores(pod(), cache) == [2 * 97, 2 * 100, 0, 2 * 97]


def test_equal_nodes_are_chosen_at_random() -> None:
    cache = cluster(*(node(f"n{i}") for i in range(4)))
    chosen: set[str] = set()
    for seed in range(40):
        cycle = SchedulingCycle(pod(), cache, VolumeBinder(), (), search=NodeSearch(), rng=Random(seed))  # noqa: S311
        best = cycle.select_node("uid")
        assert best is not None
        chosen.add(best.name)
    assert chosen == {"n0", "n1", "n2", "n3"}


@pytest.mark.parametrize(("nodes", "expected"), [(1, 1), (99, 99), (100, 100), (300, 144), (1000, 420), (6000, 300)])
def test_large_clusters_are_searched_in_part(nodes: int, expected: int) -> None:
    assert feasible_nodes_to_find(nodes) == expected


def test_the_search_goes_on_where_it_ended_and_takes_zones_in_turn() -> None:
    cache = cluster(*(node(f"n{i}", zone="ab"[i >= 100], cpu=str(4 + i)) for i in range(200)))
    assert [info.name for info in cache.nodes_in_order[:4]] == ["n0", "n100", "n1", "n101"]
    search = NodeSearch()
    cycle = SchedulingCycle(
        pod(requests={"cpu": "1"}),
        cache,
        VolumeBinder(),
        (),
        search=search,
        rng=Random(0),  # noqa: S311
    )
    # The first 100 in order are n0-n49 and n100-n149, then the others follow.
    first, second = cycle.select_node("a"), cycle.select_node("b")
    assert first is not None
    assert second is not None
    halves = [int(info.name[1:]) % 100 // 50 for info in (first, second)]
    assert (halves, search.next_start) == ([0, 1], 0)


def test_default_constraints_count_the_pods_of_the_workload_and_of_its_services() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "controller": True}
    meta = {"name": "pod", "namespace": "default", "labels": {"app": "web", "hash": "1"}, "ownerReferences": [owner]}
    owned = signature_of(convert({"metadata": meta, "spec": {"containers": [{"name": "main"}]}}, Pod))
    workloads = WorkloadSelectors()
    assert workloads.default_selectors(owned) == ()
    for kind, name, selector in (
        ("ReplicaSet", "web-1", {"matchLabels": {"hash": "1"}}),
        ("ReplicaSet", "web-2", {"matchLabels": {"hash": "2"}}),
        ("Service", "web", {"app": "web"}),
        ("Service", "headless", None),
    ):
        named = {"name": name, "namespace": "default"}
        workloads.update({"kind": kind, "metadata": named, "spec": {"selector": selector}}, deleted=False)
    selectors = workloads.default_selectors(owned)
    counted = [
        labels
        for labels in ({"app": "web", "hash": "1"}, {"app": "web", "hash": "2"}, {"app": "db", "hash": "1"})
        if all(selector.selects("default", labels) for selector in selectors)
    ]
    assert counted == [{"app": "web", "hash": "1"}]
    # A pod that no ReplicaSet owns is spread with all pods of its Service.
    assert len(workloads.default_selectors(pod())) == 1
