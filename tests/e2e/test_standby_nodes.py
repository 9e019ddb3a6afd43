"""A NodePool with annotation ``tenon.sh/standby`` keeps stopped instances, which are started when pods need nodes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.faults import Fault
from local.kubelets.behavior import Timing
from local.kubernetes import kinds
from local.world import World, sample_objects
from local.world.options import Options
from shared.api import labels as names
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.kubernetes.objects import Change

POOL = "default"
TYPE = "m5.large"
MINUTE = timedelta(minutes=1)
STOPPED = "stopped"
TIMING = Timing(boot=(30.0, 30.0), restart=(15.0, 15.0), ready=(4.0, 4.0), pull=(1.0, 1.0))
"""A boot of 30 s after the launch, or of 15 s after EC2 has started a stopped instance (5 s)."""


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster whose deployment may stop and start instances."""
    with World(cluster="demo", options=Options(context={"standby": "on"}, timing=TIMING)) as running_world:
        yield running_world


class BoundPods:
    """The workload pods that were ever bound to nodes that were kept on standby then."""

    def __init__(self, world: World) -> None:
        self.on_standby: list[str] = []
        self._world = world
        world.store.subscribe(self._change)

    def _change(self, change: Change) -> None:
        obj = change.object
        if change.kind.kind != "Pod" or not obj["spec"].get("nodeName"):
            return
        if any(owner["kind"] == "DaemonSet" for owner in obj["metadata"].get("ownerReferences", [])):
            return
        node = self._world.store.find(kinds.NODES, obj["spec"]["nodeName"])
        if node is not None and names.STANDBY in node["metadata"]["labels"]:
            self.on_standby.append(obj["metadata"]["name"])


def pool(
    standby: str = f"3 {TYPE}",
    *,
    capacity_types: tuple[str, ...] = ("on-demand",),
    **spec: Any,
) -> dict[str, Any]:
    requirements = {names.CAPACITY_TYPE: list(capacity_types), names.INSTANCE_TYPE: [TYPE]}
    annotations = {names.STANDBY: standby} if standby else {}
    return sample_objects.node_pool(requirements, name=POOL, annotations=annotations, **spec)


def web(replicas: int) -> dict[str, Any]:
    """One pod fits on a node of the type."""
    return sample_objects.deployment("web", replicas, {"cpu": "1100m"})


def states(world: World) -> Counter[str]:
    """The states of standby nodes, by their NodeClaims; "" for other NodeClaims."""
    return Counter(c["metadata"].get("annotations", {}).get(names.STANDBY, "") for c in world.claims())


def instances(world: World) -> Counter[str]:
    return Counter(i.state for i in world.aws.instances.all if i.state != "terminated")


def where(world: World, app: str) -> set[str]:
    """The ids of the instances on which an app's pods run."""
    ids = {n["metadata"]["name"]: n["spec"]["providerID"].rpartition("/")[2] for n in world.nodes()}
    return {ids[p["spec"]["nodeName"]] for p in running(world, app)}


def calls(world: World, operation: str, caller: str = "") -> int:
    return sum(c.operation == operation and caller in c.caller for c in world.aws.calls.all if not c.error)


def annotate(world: World, value: str | None) -> None:
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, POOL, {"metadata": {"annotations": {names.STANDBY: value}}})


def start(world: World, node_pool: dict[str, Any] | None = None, *, count: int = 3) -> None:
    """Apply the pool, and run until its standby nodes are stopped."""
    world.apply(sample_objects.node_class(world))
    world.apply(node_pool or pool(f"{count} {TYPE}"))
    world.apply(sample_objects.daemon_set("logs", {"cpu": "50m"}))
    world.run_until(lambda: states(world) == Counter({STOPPED: count}), limit=10 * MINUTE)
    assert instances(world) == {"stopped": count}


def time_to_run(world: World, replicas: int) -> timedelta:
    """How long it takes until that many more pods run."""
    before = world.clock.now()
    world.apply(web(replicas))
    world.run_until(lambda: len(running(world, "web")) == replicas, limit=10 * MINUTE)
    return world.clock.now() - before


def assert_no_failures(world: World) -> None:
    assert world.failures() == []
    assert world.dead_letters() == []


