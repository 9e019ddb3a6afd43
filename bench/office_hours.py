"""What functions do in the stretches that a month of office hours is made of: night, morning, day, evening.

A world with nodes of fifty pods each goes through them one after the other. Counted are invocations, what each took of
the processor (the local AWS's own work left out), and what it asked of others; prices come later (bench/cost_model.py).
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.aws.backends import replaced
from local.aws.interceptor import Interceptor
from local.aws.lambda_functions import LambdaFunctions
from local.clock import Clock
from local.world import Options, World, sample_objects
from shared import parallel
from shared.cluster import pod_cache
from shared.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

RESULTS = Path(__file__).parent / "office_hours.json"
SIZES = (5, 20, 100)
"""Nodes by day, each size a world of its own; a fifth of them stays at night."""
PODS_A_NODE = 50
_DEPLOYMENTS = 10
_STEPS = 10
_SETTLING = timedelta(minutes=3)
STRETCHES: Mapping[str, timedelta] = {
    "night": timedelta(minutes=15),
    "morning": timedelta(minutes=30),
    "day": timedelta(minutes=15),
    "evening": timedelta(minutes=60),
}
"""How long each is measured. Whole quarters of an hour, because prices are refreshed that often."""
_RAMP = timedelta(minutes=15)
_OFFICE_DAY = timedelta(hours=9)


@dataclass
class Meter:
    """Counts by ``function what``, and of the world by ``what`` alone; seconds are of processor time."""

    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    answering: float = 0.0
    _running: str = ""

    def add(self, what: str, amount: float = 1) -> None:
        """Count it for the function that runs; outside of functions nothing is counted."""
        if self._running:
            self.counts[f"{self._running} {what}"] += amount

    def invoked(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Around one invocation."""

        @functools.wraps(handle)
        def timed(functions: LambdaFunctions, function: Any, *args: Any) -> Any:  # noqa: ANN401 (the local Lambda's own)
            self._running, self.answering = function.short_name, 0.0
            began = time.thread_time()
            try:
                record = handle(functions, function, *args)
                self.add("seconds", time.thread_time() - began - self.answering)
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
        """Around one answer of the local AWS."""

        @functools.wraps(answer)
        def timed(gate: Interceptor, event_name: str, request: Any, **more: object) -> Any:  # noqa: ANN401 (botocore's)
            began = time.thread_time()
            try:
                return answer(gate, event_name, request, **more)
            finally:
                self.answering += time.thread_time() - began
                _, service, operation = event_name.split(".")
                self.add("aws")
                if self._running:
                    self.counts[f"call {service.lower()} {operation}"] += 1

        return timed

    def counted(self, work: Callable[..., Any], what: str) -> Callable[..., Any]:
        """Around a request to the cluster."""

        @functools.wraps(work)
        def called(*args: Any, **more: Any) -> Any:  # noqa: ANN401 (whatever the work takes and gives)
            self.add(what)
            return work(*args, **more)

        return called

    def waited(self, sleep: Callable[..., Any]) -> Callable[..., Any]:
        """Around a wait that a function asks for."""

        @functools.wraps(sleep)
        def counted(clock: Clock, seconds: float) -> None:
            self.add("waited", seconds)
            sleep(clock, seconds)

        return counted

    def silence(self, following: Callable[..., Any]) -> Callable[..., Any]:
        """Around the wait for a watch's next event: a silence is time that is paid for."""

        @functools.wraps(following)
        def heard(stream: Any, seconds: float) -> Any:  # noqa: ANN401 (a watch's event)
            event = following(stream, seconds)
            if event is None:
                self.add("waited", seconds)
            return event

        return heard


@contextlib.contextmanager
def metered() -> Iterator[Meter]:
    """Count in all worlds that are made meanwhile."""
    meter = Meter()
    with contextlib.ExitStack() as stack:
        for place, name, around in (
            (LambdaFunctions, "_handle", meter.invoked),
            (Interceptor, "__call__", meter.answered),
            (Client, "_send", functools.partial(meter.counted, what="kubernetes")),
            (Clock, "sleep", meter.waited),
            (pod_cache._Stream, "next", meter.silence),  # noqa: SLF001 (where it waits)
        ):
            stack.enter_context(replaced(place, name, around(getattr(place, name))))
        # One after the other in this thread, whose processor time is what is measured.
        stack.enter_context(replaced(parallel, "each", lambda work, items: [work(item) for item in items]))
        yield meter


