"""Annotation ``tenon.sh/spot-share``: of a workload's pods no more than its share are planned for spot capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from shared.base.struct import with_fields
from shared.scheduling.scheduler import schedule
from tests.scenarios import simulation

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]

CAPACITY_TYPE = "karpenter.sh/capacity-type"


def workload(clusters: ModuleType, name: str, count: int, share: str = "70%", **spec: Any) -> list[Raw]:
    """Pods that need a node each, of one ReplicaSet."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods: list[Raw] = clusters.pods(name, count, affinity=apart, **spec)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
    for pod in pods:
        pod["metadata"].update(ownerReferences=[{**owner}], annotations={"tenon.sh/spot-share": share})
    return pods


def running_on(clusters: ModuleType, pods: list[Raw], capacity_type: str) -> list[Raw]:
    """A node for each pod, full of it."""
    nodes = []
    for pod in pods:
        node: Raw = clusters.node(f"of-{pod['metadata']['name']}", cpu=1, memory=2)
        node["metadata"]["labels"][CAPACITY_TYPE] = capacity_type
        pod["spec"]["nodeName"] = node["metadata"]["name"]
        pod["status"] = {"phase": "Running"}
        nodes.append(node)
    return nodes


def capacity_types(decision: Raw) -> Counter[str]:
    """How many pods the new nodes of each capacity type get."""
    return Counter(c["cheapest"]["capacityType"] for c in decision["nodeClaims"] for _ in c["pods"])


@pytest.mark.parametrize(
    ("count", "share", "spot"),
    [(10, "70%", 7), (3, "50%", 1), (1, "70%", 0), (4, "0%", 0), (4, "100%", 4), (4, "99%", 3)],
)
def test_at_most_the_share_is_spot_rounded_down(
    decide: Decide, clusters: ModuleType, count: int, share: str, spot: int
) -> None:
    decision = decide(clusters.document(clusters.pool(), workload(clusters, "web", count, share)))
    assert capacity_types(decision) == Counter({k: n for k, n in (("spot", spot), ("on-demand", count - spot)) if n})


def test_an_on_demand_node_may_not_come_up_as_spot(decide: Decide, clusters: ModuleType) -> None:
    both = {"key": CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}
    pool = clusters.pool(requirements=[both])
    decision = decide(clusters.document(pool, workload(clusters, "web", 2, "50%")))
    allowed = {
        c["cheapest"]["capacityType"]: next(r["values"] for r in c["requirements"] if r["key"] == CAPACITY_TYPE)
        for c in decision["nodeClaims"]
    }
    assert {kind: sorted(values) for kind, values in allowed.items()} == {
        "spot": ["on-demand", "spot"],
        "on-demand": ["on-demand"],
    }


@pytest.mark.parametrize(("on_spot", "on_demand", "new_spot"), [(7, 0, 0), (6, 1, 1), (0, 3, 7), (9, 0, 0)])
def test_what_runs_already_uses_up_the_share(
    decide: Decide, clusters: ModuleType, on_spot: int, on_demand: int, new_spot: int
) -> None:
    pods = workload(clusters, "web", 10)
    nodes = running_on(clusters, pods[:on_spot], "spot")
    nodes += running_on(clusters, pods[on_spot : on_spot + on_demand], "on-demand")
    decision = decide(clusters.document(clusters.pool(), *nodes, pods))
    assert capacity_types(decision)["spot"] == new_spot
    assert not decision["errors"]


@pytest.mark.parametrize(("leaving", "capacity_type"), [("on-demand", "on-demand"), ("spot", "spot")])
def test_a_pod_that_moves_stays_within_the_share(clusters: ModuleType, leaving: str, capacity_type: str) -> None:
    """As where consolidation or an interruption takes its node."""
    pods = workload(clusters, "web", 4, "50%")
    nodes = [*running_on(clusters, pods[:2], "spot"), *running_on(clusters, pods[2:], "on-demand")]
    node = next(n for n in nodes if n["metadata"]["labels"][CAPACITY_TYPE] == leaving)
    problem = simulation.simulation_input(clusters.document(clusters.pool(), *nodes, pods)).problem
    decision = schedule(with_fields(problem, leaving=frozenset({node["metadata"]["name"]}), pods=None))
    assert [c.cheapest.capacity_type for c in decision.new_node_claims] == [capacity_type]


