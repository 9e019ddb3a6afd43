"""The demo's result, as the table at its end and as JSON.

It is computed from the local cluster's timeline (what the cluster and AWS observed), never from Tenon's own logs.
Times are seconds of cluster time unless a name says otherwise; prices are USD per hour.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.table import Table

from cli.demo import interruptions, unmet
from cli.demo.interruptions import Interruptions
from cli.demo.unmet import FalseCondition, PendingPods
from shared.base.plurals import plural
from shared.base.struct import Struct, WireStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from local.world import World
    from local.world.timeline import TimelineEvent

NAMESPACE = "default/"
"""The namespace of the workload; DaemonSets run in other namespaces."""


class LaunchedNode(WireStruct, kw_only=True):
    """One node that was launched."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float


class StepSpan(Struct, kw_only=True):
    """When a step began, came to rest (its last change before the cluster was idle; None: not idle) and ended.

    ``pending`` are the pods that were pending at its end.
    """

    label: str
    began: datetime
    rested: datetime | None
    ended: datetime
    pending: tuple[PendingPods, ...]


class StepResult(WireStruct, kw_only=True):
    """The result of one step; the names are the JSON's. ``seconds_to_rest`` is None if ``--rest`` ended it before.

    ``pending`` are the pods that were pending at its end.
    """

    step: str
    price_per_hour_at_end: float
    seconds_to_rest: float | None
    pending: tuple[PendingPods, ...]


class DemoResult(WireStruct, kw_only=True):
    """The demo's result; the names are the JSON's. None (null) means that nothing of the kind happened.

    Planned, bought and realised price (docs/glossary.md), ``rounds`` (decisions that created NodeClaims for pending
    pods) and the percentiles are those of the first step.
    """

    pods_scheduled: int
    nodes_launched: tuple[LaunchedNode, ...]
    create_fleet_calls: int
    seconds_pending_to_claim: float | None
    seconds_pending_to_running: float | None
    seconds_empty_to_terminated: float | None
    peak_cost_per_hour: float
    nodes_at_end: Mapping[str, tuple[str, ...]]
    instances_left: int
    dead_letters: int
    recursive_invocations_dropped: int
    duplicate_launches: int
    wall_seconds: float
    planned_price_per_hour: float
    bought_price_per_hour: float
    realised_price_per_hour: float
    rounds: int
    seconds_pending_to_running_p50: float | None
    seconds_pending_to_running_p99: float | None
    steps: tuple[StepResult, ...]
    conditions: tuple[FalseCondition, ...]
    interruptions: Interruptions | None = None

    @property
    def has_pending(self) -> bool:
        """Whether pods were pending at the end of a step."""
        return any(step.pending for step in self.steps)

    def unmet(self) -> Iterator[str]:
        """A line for what the run was asked for and didn't give: pods that stayed pending, and False conditions."""
        for step in self.steps:
            yield from (f"{step.step}: {pending.text}" for pending in step.pending)
        yield from (condition.text for condition in self.conditions)


def compute_result(
    world: World, spans: Sequence[StepSpan], *, price: Callable[[str, str, str], float], wall_seconds: float
) -> DemoResult:
    """The result of the run so far. ``price`` returns USD per hour of (instance type, zone, capacity type)."""
    events = world.timeline.all
    first = [e for e in events if spans[0].began <= e.at <= spans[0].ended]
    purchase = _purchase(first, price, ended=spans[0].ended)
    first_waits = sorted(_between(first, "pod created", "pod running"))
    launched = [e for e in events if e.type == "claim launched"]
    claimed = {e.details["instance"] for e in launched}
    unclaimed = [i.id for i in world.aws.instances.all if i.id not in claimed]
    return DemoResult(
        pods_scheduled=len({e.name for e in _workload(events, "pod bound")}),
        nodes_launched=tuple(_launched_node(e, price) for e in launched),
        create_fleet_calls=sum(e.type == "call" and e.name == "ec2 CreateFleet" for e in events),
        seconds_pending_to_claim=_maximum(_pending_to_claim(events)),
        seconds_pending_to_running=_maximum(_between(events, "pod created", "pod running")),
        seconds_empty_to_terminated=_maximum(_empty_to_gone(events)),
        peak_cost_per_hour=round(_peak_cost(events, price), 6),
        nodes_at_end=_pods_by_node(world),
        instances_left=len(world.instances()),
        recursive_invocations_dropped=len(world.recursive_invocations_dropped()),
        dead_letters=sum(e.type == "dead letter" for e in events),
        duplicate_launches=len(unclaimed) + len(launched) - len(claimed),
        wall_seconds=round(wall_seconds, 1),
        planned_price_per_hour=round(purchase.planned, 6),
        bought_price_per_hour=round(purchase.bought, 6),
        realised_price_per_hour=round(_cost_at(spans[0].ended, events, price), 6),
        rounds=purchase.rounds,
        seconds_pending_to_running_p50=_percentile(first_waits, 0.50),
        seconds_pending_to_running_p99=_percentile(first_waits, 0.99),
        steps=tuple(
            StepResult(
                step=span.label,
                price_per_hour_at_end=round(_cost_at(span.ended, events, price), 6),
                seconds_to_rest=None if span.rested is None else round((span.rested - span.began).total_seconds(), 1),
                pending=span.pending,
            )
            for span in spans
        ),
        interruptions=interruptions.compute(events),
        conditions=tuple(unmet.false_conditions(world)),
    )


