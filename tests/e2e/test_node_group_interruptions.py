"""Interrupted nodes of node groups: drained in time, and replaced by their group; hooks are completed then."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.world import World, sample_objects
from tests.e2e.node_groups import auto_scaling_group, managed_node_group, scaling, sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj

LIMIT = timedelta(minutes=15)
REQUESTS = {"cpu": "300m", "memory": "256Mi"}
HOOK = "drain"
TERMINATION = "EC2 Instance-terminate Lifecycle Action"


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo", options=scaling()) as world:
        yield world


def api() -> Any:
    client: Any = boto3.client("autoscaling")
    return client


def instance_of(node: Obj) -> str:
    return str(node["spec"]["providerID"]).rsplit("/", 1)[-1]


def states(group: str) -> dict[str, str]:
    (described,) = api().describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    return {instance["InstanceId"]: instance["LifecycleState"] for instance in described["Instances"]}


def ready(world: World) -> list[Obj]:
    def is_ready(node: Obj) -> bool:
        return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])

    return [node for node in world.nodes() if is_ready(node) and not node["spec"].get("taints")]


def spot_group(world: World, *, desired: int = 2) -> str:
    group = auto_scaling_group(world, "spot")
    api().update_auto_scaling_group(
        AutoScalingGroupName=group,
        MinSize=desired,
        MixedInstancesPolicy={
            "LaunchTemplate": {
                "LaunchTemplateSpecification": {"LaunchTemplateName": group, "Version": "$Default"},
                "Overrides": [{"InstanceType": "m5.large"}],
            },
            "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0},
        },
        DesiredCapacity=desired,
    )
    return group


def grown(world: World, group: str, *, desired: int = 2) -> None:
    api().update_auto_scaling_group(AutoScalingGroupName=group, MinSize=desired, DesiredCapacity=desired)
    world.run_until(lambda: len(ready(world)) == desired, limit=LIMIT)


def put_hook(group: str, *, timeout: int = 300, name: str = HOOK) -> None:
    api().put_lifecycle_hook(
        AutoScalingGroupName=group,
        LifecycleHookName=name,
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=timeout,
        DefaultResult="CONTINUE",
    )


def run_pods(world: World, replicas: int = 2, **more: Any) -> None:
    world.apply(sample_objects.deployment("web", replicas, REQUESTS, **more))
    world.run_until(lambda: len(world.pods(phase="Running")) == replicas, limit=LIMIT)


def with_pods(world: World) -> tuple[str, str]:
    """The node with the most pods, and its instance."""
    names = [pod["spec"]["nodeName"] for pod in world.pods(phase="Running")]
    name = max(sorted(set(names)), key=names.count)
    (node,) = (node for node in world.nodes() if node["metadata"]["name"] == name)
    return name, instance_of(node)


def budget(world: World, *, allowed: int) -> None:
    world.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"maxUnavailable": allowed, "selector": {"matchLabels": {"app": "web"}}},
        }
    )


def put_event(detail_type: str, detail: dict[str, Any], *, at: datetime, source: str = "aws.autoscaling") -> None:
    events: Any = boto3.client("events")
    events.put_events(
        Entries=[{"Source": source, "DetailType": detail_type, "Detail": json.dumps(detail), "Time": at.timestamp()}]
    )


def action(group: str, instance_id: str, hook: str = HOOK) -> dict[str, str]:
    return {
        "LifecycleActionToken": "00000000-0000-0000-0000-000000000000",
        "AutoScalingGroupName": group,
        "LifecycleHookName": hook,
        "EC2InstanceId": instance_id,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    }


def node(world: World, name: str) -> Obj | None:
    return next((node for node in world.nodes() if node["metadata"]["name"] == name), None)


def completed(world: World) -> int:
    """How many lifecycle actions functions have completed."""
    return sum(call.operation == "CompleteLifecycleAction" and not call.error for call in world.aws.calls.all)


@pytest.mark.flow
def test_pods_of_an_interrupted_node_run_elsewhere_before_it_ends(world: World) -> None:
    group = spot_group(world)
    world.run_until(lambda: len(ready(world)) == 2, limit=LIMIT)
    run_pods(world)
    name, instance_id = with_pods(world)
    before = world.clock.now()
    world.interrupt_spot([instance_id])
    world.run_until(
        lambda: sum(pod["spec"]["nodeName"] != name for pod in world.pods(phase="Running")) == 2, limit=LIMIT
    )
    assert world.clock.now() - before < timedelta(minutes=1)
    assert instance_id in world.aws.instances.running
    interrupted = node(world, name)
    assert interrupted is not None
    assert "aws-node-termination-handler/spot-itn" in {t["key"] for t in interrupted["spec"]["taints"]}
    world.run_until(lambda: instance_id not in states(group) and len(ready(world)) == 2, limit=LIMIT)
    assert sizes(group)[1] == 2
    assert len(world.aws.instances.all) == 3
    assert world.claims() == []
    assert world.failures() == []


def test_a_budget_holds_until_the_deadline_and_no_longer(world: World) -> None:
    spot_group(world)
    world.run_until(lambda: len(ready(world)) == 2, limit=LIMIT)
    run_pods(world, 1, terminationGracePeriodSeconds=20)
    budget(world, allowed=0)
    world.run_for(timedelta(seconds=5))
    name, instance_id = with_pods(world)
    (pod,) = world.pods(phase="Running")
    uid, before = pod["metadata"]["uid"], world.clock.now()
    world.interrupt_spot([instance_id])
    # Deleted at the deadline (105 s) less its grace period.
    world.run_for(timedelta(seconds=80))
    (kept,) = (p for p in world.pods(node=name) if p["metadata"]["uid"] == uid)
    assert "deletionTimestamp" not in kept["metadata"]
    world.run_until(lambda: all(p["metadata"]["uid"] != uid for p in world.pods()), limit=LIMIT)
    assert timedelta(seconds=80) < world.clock.now() - before < timedelta(seconds=112)
    assert world.failures() == []


def test_a_rebalanced_node_is_drained_before_its_hook_is_completed(world: World) -> None:
    group = auto_scaling_group(world, "workers")
    put_hook(group, timeout=3600)
    grown(world, group)
    run_pods(world)
    name, instance_id = with_pods(world)
    api().terminate_instance_in_auto_scaling_group(InstanceId=instance_id, ShouldDecrementDesiredCapacity=False)
    world.run_until(lambda: not world.pods(node=name), limit=LIMIT)
    drained_at = world.clock.now()
    assert instance_id in world.aws.instances.running
    world.run_until(lambda: instance_id not in world.aws.instances.running, limit=LIMIT)
    assert world.clock.now() - drained_at <= timedelta(seconds=5)
    world.run_until(lambda: len(world.pods(phase="Running")) == 2 and len(ready(world)) == 2, limit=LIMIT)
    assert (sizes(group)[1], completed(world)) == (2, 1)
    assert world.failures() == []


def test_heartbeats_keep_a_blocked_drain_alive_up_to_the_maximum_of_the_hook(world: World) -> None:
    group = auto_scaling_group(world, "workers")
    put_hook(group, timeout=30)
    grown(world, group)
    run_pods(world, 1)
    budget(world, allowed=0)
    world.run_for(timedelta(seconds=5))
    name, instance_id = with_pods(world)
    api().terminate_instance_in_auto_scaling_group(InstanceId=instance_id, ShouldDecrementDesiredCapacity=False)
    world.run_for(timedelta(minutes=5))
    assert len([p for p in world.pods(phase="Running") if p["spec"]["nodeName"] == name]) == 1
    assert states(group)[instance_id] == "Terminating:Wait"
    world.run_for(timedelta(minutes=46))  # a hundred time-outs are 50 minutes
    assert instance_id not in states(group)
    assert world.failures() == []


def test_eks_completes_its_own_hook(world: World) -> None:
    group = managed_node_group(world, "batch", desired=2, minimum=1)
    world.run_until(lambda: len(ready(world)) == 2, limit=LIMIT)
    run_pods(world)
    name, instance_id = with_pods(world)
    api().terminate_instance_in_auto_scaling_group(InstanceId=instance_id, ShouldDecrementDesiredCapacity=False)
    world.run_until(lambda: instance_id not in states(group), limit=LIMIT)
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=LIMIT)
    world.run_until(lambda: node(world, name) is None, limit=LIMIT)
    assert completed(world) == 0
    assert world.failures() == []


def test_a_users_hook_of_a_managed_group_is_completed_too(world: World) -> None:
    group = managed_node_group(world, "batch", desired=2, minimum=1)
    put_hook(group, timeout=3600)
    world.run_until(lambda: len(ready(world)) == 2, limit=LIMIT)
    run_pods(world)
    _, instance_id = with_pods(world)
    api().terminate_instance_in_auto_scaling_group(InstanceId=instance_id, ShouldDecrementDesiredCapacity=False)
    world.run_until(lambda: instance_id not in states(group), limit=timedelta(minutes=3))
    assert completed(world) == 1


def test_repeated_and_late_events_change_nothing(world: World) -> None:
    group = auto_scaling_group(world, "workers")
    put_hook(group)
    grown(world, group)
    run_pods(world)
    _, instance_id = with_pods(world)
    api().terminate_instance_in_auto_scaling_group(InstanceId=instance_id, ShouldDecrementDesiredCapacity=False)
    world.settle()
    world.redeliver()
    world.run_until(lambda: instance_id not in states(group), limit=LIMIT)
    world.run_until(lambda: len(world.pods(phase="Running")) == 2 and len(ready(world)) == 2, limit=LIMIT)
    world.redeliver()
    put_event(TERMINATION, action(group, instance_id), at=world.clock.now())
    world.run_for(timedelta(minutes=3))
    assert (completed(world), len(ready(world)), sizes(group)[1]) == (1, 2, 2)
    assert world.failures() == []
    assert world.dead_letters() == []


def test_forged_events_drain_nothing(world: World) -> None:
    group = auto_scaling_group(world, "workers")
    put_hook(group)
    grown(world, group)
    run_pods(world)
    _, instance_id = with_pods(world)
    uids = {pod["metadata"]["uid"] for pod in world.pods()}
    now = world.clock.now()
    put_event(TERMINATION, action(group, instance_id), at=now)
    put_event(TERMINATION, action("another", instance_id), at=now)
    warning = {"instance-id": instance_id, "instance-action": "terminate"}
    put_event("EC2 Spot Instance Interruption Warning", warning, at=now, source="aws.ec2")
    put_event("EC2 Spot Instance Interruption Warning", {**warning, "instance-id": "i-0"}, at=now, source="aws.ec2")
    world.run_for(timedelta(minutes=4))
    assert {pod["metadata"]["uid"] for pod in world.pods()} == uids
    assert len(ready(world)) == 2
    assert completed(world) == 0
    assert world.dead_letters() == []


def test_a_malformed_event_is_a_dead_letter(world: World) -> None:
    put_event(TERMINATION, {"EC2InstanceId": "i-1"}, at=world.clock.now())
    world.run_for(timedelta(seconds=30))
    (letter,) = world.dead_letters()
    assert "AutoScalingGroupName" in str(letter.attributes["reason"])


def test_a_node_with_a_nodeclaim_is_left_to_the_interruption_function(world: World) -> None:
    auto_scaling_group(world, "workers")
    world.apply([sample_objects.node_class(world), sample_objects.node_pool({"karpenter.sh/capacity-type": ["spot"]})])
    world.apply(sample_objects.deployment("web", 1, REQUESTS, nodeSelector={"karpenter.sh/capacity-type": "spot"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=LIMIT)
    name, instance_id = with_pods(world)
    world.interrupt_spot([instance_id])
    world.run_for(timedelta(seconds=10))
    interrupted = node(world, name)
    assert interrupted is not None
    assert not any(t["key"].startswith("aws-node-") for t in interrupted["spec"]["taints"])
    assert "karpenter.sh/disrupted" in {t["key"] for t in interrupted["spec"]["taints"]}


def test_a_crash_between_any_two_calls(world: World) -> None:
    group = auto_scaling_group(world, "workers")
    put_hook(group, timeout=3600)
    grown(world, group)
    run_pods(world)
    crashes = world.faults.crash_around_each_write("nodegroups")
    for _ in range(4):
        name, instance_id = with_pods(world)
        api().terminate_instance_in_auto_scaling_group(InstanceId=instance_id, ShouldDecrementDesiredCapacity=False)
        # Long before the hook's time-out: the drain continues, and the action is completed.
        world.run_until(lambda id_=instance_id: id_ not in states(group), limit=LIMIT)  # type: ignore[misc]  # a default binds it
        world.run_until(lambda name_=name: node(world, name_) is None, limit=LIMIT)  # type: ignore[misc]  # the same
        world.run_until(lambda: len(world.pods(phase="Running")) == 2 and len(ready(world)) == 2, limit=LIMIT)
    assert sizes(group)[1] == 2
    calls = {"auto-scaling CompleteLifecycleAction", "kubernetes PATCH nodes/NAME", "sqs SendMessage"}
    assert {(call, when) for call in calls for when in ("before", "after")} <= crashes.tried


def test_maintenance_of_all_instances_that_ec2_does_not_list_drains_none(world: World) -> None:
    group = spot_group(world, desired=3)
    grown(world, group, desired=3)
    run_pods(world)
    budget(world, allowed=0)
    node, instance = with_pods(world)
    soon = (world.clock.now() + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "startTime": soon,
        "affectedEntities": [{"entityValue": id_} for id_ in states(group)],
    }
    put_event("AWS Health Event", detail, at=world.clock.now(), source="aws.health")
    world.run_for(timedelta(minutes=5))
    assert len(ready(world)) == 3
    assert len(world.pods(phase="Running")) == 2
    # The same message about one that EC2 lists: the date that counts is EC2's.
    world.aws.statuses.schedule(instance, "instance-retirement", world.clock.now() + timedelta(days=10))
    put_event("AWS Health Event", detail, at=world.clock.now(), source="aws.health")
    world.run_for(timedelta(minutes=5))
    assert {n["metadata"]["name"] for n in world.nodes() if n["spec"].get("unschedulable")} == {node}
    assert len(world.pods(node=node, phase="Running")) > 0
