"""What came of a demo, in figures: the table at its end and its JSON.

Everything is computed from the world's timeline (what the cluster and AWS saw), never from what Tenon says of itself.
Times are seconds of cluster time unless a name says otherwise; prices USD per hour.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cli.demo import interruptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from cli.demo.interruptions import Interruptions
    from local.world.timeline import TimelineEvent

NAMESPACE = "default/"
"""Pods of this namespace are the workload; daemons live elsewhere."""


@dataclass(frozen=True, kw_only=True)
class LaunchedNode:
    """One node that was launched."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The demo's result; the names are the JSON's. None where nothing of the kind happened."""

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
    duplicate_launches: int
    wall_seconds: float
    interruptions: Interruptions | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values, as the JSON line has them."""
        return asdict(self)


def compute(
    happenings: Sequence[TimelineEvent],
    *,
    price: Callable[[str, str, str], float],
    nodes_at_end: Mapping[str, tuple[str, ...]],
    instances: Sequence[str],
    instances_left: int,
    wall_seconds: float,
) -> Figures:
    """The figures of a timeline.

    ``price`` gives USD per hour of (instance type, zone, capacity type); ``instances`` are the ids of all that were
    ever launched.
    """
    launched = [h for h in happenings if h.type == "claim launched"]
    nodes = tuple(_launched_node(h, price) for h in launched)
    held = {h.details["instance"] for h in launched}
    return Figures(
        pods_scheduled=len({h.name for h in _workload(happenings, "pod bound")}),
        nodes_launched=nodes,
        create_fleet_calls=sum(1 for h in happenings if h.type == "call" and h.name == "ec2 CreateFleet"),
        seconds_pending_to_claim=_longest(_pending_to_claim(happenings)),
        seconds_pending_to_running=_longest(_between(happenings, "pod created", "pod running")),
        seconds_empty_to_terminated=_longest(_empty_to_gone(happenings)),
        peak_cost_per_hour=round(_peak_cost(happenings, price), 6),
        nodes_at_end=nodes_at_end,
        instances_left=instances_left,
        dead_letters=sum(1 for h in happenings if h.type == "dead letter"),
        duplicate_launches=len([i for i in instances if i not in held]) + len(launched) - len(held),
        wall_seconds=round(wall_seconds, 1),
        interruptions=interruptions.compute(happenings),
    )


def _launched_node(launched: TimelineEvent, price: Callable[[str, str, str], float]) -> LaunchedNode:
    about = launched.details
    return LaunchedNode(
        instance_type=about["instance_type"],
        zone=about["zone"],
        capacity_type=about["capacity_type"],
        price=price(about["instance_type"], about["zone"], about["capacity_type"]),
    )


def _workload(happenings: Iterable[TimelineEvent], what: str) -> list[TimelineEvent]:
    return [h for h in happenings if h.type == what and h.name.startswith(NAMESPACE)]


def _longest(seconds: Iterable[float]) -> float | None:
    return round(max(seconds), 1) if (seconds := list(seconds)) else None


def _between(happenings: Sequence[TimelineEvent], first: str, then: str) -> list[float]:
    """For each workload pod that both happened to: the seconds from one to the other."""
    start = {h.name: h.at for h in _workload(happenings, first)}
    return [(h.at - start[h.name]).total_seconds() for h in _workload(happenings, then) if h.name in start]


def _pending_to_claim(happenings: Sequence[TimelineEvent]) -> list[float]:
    """For each pod that runs on a node made after the pod was: the seconds from the pod to that node's claim."""
    claim_of = {h.details["node"]: h.name for h in happenings if h.type == "claim registered"}
    created = {h.name: h.at for h in happenings if h.type == "claim created"}
    pods = {h.name: h.at for h in _workload(happenings, "pod created")}
    waits = []
    for bound in _workload(happenings, "pod bound"):
        asked = created.get(claim_of.get(bound.details["node"], ""))
        if asked is not None and bound.name in pods and asked >= pods[bound.name]:
            waits.append((asked - pods[bound.name]).total_seconds())
    return waits


def _empty_to_gone(happenings: Sequence[TimelineEvent]) -> list[float]:
    """For each node that is gone: the seconds since its last workload pod was."""
    last: dict[str, datetime] = {}
    waits = []
    for h in happenings:
        if h.type == "pod gone" and h.name.startswith(NAMESPACE):
            last[h.details["node"]] = h.at
        elif h.type == "node gone" and h.name in last:
            waits.append((h.at - last[h.name]).total_seconds())
    return waits


def _peak_cost(happenings: Sequence[TimelineEvent], price: Callable[[str, str, str], float]) -> float:
    costs: dict[str, float] = defaultdict(float)
    peak = 0.0
    for h in happenings:
        if h.type == "claim launched":
            costs[h.name] = _launched_node(h, price).price
            peak = max(peak, sum(costs.values()))
        elif h.type == "claim gone":
            costs.pop(h.name, None)
    return peak