def test_workloads_have_their_own_shares_and_others_are_free(decide: Decide, clusters: ModuleType) -> None:
    pods = workload(clusters, "web", 12, "25%")
    for pod in pods[4:8]:
        pod["metadata"]["ownerReferences"][0] = {**pod["metadata"]["ownerReferences"][0], "name": "second"}
        pod["metadata"]["annotations"] = {"tenon.sh/spot-share": "75%"}
    for pod in pods[8:]:
        pod["metadata"] = {k: v for k, v in pod["metadata"].items() if k != "annotations"}
        pod["metadata"]["ownerReferences"] = [{**pods[0]["metadata"]["ownerReferences"][0], "name": "third"}]
    decision = decide(clusters.document(clusters.pool(), pods))
    assert capacity_types(decision) == {"spot": 1 + 3 + 4, "on-demand": 3 + 1}


def test_room_on_a_spot_node_is_not_for_pods_beyond_the_share(decide: Decide, clusters: ModuleType) -> None:
    spot = clusters.node("roomy", cpu=16, memory=64, labels={CAPACITY_TYPE: "spot"})
    pods = workload(clusters, "web", 4, "50%")
    for pod in pods:
        del pod["spec"]["affinity"]
    decision = decide(clusters.document(clusters.pool(), spot, pods))
    assert len(decision["existingNodes"]["roomy"]) == 2
    assert capacity_types(decision) == {"on-demand": 2}


def test_without_spot_capacity_all_run_on_demand(decide: Decide, clusters: ModuleType) -> None:
    only = {"key": CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}
    decision = decide(clusters.document(clusters.pool(requirements=[only]), workload(clusters, "web", 4)))
    assert capacity_types(decision) == {"on-demand": 4}


def test_without_on_demand_capacity_the_rest_waits_with_the_reason(decide: Decide, clusters: ModuleType) -> None:
    only = {"key": CAPACITY_TYPE, "operator": "In", "values": ["spot"]}
    decision = decide(clusters.document(clusters.pool(requirements=[only]), workload(clusters, "web", 4, "50%")))
    assert capacity_types(decision) == {"spot": 2}
    assert set(decision["errors"]) == {"default/web-0002", "default/web-0003"}
    assert all(f"{CAPACITY_TYPE} NotIn spot" in why for why in decision["errors"].values())


def test_pods_that_require_spot_themselves_have_it(decide: Decide, clusters: ModuleType) -> None:
    pods = workload(clusters, "web", 4, "50%", nodeSelector={CAPACITY_TYPE: "spot"})
    assert capacity_types(decide(clusters.document(clusters.pool(), pods))) == {"spot": 4}


def test_a_spread_counts_pods_on_all_nodes_as_kube_scheduler_does(decide: Decide, clusters: ModuleType) -> None:
    """The checker judges the spread by the pods' own rules alone."""
    rule = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
    }
    pods = workload(clusters, "web", 9, "30%", topologySpreadConstraints=[rule])
    decision = decide(clusters.document(clusters.pool(), pods))
    assert capacity_types(decision) == {"spot": 2, "on-demand": 7}


@pytest.mark.parametrize("share", ["70", "0.7", "101%", "-5%", "", "many"])
def test_an_invalid_share_is_ignored(decide: Decide, clusters: ModuleType, share: str) -> None:
    assert capacity_types(decide(clusters.document(clusters.pool(), workload(clusters, "web", 4, share)))) == {
        "spot": 4
    }


def test_a_pod_without_a_controller_has_no_share(decide: Decide, clusters: ModuleType) -> None:
    pods = workload(clusters, "web", 2, "0%")
    for pod in pods:
        del pod["metadata"]["ownerReferences"]
    assert capacity_types(decide(clusters.document(clusters.pool(), pods))) == {"spot": 2}
