"""No failure makes a loop without a bound: calls of each operation about each object, an hour, while something fails.

Each world has one failure, with pods that wait for nodes and nodes that are to be replaced. What functions write in
Kubernetes is counted by object, calls to AWS by operation. The bounds are those of the table below, in each hour: the
first two, and in the long tests each of a day. Where two hours take long, less shows the same rate by default.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.faults import ALWAYS, Fault, InjectionPoint
from local.kubelets.behavior import MachineBehavior
from local.world import Options, World, sample_objects
from local.world.control_plane import EmbeddedControlPlane
from tests.e2e.cluster_incidents.test_karpenter_runs import karpenter_runs, renew_lease
from tests.e2e.test_cluster_limits import NODE_POOL, apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
TOO_MANY = 429
PER_OBJECT = 240
"""Writes of one kind to one object of Kubernetes an hour: four a minute, by sweeps and by requeues of drains."""
BOUNDS: dict[str, int] = {
    "kubernetes POST events": 400,
    "kubernetes PATCH events": 400,
    "kubernetes POST nodeclaims": 200,
    "kubernetes DELETE nodeclaims": 200,
    "kubernetes POST pods/eviction": 400,
    "ec2 CreateFleet": 200,
    "ec2 TerminateInstances": 200,
    "ec2 CreateLaunchTemplate": 60,
    "ec2 DescribeInstances": 400,
    "eventbridge PutEvents": 300,
    "sqs SendMessage": 900,
    "sqs ChangeMessageVisibility": 900,
    "dynamodb PutItem": 900,
}
"""Calls of one operation an hour, of all functions about all objects: three rounds of launches a minute; a reconcile of
disruption each five seconds while replacements start, which is one message; a message that fails comes again after 1,
4, 15 and 60 s. Docs: brakes.md."""


class Hour:
    """The calls of an hour: by operation and object of Kubernetes, and by operation."""

    def __init__(self) -> None:
        self.objects: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()

    def add(self, point: InjectionPoint) -> None:
        if point.service != "kubernetes":
            self.operations[f"{point.service} {point.operation}"] += 1
        elif point.sending and point.operation != "GET":
            path = point.target.partition("?")[0]
            parts = [part for part in path.split("/") if part]
            if "leases" in parts:  # a decision writes its lease; the calls of decisions are bounded by what they do
                return
            kind = parts[-1] if point.operation == "POST" else parts[-2]
            if parts[-1] in {"eviction", "status", "binding"}:
                kind = f"{parts[-3]}/{parts[-1]}"
            self.operations[f"kubernetes {point.operation} {kind}"] += 1
            if point.operation != "POST" or parts[-1] == "eviction":
                self.objects[f"{point.operation} {path}"] += 1


class Counts:
    """The hours of a world, counted where calls are sent."""

    def __init__(self, world: World) -> None:
        self.hours = [Hour()]
        self._world = world
        self.watch()

    def watch(self) -> None:
        """Count from now on; faults that are injected later come after it."""
        # A crash is looked for where a request is sent; none occurs.
        self._world.faults.inject(self._add, Fault(crash="before"), times=ALWAYS)

    def _add(self, point: InjectionPoint) -> bool:
        self.hours[-1].add(point)
        return False

    def next_hour(self) -> None:
        self.hours.append(Hour())


def never(*_: Any) -> None:
    """Nothing fails by a call: the world's machines do."""


def always(service: str, operation: str, code: str, status: int = 400) -> Callable[[World], None]:
    return lambda world: world.faults.inject_aws(service, operation, Fault(code=code, status=status), times=ALWAYS)


def everything_of(service: str) -> Callable[[World], None]:
    return lambda world: world.faults.fail_service(service)


def denied(method: str, path: str, status: int = 500) -> Callable[[World], None]:
    fault = Fault(code="InternalError", status=status, message="a webhook denied the request")
    return lambda world: world.faults.inject_kubernetes(method, path, fault, times=ALWAYS)


def late_webhook(method: str, path: str) -> Callable[[World], None]:
    """Each request waits ten seconds for a webhook, and fails."""
    fault = Fault(
        code="InternalError", status=500, message="failed calling webhook: context deadline exceeded", delay=10
    )
    return lambda world: world.faults.inject_kubernetes(method, path, fault, times=ALWAYS)


