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


def total(answer: dict[str, Any]) -> float:
    return float(sum(c["cheapest"]["price"] for c in answer["nodeClaims"]))


def test_plain_pods_get_the_cheapest_machines_and_keep_a_choice_of_types(decide: Decide, world: ModuleType) -> None:
    answer = decide(world.document(world.pool(), world.pods("web", 10)))
    assert not answer["errors"]
    assert total(answer) == pytest.approx(0.0864, rel=0.2)
    assert all(len(c["instanceTypes"]) > 1 for c in answer["nodeClaims"])


def test_zonal_spread_is_even_and_every_claim_is_in_one_zone(decide: Decide, world: ModuleType) -> None:
    answer = decide(world.document(world.pool(), world.pods("web", 11, **spread("web"))))
    assert not answer["errors"]
    zones = [next(r["values"] for r in c["requirements"] if r["key"] == ZONE) for c in answer["nodeClaims"]]
    assert {len(z) for z in zones} == {1}


def test_pods_that_avoid_each_other_get_a_host_each(decide: Decide, world: ModuleType) -> None:
    answer = decide(world.document(world.pool(), world.pods("db", 7, **affinity("podAntiAffinity", "db", HOST))))
    assert [len(c["pods"]) for c in answer["nodeClaims"]] == [1] * 7


def test_pods_that_need_each_other_share_a_host(decide: Decide, world: ModuleType) -> None:
    answer = decide(world.document(world.pool(), world.pods("pair", 6, **affinity("podAffinity", "pair", HOST))))
    assert [len(c["pods"]) for c in answer["nodeClaims"]] == [6]


def test_followers_go_to_the_zone_of_their_leader(decide: Decide, world: ModuleType) -> None:
    leader = world.pods("leader", 1, nodeSelector={ZONE: "z-b"})
    answer = decide(world.document(world.pool(), leader, world.pods("f", 5, **affinity("podAffinity", "leader", ZONE))))
    assert {c["cheapest"]["zone"] for c in answer["nodeClaims"]} == {"z-b"}


def test_a_zonal_anti_affinity_places_one_a_zone_and_refuses_the_rest(decide: Decide, world: ModuleType) -> None:
    answer = decide(world.document(world.pool(), world.pods("q", 5, **affinity("podAntiAffinity", "q", ZONE))))
    assert len(answer["errors"]) == 2
    assert all("anti-affinity" in reason for reason in answer["errors"].values())


def test_a_heavier_pool_goes_first_whatever_its_price(decide: Decide, world: ModuleType) -> None:
    dear = world.pool(
        "dear",
        weight=50,
        requirements=[{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
    )
    answer = decide(world.document(world.pool("cheap"), dear, world.pods("web", 4)))
    assert {c["nodePool"] for c in answer["nodeClaims"]} == {"dear"}


def test_limits_hold_for_the_largest_type_of_each_claim(decide: Decide, world: ModuleType) -> None:
    answer = decide(world.document(world.pool(limits={"cpu": "8"}), world.pods("web", 40)))
    assert 0 < len(answer["errors"]) < 40
    assert all("limit" in reason for reason in answer["errors"].values())


def test_min_values_keep_as_many_families(decide: Decide, world: ModuleType) -> None:
    many = [{"key": "karpenter.k8s.aws/instance-family", "operator": "Exists", "minValues": 3}]
    answer = decide(world.document(world.pool(requirements=many), world.pods("web", 9)))
    assert all(len({t.split(".")[0] for t in c["instanceTypes"]}) == 3 for c in answer["nodeClaims"])


def test_a_preference_is_kept_where_it_can_be_and_given_up_where_not(decide: Decide, world: ModuleType) -> None:
    def prefers(zone: str) -> dict[str, Any]:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        term = {"weight": 1, "preference": {"matchExpressions": [expression]}}
        return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}

    kept = decide(world.document(world.pool(), world.pods("web", 3, **prefers("z-c"))))
    assert {c["cheapest"]["zone"] for c in kept["nodeClaims"]} == {"z-c"}
    given_up = decide(world.document(world.pool(), world.pods("web", 3, **prefers("z-q"))))
    assert not given_up["errors"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodeSelector": {"kubernetes.io/arch": "s390x"}}, "kubernetes.io/arch In s390x"),
        ({"nodeSelector": {"example.com/nope": "x"}}, "label example.com/nope has no known values"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]}, "not found"),
        ({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE}]}, "no labelSelector"),
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
def test_a_pod_that_has_no_place_is_told_why_and_the_rest_is_placed(
    decide_unchecked: Decide, world: ModuleType, spec: dict[str, Any], words: str
) -> None:
    bad = world.pods("bad", 1)
    bad[0]["spec"].update(spec)
    answer = decide_unchecked(world.document(world.pool(), bad, world.pods("good", 3)))
    assert list(answer["errors"]) == ["default/bad-0000"]
    assert words in answer["errors"]["default/bad-0000"]


def test_a_pool_with_an_unknown_operator_is_left_out_and_the_others_serve(
    decide_unchecked: Decide, world: ModuleType
) -> None:
    bad = world.pool("bad", weight=100, requirements=[{"key": ZONE, "operator": "Near", "values": ["z-a"]}])
    answer = decide_unchecked(world.document(bad, world.pool("good"), world.pods("web", 3)))
    assert {c["nodePool"] for c in answer["nodeClaims"]} == {"good"}


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
    world: ModuleType, apps: list[tuple[str, int, str, str, int]], order: random.Random | None = None
) -> dict[str, Any]:
    made = [world.pool("a"), world.pool("b", weight=10, taints=[{"key": "k", "effect": "NoSchedule"}])]
    for app, count, cpu, memory, rule in apps:
        made += world.pods(app, count, cpu, memory, **_rules(app, rule))
    document: dict[str, Any] = world.document(made)
    if order is not None:
        order.shuffle(document["objects"])
        document["instanceTypes"] = order.sample(document["instanceTypes"], len(document["instanceTypes"]))
    return document


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(apps=objects(), seed=st.integers(0, 1000))
def test_any_mix_is_placed_rightly_and_alike_in_any_order(
    decide: Decide, world: ModuleType, apps: list[tuple[str, int, str, str, int]], seed: int
) -> None:
    plain = decide(_document(world, apps))
    shuffled = decide(_document(world, apps, random.Random(seed)))  # noqa: S311 (a shuffle)
    assert plain == shuffled


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.tuples(st.integers(100, 3500), st.integers(128, 6000)), min_size=1, max_size=30))
def test_never_dearer_than_first_fit(decide: Decide, world: ModuleType, sizes: list[tuple[int, int]]) -> None:
    made = [p for i, (cpu, memory) in enumerate(sizes) for p in world.pods(f"p{i}", 1, f"{cpu}m", f"{memory}Mi")]
    answer = decide(world.document(world.pool(), made))
    assert not answer["errors"]
    assert total(answer) <= _first_fit(world, sizes) + 1e-9


def _first_fit(world: ModuleType, sizes: list[tuple[int, int]]) -> float:
    """Largest first into the first open machine that any type can still be; each costs the cheapest that holds it."""
    machines = [
        (
            int(t["capacity"]["cpu"]) * 1000 - 100,
            int(t["capacity"]["memory"][:-2]) * 1024 - 256,
            min(o["price"] for o in t["offerings"]),
        )
        for t in world.TYPES
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
