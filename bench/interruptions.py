"""Spot interruptions: half of 400 nodes at once, a burst of messages, and replacing nodes before or after draining."""

from __future__ import annotations

import json
import random
import statistics
import time
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console

from cli.demo.interruptions import Interrupt, rescheduled
from cli.demo.request import DemoRequest
from cli.demo.runner import Demo
from local.world import Options, World, sample_objects

if TYPE_CHECKING:
    from datetime import datetime

NODES = 400
PODS_A_NODE = 2
MESSAGES = 10_000
SEEDS = 3
_SPOT = "EC2 Spot Instance Interruption Warning"
_STATE = "EC2 Instance State-change Notification"
_OPTIONS = Options(elapsed=time.process_time, latencies=None)
"""In these local clusters work takes processor time, so that other load on the machine is not measured."""
Row = dict[str, str]


def run() -> list[Row]:
    """The rows of this part, in cluster time: work takes processor time and waiting is skipped."""
    return [*_interrupt_half(), *_message_burst(), *_compare_with_drain_first()]


def _interrupt_half() -> list[Row]:
    with World(options=_OPTIONS) as world:
        _fill(world)
        interrupted = {i.id for i in world.instances()[::2]}
        nodes = {
            n["metadata"]["name"] for n in world.nodes() if n["spec"]["providerID"].rpartition("/")[2] in interrupted
        }
        first_event = len(world.timeline.all)
        warned_at = world.clock.now()
        world.interrupt_spot(sorted(interrupted))
        world.run_until(lambda: world.clock.now() > warned_at + timedelta(minutes=3))
        events = world.timeline.all[first_event:]
        rescheduling = rescheduled(world.timeline.all, nodes, warned_at)

    def seconds(type_: str, name: str = "", *, of_nodes: bool = False) -> list[float]:
        """After the warnings, of events of this type about names with this beginning."""
        return [
            (e.at - warned_at).total_seconds()
            for e in events
            if e.type == type_ and e.name.startswith(name) and (not of_nodes or e.details["node"] in nodes)
        ]

    tainted, launched = seconds("node cordoned"), seconds("call", "ec2 CreateFleet")
    first_held = min(seconds("pod terminating", "default/held", of_nodes=True))
    rows = (
        ("interrupted nodes tainted", "all within 10 s", f"{len(tainted)}, {_last(tainted)}"),
        ("replacements launched", "15 s, at most 20 calls", f"{_last(launched)}, {len(launched)} CreateFleet"),
        ("interrupted nodes empty", "within 110 s", _last(seconds("pod deleted", of_nodes=True))),
        (
            "first eviction of a pod blocked by its PodDisruptionBudget",
            "not before its share of the deadline, 75 s",
            f"{first_held:.1f} s",
        ),
        ("all pods run on other nodes", "-", _seconds(rescheduling.seconds_to_running)),
        ("longest time without a pod", "-", f"at most {_seconds(rescheduling.seconds_away)}"),
    )
    how = (
        f"{len(interrupted)} of {NODES} nodes interrupted in one second, {PODS_A_NODE} pods each, 30 s of grace period"
    )
    return [_row(*row, how) for row in rows]


def _fill(world: World) -> None:
    """Run the pods: some with a PodDisruptionBudget of a tenth, and as many with one that allows none to be evicted."""
    few = NODES * PODS_A_NODE // 20
    world.apply([*_pool(world), sample_objects.budget("guarded", "10%"), sample_objects.budget("held", 0)])
    world.apply([_deployment("web", NODES * PODS_A_NODE - 2 * few)])
    world.apply([_deployment("guarded", few), _deployment("held", few)])
    world.run_until(lambda: len(world.pods(phase="Running")) == NODES * PODS_A_NODE)
    world.run_for(timedelta(seconds=30))