def refused(status: int, code: str) -> Callable[[World], None]:
    """The API server refuses a third of all requests."""
    fault = Fault(code=code, status=status, retry_after=1 if status == TOO_MANY else 0)

    def inject(world: World) -> None:
        world.faults.inject(
            lambda p: p.service == "kubernetes" and p.caller.startswith("tenon"), fault, times=ALWAYS, chance=1 / 3
        )

    return inject


def skewed(minutes: int) -> Callable[[World], None]:
    """The functions' clock is off."""

    def skew(world: World) -> None:
        world.aws.functions.skew = timedelta(minutes=minutes)

    return skew


def quota_reached(world: World) -> None:
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.fail(capacity_type, "*", "*", ("VcpuLimitExceeded", "more vCPU capacity than your limit"))


def disrupted_zone(world: World) -> None:
    with world.aws.lock:
        zone = min(node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in world.nodes())
        world.aws.consistency.disrupted_zones = frozenset({zone})


def lost_definitions(world: World) -> None:
    """The NodePool goes with its NodeClaims, as when the definitions are deleted; the class stays."""
    for kind in (world.store.kind("karpenter.sh/v1", "NodeClaim"), world.store.kind(*NODE_POOL)):
        for stored in world.store.list(kind):
            world.store.patch(kind, stored["metadata"]["name"], {"metadata": {"finalizers": None}})
            world.store.delete(kind, stored["metadata"]["name"])


def budget_of_zero(world: World) -> None:
    world.apply(sample_objects.budget("web", 0))


FAILURES: dict[str, Callable[[World], None]] = {
    "nodes never join": never,
    "launches die after boot": never,
    "evictions are denied": denied("POST", "/eviction"),
    "PodDisruptionBudget of 0": budget_of_zero,
    "no capacity": always("ec2", "CreateFleet", "InsufficientInstanceCapacity", 500),
    "NodeClaims are denied": denied("POST", "/nodeclaims"),
    "DynamoDB away": everything_of("dynamodb"),
    "SQS away": everything_of("sqs"),
    "throttled launches": always("ec2", "CreateFleet", "RequestLimitExceeded", 503),
    "API server answers 429": refused(TOO_MANY, "TooManyRequests"),
    "API server answers 503": refused(503, "ServiceUnavailable"),
    "clock of the functions is five minutes ahead": skewed(5),
    "clock of the functions is five minutes behind": skewed(-5),
    "quota of vCPUs reached": quota_reached,
    "zone without answers": disrupted_zone,
    "definitions are lost": lost_definitions,
    "NodeClaims can't be changed": late_webhook("PATCH", "/nodeclaims/"),
    "NodeClaims are created too late": late_webhook("POST", "/nodeclaims"),
    "TerminateInstances is denied": always("ec2", "TerminateInstances", "UnauthorizedOperation", 403),
    "Karpenter still runs": lambda world: karpenter_runs(world, 2, "kube-system"),
    "etcd is restored to an hour ago": never,
}


def terminate_all(world: World) -> None:
    if ids := [i.id for i in world.instances()]:
        boto3.client("ec2", region_name=world.region).terminate_instances(InstanceIds=ids)


MEANWHILE: dict[str, tuple[timedelta, Callable[[World], None]]] = {
    "launches die after boot": (5 * MINUTE, terminate_all),
    "Karpenter still runs": (MINUTE / 2, renew_lease),
}
"""What else happens while a failure lasts, and how often."""


def behavior(failure: str) -> Callable[[Any], MachineBehavior]:
    """How machines behave: those that come after the first three fail, if machines are what fails."""
    launched: list[str] = []

    def of(machine: Any) -> MachineBehavior:
        launched.append(machine.instance_type)
        late = len(launched) > READY
        return MachineBehavior(never_joins=late and failure == "nodes never join")

    return of


READY = 3


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(cluster="demo", options=Options(behavior=behavior(request.param))) as world:
        yield world
        world.expect_denials()


def troubled(world: World, failure: str) -> Counts:
    """Three nodes with a pod each, all drifted, and two more pods, while the failure lasts."""
    requirements = {"node.kubernetes.io/instance-type": ["m5.large", "m6i.large"]}
    pool = sample_objects.node_pool(requirements, disruption={"budgets": [{"nodes": "100%"}]})
    world.apply([sample_objects.node_class(world), pool, apart("web", READY)])
    world.run_until(lambda: len(world.pods(phase="Running")) == READY, limit=10 * MINUTE)
    counts = Counts(world)
    FAILURES[failure](world)
    label = {"spec": {"template": {"metadata": {"labels": {"new": "true"}}}}}
    if world.store.find(world.store.kind(*NODE_POOL), "default") is not None:
        world.store.patch(world.store.kind(*NODE_POOL), "default", label)
    world.scale("default", "web", READY + 2)
    return counts


