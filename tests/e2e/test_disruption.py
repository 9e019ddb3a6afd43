"""Consolidation, expiration and drift: underutilized nodes are consolidated, expired and drifted ones replaced."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.faults import Fault
from local.kubernetes import kinds
from shared.base import aws
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.world import World

QUEUE_ANNOTATION = "tenon.sh/disruption"


def types(world: World) -> list[str]:
    return sorted(n["metadata"]["labels"]["node.kubernetes.io/instance-type"] for n in world.nodes())


def decisions(world: World) -> list[dict[str, Any]]:
    """The decision log's rows, as DynamoDB has them."""
    table = world.aws.deployed.function("disruption").environ["TENON_TABLE_NAME"]
    response = aws.dynamodb().query(
        TableName=table,
        KeyConditionExpression="pk = :p",
        ExpressionAttributeValues={":p": {"S": "decision"}},
    )
    return list(response["Items"])


def with_consolidation(world: World, load: Callable[[str], list[dict[str, Any]]]) -> None:
    """consolidation.yaml in place of spot-default.yaml's pool of the same name."""
    world.apply([d for d in load("spot-default.yaml") if d["kind"] != "Provisioner"])
    world.apply(load("consolidation.yaml"))


def least_running(world: World, deployment: str, since: int) -> int:
    """The fewest pods of a deployment that ran at any time after the event number ``since``."""
    name = f"default/{deployment}-"
    up = {h.name for h in world.timeline.all[:since] if h.type == "pod running" and h.name.startswith(name)}
    up -= {h.name for h in world.timeline.all[:since] if h.type in ("pod terminating", "pod deleted")}
    least = len(up)
    for h in world.timeline.all[since:]:
        if h.type == "pod running" and h.name.startswith(name):
            up.add(h.name)
        elif h.type in ("pod terminating", "pod deleted"):
            up.discard(h.name)
        least = min(least, len(up))
    return least


@pytest.mark.flow
def test_nodes_are_removed_with_their_pods_and_the_last_pod_ends_on_the_cheapest_node(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    with_consolidation(world, load)
    world.scale("default", "inflate", 12)
    world.run_until_idle()
    assert len(running(world)) == 12

    world.scale("default", "inflate", 5)
    world.run_until_idle()
    assert len(running(world)) == 5
    assert len(world.nodes()) <= 3

    world.scale("default", "inflate", 1)
    world.run_until_idle()
    assert len(running(world)) == 1
    assert types(world) == ["c5.large"]
    assert len(world.instances()) == len(world.claims()) == 1
    reasons = {row["reason"]["S"] for row in decisions(world) if row["outcome"]["S"] == "taken"}
    assert reasons == {"Empty", "Underutilized"}
    assert world.dead_letters() == []
    assert world.failures() == []


@pytest.mark.flow
def test_a_pod_disruption_budget_holds_during_consolidation(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    with_consolidation(world, load)
    world.scale("default", "inflate", 12)
    world.run_until_idle()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "inflate", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "inflate"}}},
    }
    world.apply(budget)
    world.scale("default", "inflate", 4)
    world.run_until(lambda: len(running(world)) == 4)
    since = len(world.timeline.all)
    world.run_until_idle()
    assert len(running(world)) == 4
    assert least_running(world, "inflate", since) >= 3
    prices = {"c5.large": 0.085, "m5.large": 0.096, "m5.xlarge": 0.192}
    assert sum(prices[t] for t in types(world)) <= 0.192 + 0.085 + 0.001


def aged(world: World, **template: str) -> None:
    """A NodePool with these fields in its template."""
    world.apply(
        [
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": "aged"},
                "spec": {
                    "template": {
                        "spec": {
                            "nodeClassRef": {
                                "group": "karpenter.k8s.aws",
                                "kind": "EC2NodeClass",
                                "name": "default",
                            },
                            "requirements": [
                                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
                            ],
                            **template,
                        }
                    },
                    "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"},
                    "weight": 10,
                },
            }
        ]
    )