def measure(nodes: int) -> dict[str, dict[str, float]]:
    """What was counted in each stretch."""
    found = {}
    with metered() as meter, World(options=Options(elapsed=time.process_time)) as world:
        day, night = nodes * PODS_A_NODE, max(nodes // 5, 1) * PODS_A_NODE
        world.apply([*_pool(world), *(_deployment(f"app-{i}", night // _DEPLOYMENTS) for i in range(_DEPLOYMENTS))])
        _rest(world, night)
        for stretch, lasts in STRETCHES.items():
            if stretch == "evening":
                _pass(world, _OFFICE_DAY)
            meter.counts.clear()
            delivered = len(world.aws.event_buses.deliveries)
            began = world.clock.now()
            match stretch:
                case "morning":
                    _steps(world, night, day, _RAMP)
                case "evening":
                    _steps(world, day, night, _RAMP)
                case "day":
                    _sway(world, day, lasts / 3)
            world.run_for(max(began + lasts - world.clock.now(), timedelta()))
            for delivery in world.aws.event_buses.deliveries[delivered:]:
                service = delivery.target_arn.split(":")[2]
                meter.counts["scheduled" if "Sweep" in delivery.rule or "Refresh" in delivery.rule else "events"] += 1
                meter.counts["sent"] += service == "sqs"
            found[stretch] = {
                "minutes": lasts.total_seconds() / 60,
                "nodes": len(world.nodes()),
                "pods": len(world.pods(phase="Running")),
                **{name: round(value, 4) for name, value in sorted(meter.counts.items())},
            }
            print(f"  {nodes} nodes, {stretch}: {found[stretch]['nodes']} nodes there", flush=True)
    return found


def main(sizes: list[int]) -> None:
    """Measure these sizes and keep them beside those that are kept."""
    for nodes in sizes:
        found = measure(nodes)
        kept = {**kept_results(), nodes: found}
        RESULTS.write_text(json.dumps({str(n): kept[n] for n in sorted(kept)}, indent=1) + "\n", encoding="utf-8")


def kept_results() -> dict[int, dict[str, dict[str, float]]]:
    """What was measured before, by nodes and stretch."""
    if not RESULTS.exists():
        return {}
    return {int(nodes): found for nodes, found in json.loads(RESULTS.read_text(encoding="utf-8")).items()}


def _rest(world: World, pods: int) -> None:
    world.run_until(lambda: len(world.pods(phase="Running")) == pods)
    world.run_for(_SETTLING)


def _steps(world: World, before: int, after: int, within: timedelta) -> None:
    """From one number of pods to another, in even steps."""
    for step in range(1, _STEPS + 1):
        pods = before + (after - before) * step // _STEPS
        for i in range(_DEPLOYMENTS):
            world.scale("default", f"app-{i}", pods // _DEPLOYMENTS)
        world.run_for(within / _STEPS)


def _pass(world: World, hours: timedelta) -> None:
    """Make it that much later without living through it: how old nodes are says for how long a saving is expected."""
    world.clock.skip_to(world.clock.now() + hours)
    world.run_for(_SETTLING)


def _sway(world: World, pods: int, every: timedelta) -> None:
    """What autoscalers of pods do all day: now one deployment, now the other by a tenth, down and up again."""
    each = pods // _DEPLOYMENTS
    for i in range(3):
        world.scale("default", f"app-{i}", each - each // 10)
        world.scale("default", f"app-{(i - 1) % _DEPLOYMENTS}", each)
        world.run_for(every)


def _pool(world: World) -> list[dict[str, Any]]:
    """Machines of eight vCPUs, which fifty of the pods fill; consolidated, as the kinds' defaults say."""
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
