"""EC2 takes machines back: what ran there runs elsewhere in time, whatever else comes in by the queue."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.kubernetes import kinds
from local.world import World
from local.world.world import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE = 30
NOTICE = timedelta(minutes=2)
SPOT = "EC2 Spot Instance Interruption Warning"
STATE = "EC2 Instance State-change Notification"


def deployment(
    name: str, replicas: int, *, grace: int = GRACE, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    requests = {"cpu": "700m", "memory": "256Mi"}
    spec = {
        "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}, "annotations": annotations or {}}, "spec": spec},
        },
    }


def budget(name: str, most: int | str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "maxUnavailable": most},
    }


def small_nodes(world: World, annotations: dict[str, str] | None = None, *, budgets: str = "100%") -> None:
    """A pool of spot nodes with two vCPUs: two of our pods each."""
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": f"TenonNodeRole-{world.cluster}",
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": world.cluster}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": world.cluster}}],
        },
    }
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["2"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default", "annotations": annotations or {}},
        "spec": {
            "template": {"spec": {"nodeClassRef": reference, "expireAfter": "Never", "requirements": requirements}},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "Never",
                "budgets": [{"nodes": budgets}],
            },
        },
    }
    world.apply([node_class, pool])


def fill(world: World, pods: int) -> None:
    world.run_until(lambda: len(world.pods(phase="Running")) == pods, limit=timedelta(minutes=15))
    world.run_for(timedelta(seconds=30))


def instance_of(world: World, node: str) -> str:
    return str(world.store.get(kinds.NODES, node)["spec"]["providerID"]).rpartition("/")[2]


def nodes_of(world: World, instances: set[str]) -> set[str]:
    return {n["metadata"]["name"] for n in world.nodes() if instance_of(world, n["metadata"]["name"]) in instances}


def event(world: World, detail_type: str, detail: dict[str, Any], *, ago: float = 0, source: str = "aws.ec2") -> str:
    moment = world.clock.now() - timedelta(seconds=ago)
    return json.dumps(
        {
            "version": "0",
            "id": "7bf73129-1428-4cd3-a780-95db273d1602",
            "detail-type": detail_type,
            "source": source,
            "account": "123456789012",
            "time": moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": world.region,
            "resources": [],
            "detail": detail,
        }
    )


def send(world: World, *bodies: str) -> None:
    (source,) = (s for s in world.aws.deployed.sources if "nterruption" in s.queue_name)
    for body in bodies:
        world.aws.queues.send(source.queue_name, body)


def notes(world: World, node: str) -> dict[str, str]:
    (claim,) = (c for c in world.claims() if c["status"].get("nodeName") == node)
    found: dict[str, str] = claim["metadata"].get("annotations", {})
    return found


def is_going(world: World, node: str) -> bool:
    return all(c["metadata"].get("deletionTimestamp") for c in world.claims() if c["status"].get("nodeName") == node)


def interruptions(world: World) -> list[Any]:
    return [i for i in world.aws.functions.invocations if i.function == "interruption"]


def nothing_went_wrong(world: World) -> None:
    """No invocation of the function failed, and none logged an exception."""
    for invocation in interruptions(world):
        assert invocation.ok, invocation.traceback
        for line in invocation.logs:
            assert line.get("level") != "ERROR", line
            assert "exception" not in line, line


def since(moment: datetime, happening: Any) -> float:  # noqa: ANN401 - a Happening
    return float((happening.at - moment).total_seconds())


@pytest.fixture
def quiet_world() -> Iterator[World]:
    """A cluster of spot nodes with two vCPUs each, whose pool asks for nothing else."""
    with World(cluster="demo", options=Options()) as made:
        small_nodes(made)
        yield made


@pytest.mark.long
def test_two_hundred_of_four_hundred_nodes_that_are_warned_in_one_second_are_emptied_in_time(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.apply([budget("guarded", "10%"), budget("held", 0)])
    world.apply([deployment("web", 720), deployment("guarded", 40), deployment("held", 40)])
    fill(world, 800)
    assert len(world.nodes()) == 400
    doomed = {i.id for i in world.instances()[::2]}
    nodes = nodes_of(world, doomed)
    held = {p["metadata"]["name"] for p in world.pods() if p["metadata"]["name"].startswith("held")}
    there = {p["metadata"]["name"] for p in world.pods() if p["spec"]["nodeName"] in nodes}
    mark, calls = len(world.events.all), world.aws.calls.count()["ec2", "CreateFleet"]
    warned = world.clock.now()
    world.interrupt_spot(sorted(doomed))
    world.run_until(lambda: world.clock.now() > warned + timedelta(minutes=3))
    happened = world.events.all[mark:]

    tainted = {h.name: since(warned, h) for h in happened if h.what == "node cordoned" and h.name in nodes}
    assert set(tainted) == nodes
    assert max(tainted.values()) <= 10
    asked = [since(warned, h) for h in happened if h.what == "call" and h.name == "ec2 CreateFleet"]
    assert asked
    assert len(asked) <= 20
    assert max(asked) <= 15
    assert world.aws.calls.count()["ec2", "CreateFleet"] - calls == len(asked)
    gone = {
        h.name.removeprefix("default/"): since(warned, h)
        for h in happened
        if h.what == "pod gone" and h.name.removeprefix("default/") in there
    }
    assert set(gone) == there
    assert max(gone.values()) <= 110
    # What its budget holds stays until the deadline leaves no more than its own grace.
    leaving = {h.name.removeprefix("default/"): since(warned, h) for h in happened if h.what == "pod leaving"}
    for pod in held & there:
        assert leaving[pod] >= 105 - GRACE - 1
    assert not (held - there) & set(leaving)
    assert len(world.pods(phase="Running")) == 800
    nothing_went_wrong(world)
    assert world.dead_letters() == []


def test_pods_with_a_long_grace_get_of_it_what_the_deadline_leaves_and_the_rest_leave_at_once(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.apply([deployment("patient", 1, grace=300), deployment("web", 1)])
    fill(world, 2)
    warned = world.clock.now()
    world.interrupt_spot([i.id for i in world.instances()])
    world.run_for(timedelta(seconds=20))
    graces = {
        p["metadata"]["labels"]["app"]: p["metadata"].get("deletionGracePeriodSeconds")
        for p in world.pods()
        if p["metadata"].get("deletionTimestamp")
    }
    left = {h.name.split("-")[0]: since(warned, h) for h in world.events.of("pod leaving") if h.at >= warned}
    assert left["default/web"] <= 10
    assert left["default/patient"] <= 10
    assert 80 <= graces.get("patient", 95) <= 105
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))


@pytest.mark.long
def test_a_storm_of_ten_thousand_messages_is_worked_off_and_nothing_of_ours_is_lost(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", 40)])
    fill(world, 40)
    ours = [i.id for i in world.instances()]
    assert len(ours) == 20
    rng = random.Random(0)  # noqa: S311 - a test's
    foreign = [
        event(world, kind, {"instance-id": f"i-{rng.getrandbits(64):016x}", "state": "terminated"})
        for kind in rng.choices([SPOT, STATE], k=8480)
    ]
    own = [event(world, SPOT, {"instance-id": i}) for i in ours] * 16
    garbage = [rng.choice(["{", "[]", "null", "{}", '{"source": "aws.ec2"}']) for _ in range(200)]
    doubled = rng.choices(foreign, k=1000)
    storm = [*foreign, *own, *garbage, *doubled]
    assert len(storm) == 10_000
    rng.shuffle(storm)
    began = world.clock.now()
    send(world, *storm)
    world.run_until(lambda: world.aws.queues.empty() and not world.aws.functions.running)
    received = [m for m in world.aws.queues.delivered if "nterruption" in m.queue]
    last = max(i.at + timedelta(seconds=i.latency) for i in interruptions(world) if i.at >= began)
    assert last - began < timedelta(minutes=1)
    assert len(received) >= 10_000
    world.run_until(lambda: not {i.id for i in world.instances()} & set(ours), limit=timedelta(minutes=5))
    given_up = Counter(
        line["nodeclaim"] for i in interruptions(world) for line in i.logs if line["message"] == "A node is given up"
    )
    assert len(given_up) == 20
    assert set(given_up.values()) == {1}
    letters = world.dead_letters()
    assert len(letters) == 200
    assert all(letter.attributes["reason"] for letter in letters)
    malformed = sum(
        int(metric["tenon_interruption_malformed_total"][0]) for i in interruptions(world) for metric in i.metrics
    )
    assert malformed == 200
    nothing_went_wrong(world)
    world.run_until(lambda: len(world.pods(phase="Running")) == 40, limit=timedelta(minutes=5))


def test_bad_input_is_put_aside_or_passed_over_without_an_exception(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    send(
        world,
        event(world, SPOT, {}),
        event(world, "EC2 Spot Instance Something Else", {"instance-id": instance.id}),
        '{"detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2"}',
        event(world, SPOT, {"instance-id": "i-0123456789abcdef0"}),
        event(world, SPOT, {"instance-id": instance.id}, ago=400),
        event(world, STATE, {"instance-id": instance.id, "state": "terminated"}, ago=1000),
        event(world, STATE, {"instance-id": instance.id, "state": "running"}),
    )
    world.run_for(timedelta(minutes=3))
    assert [i.id for i in world.instances()] == [instance.id]
    reasons = [letter.attributes["reason"] for letter in world.dead_letters() if "nterruption" in letter.queue]
    assert len(reasons) == 3
    assert any("instance-id" in r for r in reasons)
    assert any("Something Else" in r for r in reasons)
    nothing_went_wrong(world)


def test_drains_begin_while_somebody_else_decides_and_the_replacement_follows(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (node,) = world.nodes()
    lease = world.store.find(kinds.LEASES, "tenon-demo", namespace="kube-system")
    assert lease is not None
    held = {
        "holderIdentity": "disruption/other",
        "leaseDurationSeconds": 15,
        "renewTime": world.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    world.store.patch(kinds.LEASES, "tenon-demo", {"spec": held}, namespace="kube-system", how="merge")
    warned = world.clock.now()
    world.interrupt_spot([i.id for i in world.instances()])
    world.run_until(lambda: is_going(world, node["metadata"]["name"]), limit=timedelta(seconds=5))
    world.run_until(
        lambda: not world.pods(node=node["metadata"]["name"]) and len(world.pods(phase="Running")) == 2,
        limit=timedelta(minutes=3),
    )
    created = [since(warned, h) for h in world.events.of("claim created") if h.at >= warned]
    assert 10 <= min(created) <= 40
    nothing_went_wrong(world)
    assert world.dead_letters() == []


def test_a_machine_that_was_taken_from_outside_is_finished_with_at_once(quiet_world: World) -> None:
    world = quiet_world
    world.apply([budget("held", 0), deployment("held", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    (node,) = world.nodes()
    send(world, event(world, STATE, {"instance-id": instance.id, "state": "terminated"}))
    world.run_until(
        lambda: node["metadata"]["name"] not in {n["metadata"]["name"] for n in world.nodes()},
        limit=timedelta(seconds=45),
    )
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))


def test_a_wave_of_recommendations_replaces_a_tenth_at_a_time_and_each_has_its_replacement_first(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.apply([deployment("web", 60)])
    fill(world, 60)
    risky = [i.id for i in world.instances()]
    assert len(risky) == 30
    going: list[int] = []
    began = world.clock.now()
    world.aws.instances.rebalance(risky[:12])

    def look() -> bool:
        going.append(sum(1 for c in world.claims() if c["metadata"].get("deletionTimestamp")))
        return not {i.id for i in world.instances()} & set(risky[:12])

    world.run_until(look, limit=timedelta(minutes=20))
    assert max(going) == 3
    launched = [h.at for h in world.events.of("claim launched") if h.at >= began]
    leaving = [h.at for h in world.events.of("claim leaving") if h.at >= began]
    assert min(launched) <= min(leaving)
    world.run_until(lambda: len(world.pods(phase="Running")) == 60, limit=timedelta(minutes=3))


@pytest.mark.parametrize("choice", ["ignore", "cordon"])
def test_a_pool_may_ignore_recommendations_or_only_cordon(choice: str) -> None:
    with World(cluster="demo") as world:
        small_nodes(world, {"tenon.sh/on-rebalance": choice})
        world.apply([deployment("web", 4)])
        fill(world, 4)
        first = world.instances()[0].id
        (node,) = nodes_of(world, {first})
        world.aws.instances.rebalance([first])
        world.run_for(timedelta(minutes=5))
        assert not is_going(world, node)
        unschedulable = world.store.get(kinds.NODES, node)["spec"].get("unschedulable", False)
        assert unschedulable == (choice == "cordon")
        assert len(world.pods(phase="Running")) == 4


def test_a_machine_at_risk_stays_where_nothing_better_is_to_be_had(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    world.aws.capacity.set("spot", "*", "*", 0)
    world.aws.instances.rebalance([instance.id])
    world.run_for(timedelta(minutes=25))
    assert [i.id for i in world.instances()] == [instance.id]
    assert len(world.pods(phase="Running")) == 2


def health(world: World, instance: str, start: datetime) -> str:
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "startTime": start.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "affectedEntities": [{"entityValue": instance}],
    }
    return event(world, "AWS Health Event", detail, source="aws.health")


def test_scheduled_maintenance_waits_for_the_pools_budget_until_its_date_is_near() -> None:
    with World(cluster="demo") as world:
        small_nodes(world, budgets="0")
        world.apply([deployment("web", 4)])
        fill(world, 4)
        instance = world.instances()[0].id
        (node,) = nodes_of(world, {instance})
        start = world.clock.now() + timedelta(minutes=75)
        send(world, health(world, instance, start))
        world.run_for(timedelta(minutes=10))
        assert not is_going(world, node)
        assert "tenon.sh/maintenance-starts" in notes(world, node)
        world.run_until(lambda: instance not in {i.id for i in world.instances()}, limit=timedelta(minutes=20))
        assert world.clock.now() < start
        world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=timedelta(minutes=3))


def test_the_deployed_rules_let_samples_in_and_not_their_neighbours(quiet_world: World) -> None:
    world = quiet_world
    bus = boto3.client("events", region_name=world.region)
    wanted = [
        ("aws.ec2", SPOT, {"instance-id": "i-1", "instance-action": "terminate"}),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"}),
        ("aws.ec2", STATE, {"instance-id": "i-1", "state": "stopping"}),
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", {"instance-id": "i-1"}),
        ("aws.health", "AWS Health Event", {"service": "EC2", "eventTypeCategory": "scheduledChange"}),
    ]
    others = [
        ("aws.ec2", STATE, {"instance-id": "i-1", "state": "running"}),
        ("aws.ec2", "EC2 Spot Instance Request Fulfillment", {"instance-id": "i-1"}),
        ("aws.health", "AWS Health Event", {"service": "RDS", "eventTypeCategory": "scheduledChange"}),
        ("aws.health", "AWS Health Event", {"service": "EC2", "eventTypeCategory": "issue"}),
        ("my.app", SPOT, {"instance-id": "i-1"}),
    ]
    before = len(world.aws.buses.deliveries)
    for source, about, detail in [*wanted, *others]:
        bus.put_events(Entries=[{"Source": source, "DetailType": about, "Detail": json.dumps(detail)}])
    came = [d for d in world.aws.buses.deliveries[before:] if "nterruption" in d.target_arn]
    assert [(d.event["source"], d.event["detail-type"], d.event["detail"]) for d in came] == wanted