def _message_burst() -> list[Row]:
    rng = random.Random(0)  # noqa: S311 - which messages come when
    with World(options=_OPTIONS) as world:
        world.apply([*_pool(world), _deployment("web", 40)])
        world.run_until(lambda: len(world.pods(phase="Running")) == 40)
        instance_ids = [i.id for i in world.instances()]
        (queue,) = (s.queue_name for s in world.aws.deployed.event_source_mappings if "nterruption" in s.queue_name)
        own = [_event(world.clock.now(), _SPOT, i) for i in instance_ids] * 16
        malformed = ["{"] * (MESSAGES // 50)
        foreign = [
            _event(world.clock.now(), rng.choice([_SPOT, _STATE]), f"i-{rng.getrandbits(64):016x}")
            for _ in range(MESSAGES - MESSAGES // 10 - len(own) - len(malformed))
        ]
        burst = [*own, *malformed, *foreign, *rng.choices(foreign, k=MESSAGES // 10)]
        rng.shuffle(burst)
        for body in burst:
            world.aws.queues.send(queue, body)
        began = world.clock.now()
        world.run_until(lambda: world.aws.queues.empty() and not world.aws.functions.running)
        runs = [i for i in world.aws.functions.invocations if i.function == "interruption" and i.at >= began]
        seconds = (max(i.at + timedelta(seconds=i.latency) for i in runs) - began).total_seconds()
        deleted = [line["nodeclaim"] for i in runs for line in i.logs if line["message"] == "Draining a node"]
        dead_letters = len(world.dead_letters())
    how = (
        f"{len(burst)} messages, {len(own)} about {len(instance_ids)} own nodes, {len(malformed)} malformed, "
        "a tenth duplicated"
    )
    return [
        _row("burst processed", "under 60 s", f"{seconds:.1f} s, {len(runs)} invocations", how),
        _row("own nodes handled once", str(len(instance_ids)), f"{len(set(deleted))} nodes, {len(deleted)} times", how),
        _row("malformed messages in the dead-letter queue", str(len(malformed)), str(dead_letters), how),
    ]


def _compare_with_drain_first() -> list[Row]:
    results = []
    for seed in range(SEEDS):
        request = DemoRequest(seed=seed, quiet=True, interrupt=Interrupt(), elapsed=time.process_time)
        interruptions = Demo(request, Console(quiet=True)).run().interruptions
        if interruptions is not None:
            results.append(interruptions)
    how = f"`tenon demo --interrupt spot=all` with {SEEDS} seeds; nodes join after 20-35 s, ready 3-6 s later"
    return [
        _row(
            "from the warning until all pods run on other nodes, replaced first",
            "less than the next",
            _spread([r.seconds_warning_to_running for r in results]),
            how,
        ),
        _row(
            "the same, drained first",
            "later",
            _spread([r.seconds_drain_then_provision for r in results]),
            how,
        ),
        _row(
            "difference, seed by seed",
            "more than 0 s",
            _spread([_difference(r.seconds_warning_to_running, r.seconds_drain_then_provision) for r in results]),
            how,
        ),
        _row("longest time without a pod, replaced first", "-", _spread([r.seconds_pod_away for r in results]), how),
        _row(
            "the same, drained first",
            "-",
            _spread([r.seconds_pod_away_drain_then_provision for r in results]),
            how,
        ),
    ]


def _event(now: datetime, about: str, instance: str) -> str:
    return json.dumps(
        {
            "source": "aws.ec2",
            "detail-type": about,
            "time": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "detail": {"instance-id": instance, "state": "terminated"},
        }
    )


def _pool(world: World) -> list[dict[str, Any]]:
    """A NodePool of spot nodes with two vCPUs, for two of the pods each."""
    requirements = {
        "karpenter.sh/capacity-type": ["spot"],
        "karpenter.k8s.aws/instance-cpu": ["2"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
    }
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    return [
        sample_objects.node_class(world),
        sample_objects.node_pool(requirements, template={"expireAfter": "Never"}, disruption=disruption),
    ]


def _deployment(name: str, replicas: int) -> dict[str, Any]:
    return sample_objects.deployment(name, replicas, {"cpu": "700m", "memory": "256Mi"})


def _last(seconds: list[float]) -> str:
    return f"the last after {max(seconds):.1f} s" if seconds else "none"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _difference(smaller: float | None, larger: float | None) -> float | None:
    return None if smaller is None or larger is None else larger - smaller


def _spread(values: list[float | None]) -> str:
    seconds = [v for v in values if v is not None]
    if not seconds:
        return "-"
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}-{max(seconds):.1f})"


def _row(measurement: str, target: str, result: str, method: str) -> Row:
    return {"measurement": measurement, "target": target, "result": result, "method": method}
