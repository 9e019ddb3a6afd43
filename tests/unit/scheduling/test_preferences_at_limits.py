"""Preferences where a NodePool's limits leave pods out: they leave no further pod out, and count for all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
Decide = Callable[[dict[str, Any]], dict[str, Any]]


def on_demand_pool(clusters: ModuleType, *, cpu: str) -> dict[str, Any]:
    on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    pool: dict[str, Any] = clusters.pool(requirements=[on_demand], limits={"cpu": cpu})
    return pool


def test_a_preferred_spread_leaves_no_pod_out_that_runs_without_it(decide: Decide, clusters: ModuleType) -> None:
    # a node of 8 CPUs runs three; one for each zone would have 4 CPUs and run one, and there is a limit of two
    spread = {
        "topologySpreadConstraints": [
            {
                "labelSelector": {"matchLabels": {"app": "a"}},
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ]
    }
    pods = clusters.pods("a", 4, cpu="2", memory="64Mi", **spread)
    decision = decide(clusters.document(on_demand_pool(clusters, cpu="8"), pods))
    assert sorted(len(c["pods"]) for c in decision["nodeClaims"]) == [3]
    assert len(decision["errors"]) == 1


def test_pods_that_have_a_node_keep_their_preference_while_others_are_left_out(
    decide: Decide, clusters: ModuleType
) -> None:
    expression = {"key": ZONE, "operator": "In", "values": ["z-c"]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    pods = clusters.pods("a", 3, cpu="3500m", affinity=affinity)
    decision = decide(clusters.document(on_demand_pool(clusters, cpu="8"), pods))
    assert len(decision["errors"]) == 1
    zones = [r["values"] for c in decision["nodeClaims"] for r in c["requirements"] if r["key"] == ZONE]
    assert zones == [["z-c"]]