def test_the_templates_annotation_is_followed_and_started_nodes_are_like_any(world: World) -> None:
    of_template = pool("")
    of_template["spec"]["template"]["metadata"] = {"annotations": {names.STANDBY: "2"}}
    start(world, of_template, count=2)
    world.apply(web(1))
    world.run_until(lambda: len(running(world, "web")) == 1, limit=10 * MINUTE)
    world.run_until(lambda: states(world) == {STOPPED: 2, "": 1}, limit=10 * MINUTE)
    world.run_for(2 * MINUTE)
    assert states(world) == {STOPPED: 2, "": 1}
    assert_no_failures(world)


def test_it_keeps_stopped_instances_on_which_only_daemons_ran(world: World) -> None:
    bound = BoundPods(world)
    world.apply(sample_objects.node_class(world))
    world.apply(pool())
    world.apply(sample_objects.daemon_set("logs", {"cpu": "50m"}))
    world.run_until(lambda: states(world) == {"warming": 3})
    world.apply(sample_objects.node_pool({names.INSTANCE_TYPE: ["c5.large"]}, name="other"))
    world.apply(sample_objects.deployment("small", 3, {"cpu": "10m"}, nodeSelector={names.NODEPOOL: "other"}))
    world.run_until(lambda: states(world) == {STOPPED: 3, "": 1}, limit=10 * MINUTE)
    assert instances(world) == {"stopped": 3, "running": 1}
    world.run_for(5 * MINUTE)
    assert states(world) == {STOPPED: 3, "": 1}
    assert bound.on_standby == []
    kept = [n for n in world.nodes(POOL) if names.STANDBY in n["metadata"]["labels"]]
    assert len(kept) == 3
    assert all(n["spec"]["unschedulable"] for n in kept)
    assert {z for n in kept for z in [n["metadata"]["labels"][names.ZONE]]} == set(world.aws.account.subnets)
    daemons = [p for n in kept for p in world.pods(node=n["metadata"]["name"])]
    assert len(daemons) == 3
    lifecycle = [i for i in world.aws.functions.invocations if i.function == "lifecycle"]
    costs = [line for i in lifecycle for line in i.logs if line.get("message") == "Cluster metrics"]
    assert list(costs[-1]["by_pool"]) == ["other"]
    assert costs[-1]["nodes"] == 1
    assert_no_failures(world)


@pytest.mark.flow
def test_pods_run_on_started_instances_and_others_are_bought(world: World) -> None:
    start(world)
    stopped = {i.id for i in world.aws.instances.all}
    time_to_run(world, 3)
    nodes = {p["spec"]["nodeName"] for p in running(world, "web")}
    used = {n["spec"]["providerID"].rsplit("/", 1)[-1] for n in world.nodes() if n["metadata"]["name"] in nodes}
    assert used == stopped
    assert calls(world, "StartInstances", "provisioner") == 3  # one for each zone
    launched = [i for i in world.aws.instances.all if i.id not in stopped]
    claim_of = {c["status"]["providerID"].rsplit("/", 1)[-1]: c["metadata"]["annotations"] for c in world.claims()}
    assert {claim_of[i.id].get(names.STANDBY, "") for i in launched} == {"warming"}
    world.run_until(lambda: states(world) == {STOPPED: 3, "": 3}, limit=10 * MINUTE)
    assert instances(world) == {"stopped": 3, "running": 3}
    claims = [c for c in world.claims() if names.STANDBY not in c["metadata"]["annotations"]]
    conditions = {c["type"]: c["status"] for claim in claims for c in claim["status"]["conditions"]}
    assert conditions["Ready"] == conditions["Initialized"] == "True"
    assert_no_failures(world)


@pytest.mark.calm_world
def test_pods_run_sooner_on_a_started_instance_than_on_a_launched_one() -> None:
    """By how much is an assumption of the local world: the fixture's timing."""
    seconds = {}
    for standby in ("", f"3 {TYPE}"):
        with World(cluster="demo", options=Options(context={"standby": "on"}, timing=TIMING)) as world:
            world.apply(sample_objects.node_class(world))
            world.apply(pool(standby))
            world.apply(sample_objects.daemon_set("logs", {"cpu": "50m"}))
            world.run_for(6 * MINUTE)
            assert instances(world) == ({"stopped": 3} if standby else {})
            seconds[bool(standby)] = time_to_run(world, 3).total_seconds()
    assert seconds[True] <= seconds[False] - 5, seconds


