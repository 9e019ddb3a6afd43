"""What the interruption tests read from the local world, and the events that they send."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from local.world import sample_objects
from shared.base import aws, decision_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.kubernetes.objects import Change
    from local.world import World

GRACE = 30
NOTICE = timedelta(minutes=2)
SPOT = "EC2 Spot Instance Interruption Warning"
STATE = "EC2 Instance State-change Notification"
REBALANCE = "EC2 Instance Rebalance Recommendation"
RESERVED = "EC2 Capacity Reservation Instance Interruption Warning"


def deployment(
    name: str, replicas: int, *, grace: int = GRACE, annotations: dict[str, str] | None = None, **pod: Any
) -> dict[str, Any]:
    return sample_objects.deployment(
        name,
        replicas,
        {"cpu": "700m", "memory": "256Mi"},
        annotations=annotations,
        terminationGracePeriodSeconds=grace,
        **pod,
    )


def assert_drained_within_notice(world: World, interrupted: Sequence[str], *, pods: int, warned: datetime) -> None:
    """All pods of the interrupted instances are evicted at least ten seconds before EC2 ends these."""
    world.run_until(
        lambda: not set(interrupted) & {i.id for i in world.instances()}, limit=NOTICE + timedelta(seconds=10)
    )
    evictions = [h for h in world.timeline.of("pod terminating") if h.at >= warned]
    assert len(evictions) == pods
    assert max(h.at for h in evictions) < warned + NOTICE - timedelta(seconds=10)


def small_nodes(
    world: World,
    annotations: dict[str, str] | None = None,
    *,
    budgets: str = "100%",
    capacity_types: Sequence[str] = ("spot",),
    reservation: str = "",
    name: str = "default",
) -> None:
    """A NodePool of nodes with two vCPUs, for two of the pods each; spot by default."""
    reserved = {"capacityReservationSelectorTerms": [{"id": reservation}]} if reservation else {}
    requirements = {
        "karpenter.sh/capacity-type": capacity_types,
        "karpenter.k8s.aws/instance-cpu": ["2"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
    }
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": [{"nodes": budgets}]}
    pool = sample_objects.node_pool(
        requirements, annotations=annotations, template={"expireAfter": "Never"}, disruption=disruption, name=name
    )
    world.apply([sample_objects.node_class(world, **reserved), pool])


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
    (source,) = (s for s in world.aws.deployed.event_source_mappings if "nterruption" in s.queue_name)
    for body in bodies:
        world.aws.queues.send(source.queue_name, body)


def claim_annotations(world: World, node: str) -> dict[str, str]:
    (claim,) = (c for c in world.claims() if c.get("status", {}).get("nodeName") == node)
    annotations: dict[str, str] = claim["metadata"].get("annotations", {})
    return annotations


def _table(world: World) -> str:
    return world.aws.deployed.function("interruption").environ["TENON_TABLE_NAME"]


def decisions_about(world: World, node: str) -> tuple[decision_log.DecisionRecord, ...]:
    return decision_log.latest(aws.dynamodb(), _table(world), node)


def launches(world: World) -> tuple[decision_log.LaunchRecord, ...]:
    return decision_log.launches_since(aws.dynamodb(), _table(world), world.clock.now() - timedelta(hours=1))


def is_deleting(world: World, node: str) -> bool:
    return all(
        c["metadata"].get("deletionTimestamp") for c in world.claims() if c.get("status", {}).get("nodeName") == node
    )


def interruptions(world: World) -> list[Any]:
    return [i for i in world.aws.functions.invocations if i.function == "interruption"]


def assert_no_failures(world: World) -> None:
    """No invocation of the function failed, and none logged an exception."""
    for invocation in interruptions(world):
        assert invocation.ok, invocation.traceback
        for line in invocation.logs:
            assert line.get("level") != "ERROR", line
            assert "exception" not in line, line


def since(moment: datetime, timeline_event: Any) -> float:
    return float((timeline_event.at - moment).total_seconds())


def health(world: World, *instances: str, start: datetime) -> str:
    """AWS Health's message about these instances; EC2 lists their events only if a test schedules them."""
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "startTime": start.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "affectedEntities": [{"entityValue": instance} for instance in instances],
    }
    return event(world, "AWS Health Event", detail, source="aws.health")


class HealthyPods:
    """Counts the ready, non-terminating pods of each deployment at every change of the cluster."""

    def __init__(self, world: World, minimum: Mapping[str, int]) -> None:
        """``minimum`` is the number of healthy pods of each deployment that its budget requires."""
        self._now = world.clock.now
        self._minimum = minimum
        self._ready: dict[str, set[str]] = {app: set() for app in minimum}
        self.states = 0
        self.violations: list[tuple[datetime, str, int]] = []
        """Violations: the time, the deployment, and its number of healthy pods."""
        for pod in world.store.list(kinds.PODS):
            self._update(pod, deleted=False)
        world.store.subscribe(self._change)

    def _change(self, change: Change) -> None:
        if change.kind.kind == "Pod" and self._update(change.object, deleted=change.type == "DELETED"):
            self.states += 1
            for app, ready in self._ready.items():
                if len(ready) < self._minimum[app]:
                    self.violations.append((self._now(), app, len(ready)))

    def _update(self, pod: dict[str, Any], *, deleted: bool) -> bool:
        app = pod["metadata"].get("labels", {}).get("app", "")
        if app not in self._ready:
            return False
        conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}
        if conditions.get("Ready") == "True" and not deleted and "deletionTimestamp" not in pod["metadata"]:
            self._ready[app].add(pod["metadata"]["uid"])
        else:
            self._ready[app].discard(pod["metadata"]["uid"])
        return True