def _pods_by_node(world: World) -> dict[str, tuple[str, ...]]:
    pods: dict[str, list[str]] = {n["metadata"]["name"]: [] for n in world.nodes()}
    for pod in world.pods():
        node = pod["spec"].get("nodeName", "")
        if node in pods and pod["metadata"]["namespace"] == "default":
            pods[node].append(pod["metadata"]["name"])
    return {node: tuple(sorted(names)) for node, names in sorted(pods.items())}


def _launched_node(launched: TimelineEvent, price: Callable[[str, str, str], float]) -> LaunchedNode:
    details = launched.details
    return LaunchedNode(
        instance_type=details["instance_type"],
        zone=details["zone"],
        capacity_type=details["capacity_type"],
        price=price(details["instance_type"], details["zone"], details["capacity_type"]),
    )


def _workload(events: Iterable[TimelineEvent], type_: str) -> list[TimelineEvent]:
    return [e for e in events if e.type == type_ and e.name.startswith(NAMESPACE)]


def _maximum(seconds: Iterable[float]) -> float | None:
    return round(max(seconds), 1) if (seconds := list(seconds)) else None


def _between(events: Sequence[TimelineEvent], first: str, second: str) -> list[float]:
    """The seconds between two events, for each workload pod that has both."""
    start = {e.name: e.at for e in _workload(events, first)}
    return [(e.at - start[e.name]).total_seconds() for e in _workload(events, second) if e.name in start]


def _pending_to_claim(events: Sequence[TimelineEvent]) -> list[float]:
    """The seconds from each pod's creation to that of its node's NodeClaim, if the pod was created first."""
    claim_by_node = {e.details["node"]: e.name for e in events if e.type == "claim registered"}
    claim_created = {e.name: e.at for e in events if e.type == "claim created"}
    pod_created = {e.name: e.at for e in _workload(events, "pod created")}
    seconds = []
    for bound in _workload(events, "pod bound"):
        claim_at = claim_created.get(claim_by_node.get(bound.details["node"], ""))
        pod_at = pod_created.get(bound.name)
        if claim_at is not None and pod_at is not None and claim_at >= pod_at:
            seconds.append((claim_at - pod_at).total_seconds())
    return seconds


def _empty_to_gone(events: Sequence[TimelineEvent]) -> list[float]:
    """The seconds from a node's last workload pod to the node's deletion."""
    last_pod: dict[str, datetime] = {}
    seconds = []
    for e in events:
        if e.type == "pod deleted" and e.name.startswith(NAMESPACE):
            last_pod[e.details["node"]] = e.at
        elif e.type == "node deleted" and e.name in last_pod:
            seconds.append((e.at - last_pod[e.name]).total_seconds())
    return seconds


class _Purchase(Struct):
    """USD per hour planned and bought, and the number of decisions."""

    planned: float
    bought: float
    rounds: int