def test_the_manifest_that_comes_with_tenon(world: World, load: Callable[[str], list[dict[str, Any]]]) -> None:
    world.apply([d for d in load("v1.yaml") if d["kind"] == "EC2NodeClass"])
    world.apply(load("standby.yaml"))
    world.run_until(lambda: states(world) == {STOPPED: 2}, limit=10 * MINUTE)
    stopped = {i.id for i in world.aws.instances.all}
    world.scale("default", "builds", 2)
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=10 * MINUTE)
    assert {i.id for i in world.aws.instances.all if i.state == "running"} >= stopped
    world.run_until(lambda: states(world) == {STOPPED: 2, "": 2}, limit=10 * MINUTE)


@pytest.mark.flow
def test_pods_of_an_interrupted_node_get_a_started_one(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    world.apply(pool("", capacity_types=("on-demand", "spot")))
    time_to_run(world, 1)
    (spot,) = (i.id for i in world.aws.instances.all)
    annotate(world, f"1 {TYPE}")
    world.run_until(lambda: states(world) == {STOPPED: 1, "": 1}, limit=10 * MINUTE)
    (stopped,) = (i.id for i in world.aws.instances.all if i.state == "stopped")
    world.interrupt_spot([spot])
    world.run_until(lambda: calls(world, "StartInstances", "interruption") == 1, limit=MINUTE)
    world.run_until(lambda: where(world, "web") == {stopped}, limit=2 * MINUTE)
    world.run_until(lambda: len(running(world, "web")) == 1 and states(world) == {STOPPED: 1, "": 1}, limit=10 * MINUTE)
    assert_no_failures(world)


def test_pods_that_fit_on_running_nodes_start_nothing(world: World) -> None:
    start(world, count=1)
    time_to_run(world, 1)
    world.run_until(lambda: states(world) == {STOPPED: 1, "": 1}, limit=10 * MINUTE)
    world.apply(sample_objects.deployment("small", 2, {"cpu": "100m"}))
    world.run_for(3 * MINUTE)
    assert calls(world, "StartInstances") == 1
    assert instances(world) == {"stopped": 1, "running": 1}


def test_without_capacity_for_a_start_nodes_are_launched_at_once(world: World) -> None:
    start(world, pool(f"2 {TYPE}", capacity_types=("on-demand", "spot")), count=2)
    world.aws.capacity.set("on-demand", TYPE, "*", 0)
    before = world.clock.now()
    assert time_to_run(world, 2) < MINUTE
    assert events(world, "StandbyNotStarted")
    assert {i.lifecycle for i in world.aws.instances.all if i.state == "running"} == {"spot"}
    assert states(world) == {STOPPED: 2, "": 2}
    denied = [c for c in world.aws.calls.all if c.operation == "StartInstances" and c.at >= before]
    assert 1 <= len(denied) <= 4
    world.run_for(5 * MINUTE)
    assert states(world) == {STOPPED: 2, "": 2}
    assert_no_failures(world)


def test_whatever_else_a_start_fails_of_nodes_are_launched_at_once(world: World) -> None:
    start(world, count=1)
    world.faults.inject_aws("ec2", "StartInstances", Fault(code="UnauthorizedOperation", status=403), times=10)
    assert time_to_run(world, 1) < MINUTE
    world.faults.clear()
    world.run_for(2 * MINUTE)
    assert states(world) == {STOPPED: 1, "": 1}
    assert instances(world) == {"stopped": 1, "running": 1}


def test_an_instance_that_stops_again_after_its_start_is_replaced_by_a_launch(world: World) -> None:
    start(world, count=1)
    (stopped,) = (i.id for i in world.aws.instances.all)
    world.aws.instances.fail_restarts(1)
    assert time_to_run(world, 1) < 5 * MINUTE
    world.run_until(lambda: states(world) == {STOPPED: 1, "": 1}, limit=10 * MINUTE)
    assert {i.state for i in world.aws.instances.all if i.id == stopped} == {"terminated"}
    assert_no_failures(world)


def test_machines_that_die_at_boot_are_bought_again_after_a_while(world: World) -> None:
    world.aws.instances.fail_starts("*", "*", 2)
    start(world, count=2)
    assert len(world.aws.instances.all) == 4
    assert_no_failures(world)


def test_garbage_collection_node_repair_and_consolidation_leave_them_alone(world: World) -> None:
    node_pool = pool(disruption={"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized"})
    node_pool["metadata"]["annotations"]["tenon.sh/repair"] = "true"
    start(world, node_pool)
    before = {c["metadata"]["name"] for c in world.claims()}
    invocations = len(world.aws.functions.invocations)
    world.run_for(60 * MINUTE)
    assert {c["metadata"]["name"] for c in world.claims()} == before
    assert instances(world) == {"stopped": 3}
    assert not events(world, "NodeRepairBlocked")
    per_minute = Counter(i.function for i in world.aws.functions.invocations[invocations:])
    assert per_minute["lifecycle"] <= 70  # one a minute; the relay doesn't report stopped nodes again and again
    assert_no_failures(world)


def test_an_instance_that_somebody_starts_is_stopped_again(world: World) -> None:
    start(world, count=1)
    boto3.client("ec2").start_instances(InstanceIds=[world.aws.instances.all[0].id])
    world.run_until(lambda: instances(world) == {"running": 1})
    world.run_until(lambda: instances(world) == {"stopped": 1} and states(world) == {STOPPED: 1}, limit=10 * MINUTE)
    assert len(world.aws.instances.all) == 1
    assert len(world.claims()) == 1


def test_limits_count_nodes_that_run_and_a_start_respects_them(world: World) -> None:
    start(world, pool(f"2 {TYPE}", limits={"cpu": "2"}), count=2)
    time_to_run(world, 1)
    world.apply(web(3))
    world.run_for(5 * MINUTE)
    assert len(running(world, "web")) == 1
    assert states(world) == {STOPPED: 2, "": 1}
    assert instances(world) == {"stopped": 2, "running": 1}


@pytest.mark.parametrize(
    ("node_pool", "message"),
    [
        (pool("1", capacity_types=("spot",)), "only on-demand instances can be stopped"),
        (sample_objects.node_pool({}, annotations={names.STANDBY: "1"}), "no node of the NodePool says yet which"),
        (pool("1 m5.8xlarge"), "the NodePool's requirements don't allow instance type m5.8xlarge"),
        (sample_objects.node_pool({}, annotations={names.STANDBY: "1 m9.huge"}), "m9.huge isn't available on-demand"),
        (pool("1", replicas=1), "a static NodePool"),
        (pool("1000"), "must be at most 100"),
    ],
)
def test_an_event_says_why_a_nodepool_has_none(world: World, node_pool: dict[str, Any], message: str) -> None:
    world.apply(sample_objects.node_class(world))
    world.apply(node_pool)
    world.run_for(2 * MINUTE)
    (event,) = events(world, "StandbyNotPossible")
    assert message in event["message"]
    assert event["involvedObject"]["name"] == POOL
    assert not [c for c in world.claims() if names.STANDBY in c["metadata"]["annotations"]]


def test_without_a_type_it_is_that_of_the_nodepools_nodes(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    world.apply(sample_objects.node_pool({}, annotations={names.STANDBY: "1"}))
    world.apply(web(1))
    world.run_until(lambda: states(world) == {STOPPED: 1, "": 1}, limit=10 * MINUTE)
    assert len({c["metadata"]["labels"][names.INSTANCE_TYPE] for c in world.claims()}) == 1


def test_a_deployment_without_the_right_buys_nothing_and_says_so() -> None:
    with World(cluster="demo") as world:
        world.apply(sample_objects.node_class(world))
        world.apply(pool())
        world.run_for(3 * MINUTE)
        assert world.claims() == []
        (event,) = events(world, "StandbyNotPossible")
        assert "-c standby=on" in event["message"]


@pytest.mark.calm_world
def test_purchases_are_a_minute_apart_whatever_becomes_of_them(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    world.apply(pool())
    kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    seen: set[str] = set()
    begun: datetime = world.clock.now()
    for number in range(18):
        world.apply(sample_objects.deployment(f"hint-{number}", 1, {"cpu": "900"}))
        world.run_for(timedelta(seconds=10))
        live = [c["metadata"] for c in world.claims() if "deletionTimestamp" not in c["metadata"]]
        seen |= {meta["name"] for meta in live}
        for meta in live:
            world.store.delete(kind, meta["name"])
    minutes = (world.clock.now() - begun) / MINUTE
    assert 3 <= len(seen) <= 3 * (minutes + 1)
