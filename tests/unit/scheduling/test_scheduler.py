from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
Decide = Callable[[dict[str, Any]], dict[str, Any]]


def spread(app: str, key: str = ZONE, **more: object) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}
    return {"topologySpreadConstraints": [rule]}


def affinity(kind: str, app: str, key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def total(decision: dict[str, Any]) -> float:
    return float(sum(c["cheapest"]["price"] for c in decision["nodeClaims"]))


def test_pods_without_rules_get_the_cheapest_nodes_and_several_instance_types(
    decide: Decide, clusters: ModuleType
) -> None:
    decision = decide(clusters.document(clusters.pool(), clusters.pods("web", 10)))
    assert not decision["errors"]
    assert total(decision) == pytest.approx(0.0864, rel=0.2)
    assert all(len(c["instanceTypes"]) > 1 for c in decision["nodeClaims"])


def bare_metal(clusters: ModuleType, price: float) -> dict[str, Any]:
    """An instance type like the largest, but bare metal and cheaper."""
    largest = max(clusters.TYPES, key=lambda t: int(t["capacity"]["cpu"]))
    offerings = [{**o, "price": price} for o in largest["offerings"]]
    return {**largest, "name": "m5.metal", "offerings": offerings}


def test_bare_metal_is_planned_only_where_no_other_type_will_do(decide: Decide, clusters: ModuleType) -> None:
    raw = clusters.document(clusters.pool(), clusters.pods("web", 10))
    raw["instanceTypes"] = [*clusters.TYPES, bare_metal(clusters, 0.05)]
    assert {c["cheapest"]["instanceType"] for c in decide(raw)["nodeClaims"]} != {"m5.metal"}
    selector = {"node.kubernetes.io/instance-type": "m5.metal"}
    required = clusters.document(clusters.pool(), clusters.pods("web", 1, nodeSelector=selector))
    required["instanceTypes"] = raw["instanceTypes"]
    (claim,) = decide(required)["nodeClaims"]
    assert (claim["cheapest"]["instanceType"], claim["cheapest"]["price"]) == ("m5.metal", pytest.approx(0.05))


def test_zonal_spread_is_even_and_every_nodeclaim_has_one_zone(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool(), clusters.pods("web", 11, **spread("web"))))
    assert not decision["errors"]
    zones = [next(r["values"] for r in c["requirements"] if r["key"] == ZONE) for c in decision["nodeClaims"]]
    assert {len(z) for z in zones} == {1}


