"""Small problems that once were answered worse than need be: dearer when prices fell, or others left out by chance."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
Decide = Callable[[dict[str, Any]], dict[str, Any]]


def total(answer: dict[str, Any]) -> float:
    return float(sum(c["cheapest"]["price"] for c in answer["nodeClaims"]))


def of_types(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    return dict(raw, instanceTypes=[t for t in raw["instanceTypes"] if t["name"] in names])


def priced(raw: dict[str, Any], factor: float, *names: str) -> dict[str, Any]:
    """The problem with the prices of some types times a factor."""
    found = copy.deepcopy(raw)
    for offering in [o for t in found["instanceTypes"] if t["name"] in names for o in t["offerings"]]:
        offering["price"] = round(offering["price"] * factor, 6)
    return found


def even(app: str, key: str = ZONE, **more: object) -> dict[str, Any]:
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": {"app": app}}}]}


def near(kind: str, app: str, key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def either(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [e]} for e in expressions]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


NOT_C1 = {"key": "karpenter.k8s.aws/instance-family", "operator": "NotIn", "values": ["c1"]}
AMD64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}


def test_a_pod_gets_the_room_that_a_limit_has_once_machines_were_made_smaller(
    decide: Decide, world: ModuleType
) -> None:
    fat = world.pods("fat", 3, cpu="250m", memory="3Gi")
    big = world.pods("big", 2, cpu="7", memory="8Gi")
    raw = world.document(world.pool(limits={"memory": "40Gi"}), fat, big, world.pods("mid", 5))
    assert not decide(of_types(raw, "c1.large", "c1.4xlarge", "g1.xlarge"))["errors"]


def test_a_cheaper_type_that_a_pod_is_too_small_for_does_not_decide_its_alternative(
    decide: Decide, world: ModuleType
) -> None:
    raw = world.document(world.pool(), world.pods("web", 1, cpu="3", memory="2Gi", **either(NOT_C1, AMD64)))
    answer = decide(priced(raw, 0.5, "g1.4xlarge"))
    assert total(answer) == pytest.approx(total(decide(raw))) == pytest.approx(0.064)


def test_classes_that_differ_in_labels_alone_choose_their_alternative_together(
    decide: Decide, world: ModuleType
) -> None:
    pods = world.pods("web", 2, cpu="1500m", memory="2Gi", **either(NOT_C1, AMD64))
    for i, pod in enumerate(pods):
        pod["metadata"]["labels"]["version"] = str(i)
    answer = decide(priced(world.document(world.pool(), pods), 0.5, "g1.4xlarge"))
    assert [(c["cheapest"]["instanceType"], len(c["pods"])) for c in answer["nodeClaims"]] == [("c1.xlarge", 2)]


def test_a_machine_is_given_up_where_the_others_have_room_for_its_pods(decide: Decide, world: ModuleType) -> None:
    apart = near("podAntiAffinity", "heavy", HOST)
    raw = world.document(
        world.pool(),
        world.pods("mid", 7),
        world.pods("fat", 2, cpu="250m", memory="3Gi", **even("fat", minDomains=3)),
        world.pods("heavy", 1, cpu="1", memory="6Gi", **apart),
        world.pods("busy", 3, cpu="3", memory="2Gi"),
        world.pods("tiny", 3, cpu="100m", memory="128Mi", **even("tiny", minDomains=2)),
    )
    raw = priced(of_types(raw, "c1.xlarge", "c1.4xlarge", "g1.large"), 0.9, "c1.4xlarge")
    assert total(decide(raw)) <= 0.2652


def test_like_machines_are_taken_apart_but_once(decide: Decide, world: ModuleType) -> None:
    busy = world.pods("busy", 4, cpu="3", memory="2Gi", **even("busy", HOST))
    web = world.pods("web", 6)
    for pod in web:
        pod["spec"]["containers"][0] = {
            **pod["spec"]["containers"][0],
            "ports": [{"containerPort": 80, "hostPort": 80}],
        }
    raw = world.document(world.pool(), busy, web, world.pods("heavy", 1, cpu="1", memory="6Gi"))
    assert total(decide(priced(raw, 0.5, "c1.4xlarge"))) <= total(decide(raw)) * 1.02


def test_pods_that_must_share_a_host_come_as_many_as_their_spread_bears(decide: Decide, world: ModuleType) -> None:
    amd64 = {**NOT_C1, "operator": "In", "values": ["c1", "m1"]}
    small = {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["c1.4xlarge", "m1.4xlarge"]}
    together = near("podAffinity", "web", HOST) | even("web", maxSkew=5)
    web = world.pods("web", 6, cpu="1300m", memory="6656Mi", **together)
    raw = world.document(world.pool("small", requirements=[amd64, small]), world.pool("team"), web)
    answer = decide(priced(raw, 0.5, "m1.large"))
    assert [len(c["pods"]) for c in answer["nodeClaims"]] == [5]


@pytest.mark.parametrize("others", range(6))
def test_of_like_pods_the_last_by_name_are_left_out_whoever_else_there_is(
    decide: Decide, world: ModuleType, others: int
) -> None:
    kind = world.instance_type("p1.2xlarge", 8, 32, 1.2, "ab")
    kind["capacity"]["nvidia.com/gpu"] = "1"
    learn = world.pods("learn", 6, cpu="250m", memory="3Gi", **even("learn", maxSkew=2))
    for i, pod in enumerate(learn):
        pod["metadata"]["labels"]["version"] = str(i % 2)
        requests = {"cpu": "250m", "memory": "3Gi", "nvidia.com/gpu": "1"}
        pod["spec"]["containers"] = [{"name": "app", "resources": {"requests": requests}}]
    team = [{"key": "example.com/team", "operator": "In", "values": ["red", "blue"]}]
    big, tiny = world.pods("big", others, cpu="7", memory="8Gi"), world.pods("tiny", 3, cpu="100m", memory="128Mi")
    raw = of_types(world.document(world.pool(requirements=team), big, learn, tiny), "g1.2xlarge", "g1.4xlarge")
    raw["instanceTypes"] = [*raw["instanceTypes"], kind]
    assert sorted(decide(raw)["errors"]) == ["default/learn-0004", "default/learn-0005"]


def test_pods_of_which_a_host_bears_four_share_it_by_threes_where_that_is_cheaper(
    decide: Decide, world: ModuleType
) -> None:
    web = world.pods("web", 160, cpu="600m", memory="1Gi", **even("web", HOST, maxSkew=4))
    raw = of_types(world.document(world.pool(), web), "c1.large", "c1.xlarge", "m1.large")
    assert total(decide(priced(raw, 1.2, "c1.xlarge"))) == pytest.approx(54 * 0.032)


def test_pods_barred_from_one_zone_by_others_that_run_go_to_any_of_the_rest(decide: Decide, world: ModuleType) -> None:
    guard = world.pods("guard", 1, cpu="100m", **near("podAntiAffinity", "web", ZONE))
    guard[0]["spec"]["nodeName"] = "there"
    guard[0]["status"] = {"phase": "Running"}
    taints = [{"key": "k", "effect": "NoSchedule"}]
    pinned = world.pods("pinned", 1, cpu="3", memory="2Gi", nodeSelector={ZONE: "z-c"})
    web = world.pods("web", 1, cpu="500m", memory="1Gi")
    answer = decide(world.document(world.pool(), world.node("there", taints=taints), guard, pinned, web))
    assert [(c["cheapest"]["zone"], len(c["pods"])) for c in answer["nodeClaims"]] == [("z-c", 2)]
    alone = decide(world.document(world.pool(), world.node("there", taints=taints), guard, web))
    zones = next(r for r in alone["nodeClaims"][0]["requirements"] if r["key"] == ZONE)
    assert (zones["operator"], zones["values"]) in (("NotIn", ["z-a"]), ("In", ["z-b", "z-c"]))


def test_a_pod_that_needs_its_like_and_another_opens_no_machine_without_the_other(
    decide: Decide, world: ModuleType
) -> None:
    there = world.pods("db", 1, cpu="100m", nodeName="there")
    there[0]["status"] = {"phase": "Running"}
    both = near("podAffinity", "db", HOST)
    (term,) = near("podAffinity", "web", HOST)["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    both["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].append(term)
    web = world.pods("web", 1, cpu="3", memory="2Gi", **both)
    answer = decide(world.document(world.pool(), world.node("there", cpu=2), there, web))
    assert list(answer["errors"]) == ["default/web-0000"]
    assert not answer["nodeClaims"]
