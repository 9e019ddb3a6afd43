"""Affinities and anti-affinities between pods of several classes, as their users meet them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]
FAMILY = "karpenter.k8s.aws/instance-family"


def near(kind: str, app: str, key: str, **more: object) -> Raw:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_a_stateful_set_that_wants_one_host_gets_one_though_each_pod_has_a_label_of_its_own(
    decide: Decide, world: ModuleType
) -> None:
    pods = world.pods("db", 4, "1", "4Gi", **near("podAffinity", "db", HOST))
    for pod in pods:
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = pod["metadata"]["name"]
    answer = decide(world.document(world.pool(), pods))
    assert [len(c["pods"]) for c in answer["nodeClaims"]] == [4]


def test_a_zonal_anti_affinity_heeds_a_running_pod_that_keeps_its_zone_to_itself(
    decide: Decide, world: ModuleType
) -> None:
    guard = world.pods("guard", 1, "100m", "128Mi", **near("podAntiAffinity", "q", ZONE))
    guard[0]["spec"]["nodeName"] = "old"
    answer = decide(
        world.document(
            world.pool(), world.node("old", zone="z-a"), guard, world.pods("q", 3, **near("podAntiAffinity", "q", ZONE))
        )
    )
    assert {c["cheapest"]["zone"] for c in answer["nodeClaims"]} == {"z-b", "z-c"}
    assert len(answer["errors"]) == 1


def test_a_wish_to_be_apart_that_had_to_be_given_up_keeps_nobody_away(decide: Decide, world: ModuleType) -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "w"}}}
    wish = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    }
    answer = decide(world.document(world.pool(), world.pods("w", 5, affinity=wish)))
    assert not answer["errors"]
    assert {c["cheapest"]["zone"] for c in answer["nodeClaims"]} == {"z-a", "z-b", "z-c"}


def test_followers_that_no_machine_of_their_leader_suits_are_refused_and_the_leader_is_placed(
    decide: Decide, world: ModuleType
) -> None:
    leader = world.pods("leader", 1, "7", "8Gi")
    rule = near("podAffinity", "leader", HOST)
    rule["nodeSelector"] = {"node.kubernetes.io/instance-type": "c1.large"}
    answer = decide(world.document(world.pool(), leader, world.pods("f", 2, "0", "0", **rule)))
    assert sorted(answer["errors"]) == ["default/f-0000", "default/f-0001"]
    assert [c["pods"] for c in answer["nodeClaims"]] == [["default/leader-0000"]]


def test_min_values_hold_on_machines_that_pods_have_to_themselves(decide: Decide, world: ModuleType) -> None:
    many = [{"key": FAMILY, "operator": "Exists", "minValues": 2}]
    pods = world.pods("a", 4, nodeSelector={"kubernetes.io/arch": "arm64"}, **near("podAntiAffinity", "a", HOST))
    alone = decide(world.document(world.pool(requirements=many), pods))
    assert len(alone["errors"]) == 4  # arm64 has one family here
    pods = world.pods("a", 4, **near("podAntiAffinity", "a", HOST))
    both = decide(world.document(world.pool(requirements=many), pods, world.pods("b", 8)))
    assert not both["errors"]
    assert all(len({t.partition(".")[0] for t in c["instanceTypes"]}) > 1 for c in both["nodeClaims"])


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"team": "blue"}}])
def test_an_affinity_finds_pods_of_other_namespaces_by_their_labels(
    decide: Decide, world: ModuleType, selector: Raw
) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue", "labels": {"team": "blue"}}}
    leader = world.pods("leader", 1, nodeSelector={ZONE: "z-c"})
    leader[0]["metadata"]["namespace"] = "blue"
    follower = world.pods("f", 3, **near("podAffinity", "leader", ZONE, namespaceSelector=selector))
    answer = decide(world.document(world.pool(), space, leader, follower))
    assert not answer["errors"]
    assert {c["cheapest"]["zone"] for c in answer["nodeClaims"]} == {"z-c"}
    alone = decide(
        world.document(world.pool(), space, leader, world.pods("f", 3, **near("podAffinity", "leader", ZONE)))
    )
    assert len(alone["errors"]) == 3


def test_pods_that_need_each_other_stay_together_where_a_limit_has_them_placed_one_by_one(
    decide: Decide, world: ModuleType
) -> None:
    pods = world.pods("pair", 2, "3", "2Gi", **near("podAffinity", "pair", HOST))
    for i, pod in enumerate(pods):
        pod["metadata"]["labels"]["version"] = str(i)
    ports = [{"containerPort": 80, "hostPort": 81}]
    alone = world.pods("alone", 2)
    for pod in alone:
        pod["spec"]["containers"] = [{**pod["spec"]["containers"][0], "ports": ports}]
    answer = decide(world.document(world.pool(limits={"memory": "40Gi"}), pods, alone))
    assert not answer["errors"]
    assert any({"default/pair-0000", "default/pair-0001"} <= set(c["pods"]) for c in answer["nodeClaims"])


@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c")])
def test_a_chain_of_affinities_over_hosts_ends_on_one_host_or_nowhere(
    decide: Decide, world: ModuleType, names: tuple[str, str, str]
) -> None:
    first, second, third = names
    chain = [
        world.pods(second, 1, **near("podAffinity", first, HOST)),
        world.pods(third, 1, **near("podAffinity", second, HOST)),
    ]
    whole = decide(world.document(world.pool(), world.pods(first, 1), *chain))
    assert [len(c["pods"]) for c in whole["nodeClaims"]] == [3]
    headless = decide(world.document(world.pool(), *chain))
    assert not headless["nodeClaims"]
    assert len(headless["errors"]) == 2


def test_pods_of_which_none_can_be_bound_first_are_refused(decide: Decide, world: ModuleType) -> None:
    pair = [world.pods("a", 1, **near("podAffinity", "b", HOST)), world.pods("b", 1, **near("podAffinity", "a", HOST))]
    answer = decide(world.document(world.pool(), *pair))
    assert not answer["nodeClaims"]
    assert len(answer["errors"]) == 2