def test_pods_with_host_anti_affinity_get_a_host_each(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(
        clusters.document(clusters.pool(), clusters.pods("db", 7, **affinity("podAntiAffinity", "db", HOST)))
    )
    assert [len(c["pods"]) for c in decision["nodeClaims"]] == [1] * 7


def test_pods_with_host_affinity_share_a_host(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(
        clusters.document(clusters.pool(), clusters.pods("pair", 6, **affinity("podAffinity", "pair", HOST)))
    )
    assert [len(c["pods"]) for c in decision["nodeClaims"]] == [6]


def test_pods_with_zone_affinity_go_to_the_zone_of_the_pods_they_select(decide: Decide, clusters: ModuleType) -> None:
    leader = clusters.pods("leader", 1, nodeSelector={ZONE: "z-b"})
    decision = decide(
        clusters.document(clusters.pool(), leader, clusters.pods("f", 5, **affinity("podAffinity", "leader", ZONE)))
    )
    assert {c["cheapest"]["zone"] for c in decision["nodeClaims"]} == {"z-b"}


def test_zonal_anti_affinity_schedules_one_pod_in_each_zone(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(
        clusters.document(clusters.pool(), clusters.pods("q", 5, **affinity("podAntiAffinity", "q", ZONE)))
    )
    assert len(decision["errors"]) == 2
    assert all("anti-affinity" in reason for reason in decision["errors"].values())


def test_nodepools_of_greater_weight_come_first_whatever_their_price(decide: Decide, clusters: ModuleType) -> None:
    dear = clusters.pool(
        "dear",
        weight=50,
        requirements=[{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
    )
    decision = decide(clusters.document(clusters.pool("cheap"), dear, clusters.pods("web", 4)))
    assert {c["nodePool"] for c in decision["nodeClaims"]} == {"dear"}


def test_limits_hold_for_the_largest_instance_type_of_each_nodeclaim(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool(limits={"cpu": "8"}), clusters.pods("web", 40)))
    assert 0 < len(decision["errors"]) < 40
    assert all("limit" in reason for reason in decision["errors"].values())


def test_min_values_keep_enough_instance_families(decide: Decide, clusters: ModuleType) -> None:
    many = [{"key": "karpenter.k8s.aws/instance-family", "operator": "Exists", "minValues": 3}]
    decision = decide(clusters.document(clusters.pool(requirements=many), clusters.pods("web", 9)))
    assert all(len({t.split(".")[0] for t in c["instanceTypes"]}) == 3 for c in decision["nodeClaims"])


def test_a_preference_is_kept_if_possible_and_relaxed_if_not(decide: Decide, clusters: ModuleType) -> None:
    def prefers(zone: str) -> dict[str, Any]:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        term = {"weight": 1, "preference": {"matchExpressions": [expression]}}
        return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}

    kept = decide(clusters.document(clusters.pool(), clusters.pods("web", 3, **prefers("z-c"))))
    assert {c["cheapest"]["zone"] for c in kept["nodeClaims"]} == {"z-c"}
    given_up = decide(clusters.document(clusters.pool(), clusters.pods("web", 3, **prefers("z-q"))))
    assert not given_up["errors"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodeSelector": {"kubernetes.io/arch": "s390x"}}, "kubernetes.io/arch In s390x"),
        ({"nodeSelector": {"example.com/nope": "x"}}, "label example.com/nope has no known values"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]}, "not found"),
        ({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1 core"}}}]}, '"1 core" is not a quantity'),
        (
            {"containers": [{"name": "a", "resources": {"requests": {"vpc.amazonaws.com/pod-eni": "1"}}}]},
            "none has vpc.amazonaws.com/pod-eni",
        ),
        (
            {"containers": [{"name": "a", "resources": {"requests": {"cpu": "400"}}}]},
            "none has enough cpu: requested 400",
        ),
    ],
)
def test_an_unschedulable_pod_gets_a_reason_and_the_others_are_scheduled(
    decide_unchecked: Decide, clusters: ModuleType, spec: dict[str, Any], words: str
) -> None:
    bad = clusters.pods("bad", 1)
    bad[0]["spec"].update(spec)
    decision = decide_unchecked(clusters.document(clusters.pool(), bad, clusters.pods("good", 3)))
    assert list(decision["errors"]) == ["default/bad-0000"]
    assert words in decision["errors"]["default/bad-0000"]


def test_a_nodepool_with_an_unknown_operator_is_skipped(decide_unchecked: Decide, clusters: ModuleType) -> None:
    bad = clusters.pool("bad", weight=100, requirements=[{"key": ZONE, "operator": "Near", "values": ["z-a"]}])
    decision = decide_unchecked(clusters.document(bad, clusters.pool("good"), clusters.pods("web", 3)))
    assert {c["nodePool"] for c in decision["nodeClaims"]} == {"good"}


SPECS: list[dict[str, Any]] = [
    {},
    {"nodeSelector": {ZONE: "z-b"}},
    {"nodeSelector": {"karpenter.sh/capacity-type": "on-demand"}},
    {"nodeSelector": {"kubernetes.io/arch": "arm64"}},
    {"tolerations": [{"operator": "Exists"}]},
]


@st.composite
def objects(draw: st.DrawFn) -> list[tuple[str, int, str, str, int]]:
    """Apps: name, pods, cpu, memory and which of the rules they have."""
    return [
        (
            f"app{i}",
            draw(st.integers(1, 12)),
            draw(st.sampled_from(["100m", "500m", "1", "3"])),
            draw(st.sampled_from(["128Mi", "1Gi", "6Gi"])),
            draw(st.integers(0, 9)),
        )
        for i in range(draw(st.integers(1, 5)))
    ]


def _rules(app: str, rule: int) -> dict[str, Any]:
    if rule < len(SPECS):
        return SPECS[rule]
    return [
        spread(app),
        spread(app, HOST, maxSkew=2),
        affinity("podAntiAffinity", app, HOST),
        affinity("podAffinity", app, ZONE),
        affinity("podAntiAffinity", app, ZONE),
    ][rule - len(SPECS)]


def _document(
    clusters: ModuleType, apps: list[tuple[str, int, str, str, int]], order: random.Random | None = None
) -> dict[str, Any]:
    objects = [clusters.pool("a"), clusters.pool("b", weight=10, taints=[{"key": "k", "effect": "NoSchedule"}])]
    for app, count, cpu, memory, rule in apps:
        objects += clusters.pods(app, count, cpu, memory, **_rules(app, rule))
    document: dict[str, Any] = clusters.document(objects)
    if order is not None:
        order.shuffle(document["objects"])
        document["instanceTypes"] = order.sample(document["instanceTypes"], len(document["instanceTypes"]))
    return document


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(apps=objects(), seed=st.integers(0, 1000))
def test_any_mix_is_scheduled_correctly_and_independently_of_order(
    decide: Decide, clusters: ModuleType, apps: list[tuple[str, int, str, str, int]], seed: int
) -> None:
    plain = decide(_document(clusters, apps))
    shuffled = decide(_document(clusters, apps, random.Random(seed)))  # noqa: S311 (a shuffle)
    assert plain == shuffled


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.tuples(st.integers(100, 3500), st.integers(128, 6000)), min_size=1, max_size=30))
def test_never_more_expensive_than_first_fit(
    decide: Decide, clusters: ModuleType, sizes: list[tuple[int, int]]
) -> None:
    pods = [p for i, (cpu, memory) in enumerate(sizes) for p in clusters.pods(f"p{i}", 1, f"{cpu}m", f"{memory}Mi")]
    decision = decide(clusters.document(clusters.pool(), pods))
    assert not decision["errors"]
    assert total(decision) <= _first_fit(clusters, sizes) + 1e-9


def _first_fit(clusters: ModuleType, sizes: list[tuple[int, int]]) -> float:
    """Largest first into the first open machine that any type can still be; each costs the cheapest that holds it."""
    machines = [
        (
            int(t["capacity"]["cpu"]) * 1000 - 100,
            int(t["capacity"]["memory"][:-2]) * 1024 - 256,
            min(o["price"] for o in t["offerings"]),
        )
        for t in clusters.TYPES
    ]
    bins: list[list[int]] = []
    for cpu, memory in sorted(sizes, reverse=True):
        for b in bins:
            if any(b[0] + cpu <= c and b[1] + memory <= m for c, m, _ in machines):
                b[0] += cpu
                b[1] += memory
                break
        else:
            bins.append([cpu, memory])
    return float(sum(min(p for c, m, p in machines if b[0] <= c and b[1] <= m) for b in bins))
