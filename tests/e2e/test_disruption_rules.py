"""Budgets, their windows, time-outs and invalid values: when a node is disrupted, and when it must not be."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes.errors import ApiError
from local.world import sample_objects
from shared.base import aws, decision_log
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.objects import Change
    from local.world import World

    Load = Callable[[str], list[dict[str, Any]]]


def pool(name: str = "default", *, disruption: dict[str, Any], **template: str) -> dict[str, Any]:
    """A pool of on-demand nodes."""
    requirements = {
        "karpenter.sh/capacity-type": ["on-demand"],
        "node.kubernetes.io/instance-type": ["c5.large", "m5.large", "m5.xlarge"],
    }
    return sample_objects.node_pool(requirements, name=name, template=template, disruption=disruption)


def start(world: World, load: Load, node_pool: dict[str, Any], *, replicas: int) -> None:
    """The pool, and a Deployment that runs on it."""
    world.apply([d for d in load("v1.yaml") if d["kind"] == "EC2NodeClass"])
    world.apply(node_pool)
    world.apply([d for d in load("spot-default.yaml") if d["kind"] == "Deployment"])
    world.scale("default", "inflate", replicas)
    world.run_until(lambda: len(running(world)) == replicas)


def messages(world: World, reason: str, name: str = "") -> list[str]:
    return [event["message"] for event in events(world, reason, name=name)]


def log(world: World, node: str) -> tuple[decision_log.DecisionRecord, ...]:
    table = world.aws.deployed.function("disruption").environ["TENON_TABLE_NAME"]
    return decision_log.latest(aws.dynamodb(), table, node, limit=50)


@pytest.mark.flow
@pytest.mark.calm_world  # it subtracts the functions' running times, which overlap where functions run at once
def test_ttl_seconds_after_empty_is_exact_to_the_second(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 3)
    world.run_until_idle()
    (node,) = world.nodes()
    world.scale("default", "inflate", 0)
    world.run_until(lambda: not world.nodes())
    name = node["metadata"]["name"]
    last = max(h.at for h in world.timeline.of("pod deleted") if h.details["node"] == name)
    (left,) = world.timeline.of("claim terminating")
    (ended,) = [h for h in world.timeline.of("call") if h.name == "ec2 TerminateInstances"]
    # The functions' own running time depends on the computer; only the waiting time is exact.
    runs = [h for h in world.timeline.of("invocation") if last <= h.at <= ended.at]
    working = timedelta(seconds=sum(h.details["latency"] for h in runs))
    assert left.at - last >= timedelta(seconds=30)
    assert ended.at - last - working <= timedelta(seconds=35)
    (logged,) = [d for d in log(world, name) if d.outcome == decision_log.TAKEN]
    assert logged.reason == "Empty"
    assert logged.savings is not None


@pytest.mark.long
def test_expiration_waits_for_its_budget_window_and_reports_it(world: World, load: Load) -> None:
    now = world.clock.now()
    opens = now.replace(second=0, microsecond=0) + timedelta(minutes=50)
    closed = {"nodes": "0", "schedule": f"{now.minute} {now.hour} * * *", "duration": "50m"}
    node_pool = pool(
        disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", "budgets": [closed]},
        expireAfter="20m",
    )
    start(world, load, node_pool, replicas=1)
    (first,) = world.nodes()
    name = first["metadata"]["name"]
    world.run_until(lambda: bool(messages(world, "DisruptionBlocked", name)), limit=timedelta(minutes=30))
    assert "budgets" in messages(world, "DisruptionBlocked", name)[0]
    refused = log(world, name)[0]
    assert (refused.outcome, refused.reason, refused.blocked_by) == ("refused", "Expired", "NodePool default")
    world.run_until(lambda: world.clock.now() >= opens - timedelta(seconds=5))
    assert world.timeline.of("claim terminating") == []
    world.run_until(lambda: bool(world.timeline.of("claim terminating")), limit=timedelta(minutes=10))
    assert world.timeline.of("claim terminating")[0].at >= opens
    world.run_until(lambda: len(running(world)) == 1 and name not in {n["metadata"]["name"] for n in world.nodes()})


def test_a_budget_with_an_unreadable_schedule_stops_disruption_alone_and_is_reported(world: World, load: Load) -> None:
    disruption: dict[str, Any] = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    start(world, load, pool(disruption=disruption), replicas=2)
    bad = {"nodes": "10%", "schedule": "61 * * * *", "duration": "1h"}
    world.apply(pool(disruption={**disruption, "budgets": [bad]}))
    nodes = len(world.nodes())
    world.scale("default", "inflate", 9)
    world.run_until(lambda: len(running(world)) == 9)
    assert len(world.nodes()) > nodes
    world.scale("default", "inflate", 0)
    world.run_until(lambda: len(running(world)) == 0)
    world.run_for(timedelta(minutes=10))
    assert len(world.nodes()) > nodes
    assert world.timeline.of("claim terminating") == []
    stored = world.store.get(world.store.kind("karpenter.sh/v1", "NodePool"), "default")
    conditions = {c["type"]: c for c in stored["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["DisruptionBudgetsValid"]["status"] == "False"
    assert "spec.disruption.budgets[0].schedule" in conditions["DisruptionBudgetsValid"]["message"]
    assert "no node of the NodePool is disrupted" in messages(world, "InvalidDisruptionBudget")[0]
    world.apply(pool(disruption=disruption))
    world.run_until(lambda: not world.nodes())
    assert world.failures() == []


@pytest.mark.parametrize("budget", [{"nodes": "-1"}, {"nodes": "150%"}, {"nodes": "1", "reasons": ["Boredom"]}])
def test_an_invalid_budget_is_rejected_by_the_api(world: World, budget: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        world.apply(pool(disruption={"budgets": [budget]}))
    assert refused.value.status == 422
    assert "budgets" in refused.value.message


def test_deleting_a_pool_while_its_nodes_are_disrupted_is_safe(world: World, load: Load) -> None:
    disruption: dict[str, Any] = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    start(world, load, pool(disruption=disruption), replicas=3)
    world.run_until_idle()
    kind = world.store.kind("karpenter.sh/v1", "NodePool")

    def delete(change: Change) -> None:
        queued = "tenon.sh/disruption" in change.object["metadata"].get("annotations", {})
        if change.kind.kind == "NodeClaim" and queued and world.store.find(kind, "default") is not None:
            world.store.delete(kind, "default")

    world.store.subscribe(delete)
    world.scale("default", "inflate", 1)
    world.run_until(lambda: world.store.find(kind, "default") is None, limit=timedelta(minutes=10))
    world.run_for(timedelta(minutes=5))
    claims = world.claims()
    assert not [c for c in claims if "tenon.sh/disruption" in c["metadata"].get("annotations", {})]
    assert len(world.instances()) == len(claims)
    assert world.failures() == []
    assert world.dead_letters() == []


def test_changed_security_groups_of_the_class_replace_nodes(world: World, load: Load) -> None:
    disruption: dict[str, Any] = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}
    start(world, load, pool(disruption=disruption), replicas=1)
    (old,) = world.nodes()
    ec2 = aws.ec2()
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    group = ec2.create_security_group(GroupName="tighter", Description="tighter", VpcId=vpc)["GroupId"]
    kind = world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass")
    world.store.patch(kind, "default", {"spec": {"securityGroupSelectorTerms": [{"id": group}]}})
    name = old["metadata"]["name"]
    world.run_until(lambda: name not in {n["metadata"]["name"] for n in world.nodes()}, limit=timedelta(minutes=30))
    (taken,) = [d for d in log(world, name) if d.outcome == decision_log.TAKEN]
    assert taken.reason == "Drifted"
    assert group in taken.why
    (instance,) = world.instances()
    assert [g.id for g in instance.dynamic_group_list] == [group]
