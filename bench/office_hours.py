"""What functions do in the phases of a month of office hours: night, morning, day, evening.

A local cluster with nodes of fifty pods goes through the phases one after the other. Counted are invocations, their
processor time without the local AWS's part, and their requests; bench/cost_model.py adds prices.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections import defaultdict
from concurrent import futures
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import local_aws
from infra.cluster import event_rules
from local.aws.backends import replaced
from local.aws.interceptor import Interceptor
from local.aws.lambda_functions import LambdaFunctions
from local.clock import Clock
from local.world import Options, World, sample_objects
from shared.base.struct import MutableStruct
from shared.cluster import watch
from shared.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from local.aws.event_buses import Delivery

RESULTS = Path(__file__).parent / "office_hours.json"
SIZES = (5, 20, 100)
"""Nodes during the day, each in its own local cluster; a fifth of them stays at night."""
PODS_A_NODE = 50
_DEPLOYMENTS = 10
_STEPS = 10
_SETTLING = timedelta(minutes=3)
PHASES: Mapping[str, timedelta] = {
    "night": timedelta(minutes=15),
    "morning": timedelta(minutes=30),
    "day": timedelta(minutes=15),
    "evening": timedelta(minutes=60),
}
"""How long each phase is measured: multiples of 15 minutes, the interval at which prices are refreshed."""
_RAMP = timedelta(minutes=15)
_OFFICE_DAY = timedelta(hours=9)
_SCHEDULES = ("sweep", *(f"refresh-{data}" for data in event_rules.REFRESHES))
"""How the names of rules with a schedule end."""


class Meter(MutableStruct):
    """Counts by ``function name``, and of the cluster by ``name`` only; seconds are processor time."""

    counts: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    aws_seconds: float = 0.0
    _running: str = ""

    def add(self, name: str, amount: float = 1) -> None:
        """Count for the running function; outside of functions nothing is counted."""
        if self._running:
            self.counts[f"{self._running} {name}"] += amount

    def delivered(self, deliveries: Collection[Delivery]) -> None:
        """Count events, which may have several targets, and the messages to queues."""
        for rule, _ in {(d.rule, d.event.get("id", d.at)) for d in deliveries}:
            self.counts["scheduled" if rule.endswith(_SCHEDULES) else "events"] += 1
        self.counts["sent"] += sum(d.target_arn.split(":")[2] == "sqs" for d in deliveries)

    def invoked(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps an invocation."""

        @functools.wraps(handle)
        def timed(functions: LambdaFunctions, function: Any, *args: Any) -> Any:
            self._running, self.aws_seconds = function.short_name, 0.0
            began = time.thread_time()
            try:
                record = handle(functions, function, *args)
                self.add("seconds", time.thread_time() - began - self.aws_seconds)
                self.add("invocations")
                self.add("log lines", record.output.count("\n"))
                self.add("log bytes", len(record.output.encode()))
                for line in record.metrics:
                    for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
                        self.counts[f"metric {metric['Name']}"] += 1
                return record
            finally:
                self._running = ""

        return timed

    def answered(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a response of the local AWS."""

        def spent(seconds: float, call: str) -> None:
            self.aws_seconds += seconds
            self.add("aws")
            if self._running:
                self.counts[f"call {call}"] += 1

        return local_aws.timed(answer, spent)

    def counted(self, work: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Wraps a request to the cluster."""

        @functools.wraps(work)
        def called(*args: Any, **kwargs: Any) -> Any:
            self.add(name)
            return work(*args, **kwargs)

        return called

    def waited(self, sleep: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function's sleep."""

        @functools.wraps(sleep)
        def counted(clock: Clock, seconds: float) -> None:
            self.add("waited", seconds)
            sleep(clock, seconds)

        return counted

    def silence(self, following: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the wait for a watch's next event: Lambda charges for a wait without one."""

        @functools.wraps(following)
        def heard(stream: Any, seconds: float) -> Any:
            event = following(stream, seconds)
            if event is None:
                self.add("waited", seconds)
            return event

        return heard


class _InThisThread(futures.Executor):
    """Runs what is submitted at once, in the thread whose processor time is measured."""

    def __init__(self, *_: object) -> None:
        super().__init__()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """The call's future, which is done."""
        done: futures.Future[Any] = futures.Future()
        done.set_result(fn(*args, **kwargs))
        return done


@contextlib.contextmanager
def metered() -> Iterator[Meter]:
    """Count in all local clusters that are created inside."""
    meter = Meter()
    with contextlib.ExitStack() as stack:
        for owner, name, wrap in (
            (LambdaFunctions, "_handle", meter.invoked),
            (Interceptor, "__call__", meter.answered),
            (Client, "_send", functools.partial(meter.counted, name="kubernetes")),
            (Clock, "sleep", meter.waited),
            (watch.WatchStream, "next", meter.silence),  # where it waits
        ):
            stack.enter_context(replaced(owner, name, wrap(getattr(owner, name))))
        stack.enter_context(replaced(futures, "ThreadPoolExecutor", _InThisThread))
        yield meter


def measure(nodes: int) -> dict[str, dict[str, float]]:
    """The counts of each phase."""
    counts_by_phase = {}
    with metered() as meter, World(options=Options(elapsed=time.process_time, latencies=None)) as world:
        day, night = nodes * PODS_A_NODE, max(nodes // 5, 1) * PODS_A_NODE
        world.apply([*_pool(world), *(_deployment(f"app-{i}", night // _DEPLOYMENTS) for i in range(_DEPLOYMENTS))])
        _run_until_settled(world, night)
        for phase, lasts in PHASES.items():
            if phase == "evening":
                _skip(world, _OFFICE_DAY)
            meter.counts.clear()
            delivered = len(world.aws.event_buses.deliveries)
            began = world.clock.now()
            match phase:
                case "morning":
                    _scale_in_steps(world, night, day, _RAMP)
                case "evening":
                    _scale_in_steps(world, day, night, _RAMP)
                case "day":
                    _scale_deployments(world, day, lasts / 3)
            world.run_for(max(began + lasts - world.clock.now(), timedelta()))
            meter.delivered(world.aws.event_buses.deliveries[delivered:])
            counts_by_phase[phase] = {
                "minutes": lasts.total_seconds() / 60,
                "nodes": len(world.nodes()),
                "pods": len(world.pods(phase="Running")),
                **{name: round(value, 4) for name, value in sorted(meter.counts.items())},
            }
            print(f"  {nodes} nodes, {phase}: {counts_by_phase[phase]['nodes']} nodes", flush=True)
    return counts_by_phase


def main(sizes: list[int]) -> None:
    """Measure these sizes and save them with the saved ones."""
    for nodes in sizes:
        counts = measure(nodes)
        saved = {**saved_results(), nodes: counts}
        RESULTS.write_text(json.dumps({str(n): saved[n] for n in sorted(saved)}, indent=1) + "\n", encoding="utf-8")


def saved_results() -> dict[int, dict[str, dict[str, float]]]:
    """The saved measurements, by nodes and phase."""
    if not RESULTS.exists():
        return {}
    return {int(nodes): counts for nodes, counts in json.loads(RESULTS.read_text(encoding="utf-8")).items()}


def _run_until_settled(world: World, pods: int) -> None:
    world.run_until(lambda: len(world.pods(phase="Running")) == pods)
    world.run_for(_SETTLING)


def _scale_in_steps(world: World, before: int, after: int, within: timedelta) -> None:
    """Scale from one number of pods to another in equal steps."""
    for step in range(1, _STEPS + 1):
        pods = before + (after - before) * step // _STEPS
        for i in range(_DEPLOYMENTS):
            world.scale("default", f"app-{i}", pods // _DEPLOYMENTS)
        world.run_for(within / _STEPS)


def _skip(world: World, hours: timedelta) -> None:
    """Advance the clock without running the cluster: a node's age determines for how long savings are expected."""
    world.clock.skip_to(world.clock.now() + hours)
    world.run_for(_SETTLING)


def _scale_deployments(world: World, pods: int, interval: timedelta) -> None:
    """Scale deployments down by a tenth and up again, as horizontal autoscalers do during a day."""
    replicas = pods // _DEPLOYMENTS
    for i in range(3):
        world.scale("default", f"app-{i}", replicas - replicas // 10)
        world.scale("default", f"app-{(i - 1) % _DEPLOYMENTS}", replicas)
        world.run_for(interval)


def _pool(world: World) -> list[dict[str, Any]]:
    """A NodePool of nodes with eight vCPUs, for fifty of the pods each; consolidated by default."""
    requirements = {
        "karpenter.sh/capacity-type": ["spot", "on-demand"],
        "karpenter.k8s.aws/instance-cpu": ["8"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"}
    return [
        sample_objects.node_class(world),
        sample_objects.node_pool(requirements, template={"expireAfter": "Never"}, disruption=disruption),
    ]


def _deployment(name: str, replicas: int) -> dict[str, Any]:
    return sample_objects.deployment(
        name, replicas, {"cpu": "150m", "memory": "250Mi"}, terminationGracePeriodSeconds=5
    )


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(SIZES))