@pytest.mark.flow
def test_an_expired_node_is_replaced_before_it_is_deleted(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    world.apply([d for d in load("spot-default.yaml") if d["kind"] == "Deployment"])
    world.apply([d for d in load("v1.yaml") if d["kind"] == "EC2NodeClass"])
    aged(world, expireAfter="20m")
    world.scale("default", "inflate", 1)
    world.run_until(lambda: len(running(world)) == 1)
    (first,) = world.claims()
    world.run_until(lambda: any(h.type == "claim terminating" for h in world.timeline.all), limit=timedelta(minutes=30))
    leaving = next(h for h in world.timeline.all if h.type == "claim terminating")
    created = next(h for h in world.timeline.of("claim created") if h.name == first["metadata"]["name"])
    assert leaving.name == first["metadata"]["name"]
    assert timedelta(minutes=20) <= leaving.at - created.at <= timedelta(minutes=22)
    initialized = [h for h in world.timeline.of("claim initialized") if h.name != first["metadata"]["name"]]
    assert len(initialized) == 1
    assert initialized[0].at <= leaving.at
    world.run_until(lambda: len(running(world)) == 1 and len(world.nodes()) == 1)


@pytest.mark.flow
def test_drifted_nodes_are_replaced_one_after_the_other_within_budgets(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    world.apply([d for d in load("spot-default.yaml") if d["kind"] == "Deployment"])
    world.apply([d for d in load("v1.yaml") if d["kind"] == "EC2NodeClass"])
    aged(world)
    world.scale("default", "inflate", 2)
    world.run_until_idle()
    old = {c["metadata"]["name"] for c in world.claims()}
    pool = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(pool, "aged", {"spec": {"template": {"metadata": {"labels": {"team": "new"}}}}})
    world.run_until(lambda: not old & {c["metadata"]["name"] for c in world.claims()})
    world.run_until(lambda: len(running(world)) == 2)
    assert {n["metadata"]["labels"].get("team") for n in world.nodes()} == {"new"}


@pytest.mark.flow
def test_a_replacement_that_is_never_launched_rolls_the_command_back(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    with_consolidation(world, load)
    world.scale("default", "inflate", 3)
    world.run_until_idle()
    (node,) = world.nodes()
    world.faults.inject_aws("ec2", "CreateFleet", Fault(code="UnauthorizedOperation", status=403), times=100)
    world.scale("default", "inflate", 1)
    world.run_until(lambda: any(QUEUE_ANNOTATION in c["metadata"].get("annotations", {}) for c in world.claims()))
    world.run_until(
        lambda: not any(QUEUE_ANNOTATION in c["metadata"].get("annotations", {}) for c in world.claims()),
        limit=timedelta(minutes=30),
    )
    name = node["metadata"]["name"]
    assert not world.store.get(kinds.NODES, name)["spec"].get("taints")
    (claim,) = [c for c in world.claims() if c["status"].get("nodeName") == name]
    assert "DisruptionReason" not in {c["type"] for c in claim["status"]["conditions"]}
    assert len(running(world)) == 1
    events = {(e["reason"], e["involvedObject"]["name"]) for e in world.store.list(kinds.EVENTS)}
    assert ("DisruptionUndone", claim["metadata"]["name"]) in events
    assert "undone" in {row["outcome"]["S"] for row in decisions(world) if row["node"]["S"] == name}


def test_a_crash_between_any_two_calls_leaves_no_taint_and_launches_nothing_twice(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    with_consolidation(world, load)
    cuts = world.faults.crash_around_each_write("disruption")
    replacing = {"kubernetes POST nodeclaims", "kubernetes DELETE nodeclaims/NAME", "ec2 CreateFleet"}
    for _ in range(6):
        world.scale("default", "inflate", 3)
        world.run_until(lambda: len(running(world)) == 3)
        world.scale("default", "inflate", 1)
        world.run_until(lambda: types(world) == ["c5.large"] and len(running(world)) == 1)
        if {(call, "after") for call in replacing} <= cuts.tried and not cuts.remaining:
            break
        world.scale("default", "inflate", 0)
        world.run_until(lambda: not world.nodes())
    assert {(call, "after") for call in replacing} <= cuts.tried
    world.faults.clear()
    world.run_until_idle()
    assert len(running(world)) == 1
    assert len(world.instances()) == len(world.claims()) == len(world.nodes())
    assert not [t for n in world.nodes() for t in n["spec"].get("taints", [])]
    assert not [c for c in world.claims() if QUEUE_ANNOTATION in c["metadata"].get("annotations", {})]