def run(world: World, failure: str, duration: timedelta = HOUR) -> None:
    """Let the failure last; etcd is restored at the end, to what it was at the beginning."""
    step, happens = MEANWHILE.get(failure, (5 * MINUTE, never))
    backup = world.store.backup() if failure == "etcd is restored to an hour ago" else None
    end = world.clock.now() + duration
    while (left := end - world.clock.now()) > timedelta():  # a step takes longer where functions wait
        world.run_for(min(step, left))
        happens(world)
    if backup is not None:
        assert isinstance(world.control_plane, EmbeddedControlPlane)
        world.control_plane.restore(backup)


def excesses(hour: Hour, share: float = 1) -> dict[str, int]:
    """What a share of an hour has more of than that share of its bounds."""
    return {
        **{name: count for name, count in hour.objects.items() if count > PER_OBJECT * share},
        **{name: count for name, count in hour.operations.items() if count > BOUNDS.get(name, math.inf) * share},
    }


BOUGHT = {
    "NodeClaims can't be changed": 4,  # the two that pods wait for, then one at a time, after longer and longer waits
    "NodeClaims are created too late": 0,
    "Karpenter still runs": 0,
    "TerminateInstances is denied": 6,  # the two that pods wait for, three replacements, and one of emptied nodes
}
"""Machines that two hours of a failure buy at most; before the circuit breaker counted them, 26 of the first kind."""
SHORTER = {
    "nodes never join": HOUR / 2,
    "launches die after boot": HOUR / 2,
    "no capacity": HOUR / 2,
    "NodeClaims are denied": HOUR / 2,
    "evictions are denied": HOUR,  # the waits grow: the first hour has most
    "NodeClaims can't be changed": HOUR,
    "TerminateInstances is denied": HOUR,
    "Karpenter still runs": HOUR,
}
"""How long these failures last by default; half an hour has half of an hour's calls."""
SLOW = {
    *SHORTER,
    "throttled launches",
    "quota of vCPUs reached",
    "API server answers 503",
    "zone without answers",
    "clock of the functions is five minutes behind",
    "definitions are lost",
    "NodeClaims are created too late",
    "etcd is restored to an hour ago",
}
"""Failures of whose worlds two hours take long."""


def assert_bought(world: World, failure: str) -> None:
    if failure in BOUGHT:
        assert len(world.aws.instances.all) <= READY + BOUGHT[failure]


@pytest.mark.calm_world  # it counts calls
@pytest.mark.parametrize(
    ("failure", "opened"),
    [pytest.param(f, f, id=f, marks=[pytest.mark.long] if f in SLOW else []) for f in FAILURES],
    indirect=["opened"],
)
def test_calls_of_an_hour_are_bounded_whatever_fails(opened: World, failure: str) -> None:
    counts = troubled(opened, failure)
    run(opened, failure)
    counts.next_hour()
    run(opened, failure)
    assert [excesses(hour) for hour in counts.hours] == [{}, {}]
    assert_bought(opened, failure)


@pytest.mark.calm_world
@pytest.mark.parametrize(("failure", "opened"), [(f, f) for f in SHORTER], indirect=["opened"], ids=list(SHORTER))
def test_calls_of_a_shorter_time_are_bounded_whatever_fails(opened: World, failure: str) -> None:
    counts = troubled(opened, failure)
    run(opened, failure, SHORTER[failure])
    assert excesses(counts.hours[0], SHORTER[failure] / HOUR) == {}
    assert_bought(opened, failure)


@pytest.mark.long
@pytest.mark.calm_world
@pytest.mark.parametrize(("failure", "opened"), [(f, f) for f in FAILURES], indirect=["opened"], ids=list(FAILURES))
def test_calls_of_a_day_are_bounded_whatever_fails(opened: World, failure: str) -> None:
    counts = troubled(opened, failure)
    for _ in range(24):
        run(opened, failure)
        counts.next_hour()
    assert [excesses(hour) for hour in counts.hours] == [{}] * 25
