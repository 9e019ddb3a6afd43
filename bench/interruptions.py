"""Interruptions: half of 400 nodes warned at once, a storm of messages, and replacing at once or after draining."""

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
_ALONE = Options(elapsed=time.process_time)
"""Work takes processor time in these worlds: what else runs on the machine is not measured."""
Row = dict[str, str]


def run() -> list[Row]:
    """The figures of issue 7, in cluster time, where work takes processor time and waiting is skipped."""
    return [*_wave(), *_storm(), *_compared()]


def _wave() -> list[Row]:
    with World(options=_ALONE) as world:
        tenth = NODES * PODS_A_NODE // 20
        world.apply([*_pool(world), sample_objects.budget("guarded", "10%"), sample_objects.budget("held", 0)])
        world.apply([_deployment("web", NODES * PODS_A_NODE - 2 * tenth)])
        world.apply([_deployment("guarded", tenth), _deployment("held", tenth)])
        world.run_until(lambda: len(world.pods(phase="Running")) == NODES * PODS_A_NODE)
        world.run_for(timedelta(seconds=30))
        doomed = {i.id for i in world.instances()[::2]}
        nodes = {n["metadata"]["name"] for n in world.nodes() if n["spec"]["providerID"].rpartition("/")[2] in doomed}
        mark = len(world.timeline.all)
        warned = world.clock.now()
        world.interrupt_spot(sorted(doomed))
        world.run_until(lambda: world.clock.now() > warned + timedelta(minutes=3))
        happened = world.timeline.all[mark:]
        moved = rescheduled(world.timeline.all, nodes, warned)

    def times(what: str) -> list[float]:
        return [(h.at - warned).total_seconds() for h in happened if h.type == what]

    fleet = [(h.at - warned).total_seconds() for h in happened if h.type == "call" and h.name == "ec2 CreateFleet"]
    gone = [(h.at - warned).total_seconds() for h in happened if h.type == "pod gone" and h.details["node"] in nodes]
    early = [
        (h.at - warned).total_seconds()
        for h in happened
        if h.type == "pod leaving" and h.name.startswith("default/held") and h.details["node"] in nodes
    ]
    how = f"{len(doomed)} of {NODES} nodes warned in one second, {PODS_A_NODE} pods each, 30 s of grace"
    return [
        _row(
            "warned nodes tainted",
            "all within 10 s",
            f"{len(times('node cordoned'))}, {_last(times('node cordoned'))}",
            how,
        ),
        _row("replacements asked for", "15 s, at most 20 calls", f"{_last(fleet)}, {len(fleet)} CreateFleet", how),
        _row("warned nodes empty", "within 110 s", _last(gone), how),
        _row(
            "first pod that its budget held", "not before its share of the deadline, 75 s", f"{min(early):.1f} s", how
        ),
        _row("as many pods run elsewhere", "-", _seconds(moved.seconds_to_running), how),
        _row("a pod was away", "-", f"at most {_seconds(moved.seconds_away)}", how),
    ]


def _storm() -> list[Row]:
    rng = random.Random(0)  # noqa: S311 - which messages come when
    with World(options=_ALONE) as world:
        world.apply([*_pool(world), _deployment("web", 40)])
        world.run_until(lambda: len(world.pods(phase="Running")) == 40)
        ours = [i.id for i in world.instances()]
        (queue,) = (s.queue_name for s in world.aws.deployed.event_source_mappings if "nterruption" in s.queue_name)
        own = [_event(world.clock.now(), _SPOT, i) for i in ours] * 16
        garbage = ["{"] * (MESSAGES // 50)
        foreign = [
            _event(world.clock.now(), rng.choice([_SPOT, _STATE]), f"i-{rng.getrandbits(64):016x}")
            for _ in range(MESSAGES - MESSAGES // 10 - len(own) - len(garbage))
        ]
        storm = [*own, *garbage, *foreign, *rng.choices(foreign, k=MESSAGES // 10)]
        rng.shuffle(storm)
        for body in storm:
            world.aws.queues.send(queue, body)
        began = world.clock.now()
        world.run_until(lambda: world.aws.queues.empty() and not world.aws.functions.running)
        runs = [i for i in world.aws.functions.invocations if i.function == "interruption" and i.at >= began]
        seconds = (max(i.at + timedelta(seconds=i.latency) for i in runs) - began).total_seconds()
        given_up = [line["nodeclaim"] for i in runs for line in i.logs if line["message"] == "Draining a node"]
        letters = len(world.dead_letters())
    how = f"{len(storm)} messages, {len(own)} about {len(ours)} own nodes, {len(garbage)} garbage, a tenth doubled"
    return [
        _row("storm worked off", "under 60 s", f"{seconds:.1f} s, {len(runs)} invocations", how),
        _row("own nodes handled once", str(len(ours)), f"{len(set(given_up))} nodes, {len(given_up)} times", how),
        _row("garbage in the dead-letter queue", str(len(garbage)), str(letters), how),
    ]


def _compared() -> list[Row]:
    found = []
    for seed in range(SEEDS):
        request = DemoRequest(seed=seed, quiet=True, interrupt=Interrupt(), elapsed=time.process_time)
        figures = Demo(request, Console(quiet=True)).run().interruptions
        if figures is not None:
            found.append(figures)
    how = f"`tenon demo --interrupt spot=all` with {SEEDS} seeds; nodes join after 20-35 s, ready 3-6 s later"
    return [
        _row(
            "from the warning until every pod runs elsewhere, replaced at once",
            "sooner than the next",
            _spread([f.seconds_warning_to_running for f in found]),
            how,
        ),
        _row(
            "the same, drained and then provisioned for",
            "later",
            _spread([f.seconds_drain_then_provision for f in found]),
            how,
        ),
        _row(
            "how much sooner, seed by seed",
            "more than 0 s",
            _spread([_less(f.seconds_warning_to_running, f.seconds_drain_then_provision) for f in found]),
            how,
        ),
        _row(
            "the longest that a pod was away, replaced at once", "-", _spread([f.seconds_pod_away for f in found]), how
        ),
        _row(
            "the same, drained and then provisioned for",
            "-",
            _spread([f.seconds_pod_away_drain_then_provision for f in found]),
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
    """Spot nodes with two vCPUs, which two of the pods fill."""
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


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else other - one


def _spread(values: list[float | None]) -> str:
    seconds = [v for v in values if v is not None]
    if not seconds:
        return "-"
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}-{max(seconds):.1f})"


def _row(figure: str, asked: str, measured: str, how: str) -> Row:
    return {"figure": figure, "asked": asked, "measured": measured, "how": how}