def _purchase(
    events: Sequence[TimelineEvent], price: Callable[[str, str, str], float], *, ended: datetime
) -> _Purchase:
    """What was planned and bought for pending pods before the first of their nodes was up, and all rounds.

    What is bought later, for pods that the planned nodes didn't take, belongs to the realised price only. A NodeClaim
    without an instance was planned again.
    """
    created = {e.name: e for e in events if e.type == "claim created" and not e.details["is_replacement"]}
    launched = {e.name: _launched_node(e, price).price for e in events if e.type == "claim launched"}
    registered = [e.at for e in events if e.type == "claim registered" and e.name in created]
    up_at = min([*registered, ended])
    counted = [e for e in created.values() if e.name in launched and e.at <= up_at]
    return _Purchase(
        planned=sum(e.details["planned_price"] for e in counted),
        bought=sum(launched[e.name] for e in counted),
        rounds=len({e.details["decision"] for e in created.values()}),
    )


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    """The least of the ordered values that at least this share of them don't exceed."""
    return round(ordered[math.ceil(share * len(ordered)) - 1], 1) if ordered else None


def _cost_at(moment: datetime, events: Iterable[TimelineEvent], price: Callable[[str, str, str], float]) -> float:
    """USD per hour of the instances launched and not deleted at that moment."""
    cost_by_claim: dict[str, float] = {}
    for e in events:
        if e.type == "claim launched" and e.at <= moment:
            cost_by_claim[e.name] = _launched_node(e, price).price
        elif e.type == "claim deleted" and e.at <= moment:
            cost_by_claim.pop(e.name, None)
    return sum(cost_by_claim.values())


def _peak_cost(events: Sequence[TimelineEvent], price: Callable[[str, str, str], float]) -> float:
    cost_by_claim: dict[str, float] = {}
    peak = 0.0
    for e in events:
        if e.type == "claim launched":
            cost_by_claim[e.name] = _launched_node(e, price).price
            peak = max(peak, sum(cost_by_claim.values()))
        elif e.type == "claim deleted":
            cost_by_claim.pop(e.name, None)
    return peak


def table(result: DemoResult) -> Table:
    """The result as a table."""
    grid = Table(title="Results", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    launched = Counter(
        f"{n.instance_type} {n.capacity_type} {n.zone} at ${n.price:.4f}/h" for n in result.nodes_launched
    )
    rows = [
        ("pods scheduled", str(result.pods_scheduled)),
        ("nodes launched", ", ".join(f"{count} x {name}" for name, count in launched.items()) or "none"),
        ("CreateFleet calls", str(result.create_fleet_calls)),
        ("pending → NodeClaim", _seconds(result.seconds_pending_to_claim)),
        ("pending → running", _seconds(result.seconds_pending_to_running)),
        ("empty → terminated", _seconds(result.seconds_empty_to_terminated)),
        ("planned, bought, realised", _prices(result)),
        ("peak cost", f"${result.peak_cost_per_hour:.4f}/h"),
        ("instances left", str(result.instances_left)),
        ("dead letters", str(result.dead_letters)),
        ("duplicate launches", str(result.duplicate_launches)),
        *_interruption_rows(result.interruptions),
        ("real time", f"{result.wall_seconds:.1f} s"),
    ]
    for name, value in rows:
        grid.add_row(f"[dim]{name}[/dim]", value)
    return grid


def _prices(result: DemoResult) -> str:
    prices = (result.planned_price_per_hour, result.bought_price_per_hour, result.realised_price_per_hour)
    text = ", ".join(f"${price:.4f}/h" for price in prices)
    return f"{text} in {plural(result.rounds, 'round')} (first step)"


def _interruption_rows(interrupted: Interruptions | None) -> list[tuple[str, str]]:
    if interrupted is None:
        return []
    return [
        ("interrupted nodes", f"{interrupted.warned}, {interrupted.drained_in_time} drained in time"),
        ("warning → replacement", _seconds(interrupted.seconds_warning_to_replacement)),
        ("warning → drained", _seconds(interrupted.seconds_warning_to_drained)),
        ("warning → pods run on other nodes", _seconds(interrupted.seconds_warning_to_running)),
        ("… with drain first", _seconds(interrupted.seconds_drain_then_provision)),
        ("time without a pod", _seconds(interrupted.seconds_pod_away)),
        ("… with drain first", _seconds(interrupted.seconds_pod_away_drain_then_provision)),
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s (maximum)"
