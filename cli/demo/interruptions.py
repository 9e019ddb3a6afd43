"""``tenon demo --interrupt``: EC2 interrupts spot instances, and how soon their pods run on other nodes.

For comparison, a second local cluster handles the same interruption without replacing nodes first: it only drains the
interrupted nodes, and their pods are provisioned for when they are pending. Both times are shown.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.world import Options, World
from shared.base.struct import Struct, WireStruct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from local.world.timeline import TimelineEvent

NOTICE = timedelta(minutes=2)
"""Time between a spot interruption warning and the interruption."""
_NAMESPACE = "default/"
_COMPARISON_TIMEOUT = timedelta(minutes=15)


class Interrupt(Struct, kw_only=True):
    """How many spot instances EC2 interrupts; None: all."""

    count: int | None = None

    @classmethod
    def parse(cls, text: str) -> Interrupt:
        """``spot=all`` or ``spot=3``.

        Raises:
            ValueError: the text has another form.
        """
        kind, _, count = text.partition("=")
        if kind != "spot" or not (count == "all" or (count.isdigit() and int(count))):
            raise ValueError(f'--interrupt "{text}" is not of the form spot=all or spot=NUMBER')
        return cls(count=None if count == "all" else int(count))

    def choose(self, world: World) -> list[str]:
        """The ids of the instances to interrupt."""
        return [i.id for i in world.instances() if i.lifecycle == "spot"][: self.count]


class Interruptions(WireStruct, kw_only=True):
    """The result of spot interruptions; the names are the JSON's. Times are maxima, in seconds of cluster time.

    ``replacement_before_drain_end`` counts interrupted nodes that were still draining when the last replacement was
    launched, or that needed none. ``seconds_pod_away`` is how long a pod did not run, from the start of its termination
    until its successor runs. The last two are the same times for a cluster that drains first.
    """

    warned: int
    drained_in_time: int
    replacement_before_drain_end: int
    seconds_warning_to_replacement: float | None
    seconds_warning_to_drained: float | None
    seconds_warning_to_running: float | None
    seconds_pod_away: float | None
    seconds_drain_then_provision: float | None = None
    seconds_pod_away_drain_then_provision: float | None = None

    def compared_to(self, drain_first: Rescheduling | None) -> Interruptions:
        """The same with the times of the cluster that drains first."""
        if drain_first is None:
            return self
        return with_fields(
            self,
            seconds_drain_then_provision=drain_first.seconds_to_running,
            seconds_pod_away_drain_then_provision=drain_first.seconds_away,
        )


class Rescheduling(Struct, kw_only=True):
    """How the pods of some nodes were rescheduled, in seconds of cluster time; None if they were not.

    ``seconds_to_running`` lasts until as many pods as those nodes had run on other nodes. ``seconds_away`` is the
    longest time without a pod: the n-th pod that terminates is succeeded by the n-th that runs.
    """

    seconds_to_running: float | None = None
    seconds_away: float | None = None


def compute(events: Sequence[TimelineEvent]) -> Interruptions | None:
    """The interruptions of a timeline; None if there were none."""
    warnings = [e for e in events if e.type == "interruption"]
    if not warnings:
        return None
    warned_at = min(e.at for e in warnings)
    nodes = _nodes_of({e.name for e in warnings}, events)
    drained_at = _drain_ends(events, nodes, warned_at)
    last_launch = _last_replacement(events, warned_at)
    rescheduling = rescheduled(events, nodes, warned_at)
    return Interruptions(
        warned=len(warnings),
        drained_in_time=sum(at <= warned_at + NOTICE for at in drained_at.values()),
        replacement_before_drain_end=sum(last_launch is None or last_launch <= at for at in drained_at.values()),
        seconds_warning_to_replacement=_seconds(last_launch, warned_at),
        seconds_warning_to_drained=_seconds(max(drained_at.values(), default=None), warned_at),
        seconds_warning_to_running=rescheduling.seconds_to_running,
        seconds_pod_away=rescheduling.seconds_away,
    )


def _drain_ends(events: Iterable[TimelineEvent], nodes: set[str], warned_at: datetime) -> dict[str, datetime]:
    """When the last workload pod of each node was gone; the time of the warning if it had none."""
    ends = dict.fromkeys(nodes, warned_at)
    for event in events:
        if (
            event.type == "pod deleted"
            and event.at >= warned_at
            and event.details["node"] in nodes
            and _is_workload(event)
        ):
            ends[event.details["node"]] = event.at
    return ends


def _last_replacement(events: Sequence[TimelineEvent], warned_at: datetime) -> datetime | None:
    """The last launch of NodeClaims that were created between the warning and the interruption."""
    end = warned_at + NOTICE
    created = {e.name for e in events if e.type == "claim created" and warned_at <= e.at <= end}
    return max((e.at for e in events if e.type == "claim launched" and e.name in created), default=None)


def rescheduled(events: Sequence[TimelineEvent], nodes: Iterable[str], since: datetime) -> Rescheduling:
    """How the workload pods of those nodes were rescheduled after a moment."""
    nodes = set(nodes)
    node_by_pod = _bindings(events, since)
    terminated_at: dict[str, datetime] = {}
    running_at: list[datetime] = []
    for event in events:
        if event.at < since or not _is_workload(event):
            continue
        if event.type in ("pod terminating", "pod deleted") and event.details["node"] in nodes:
            terminated_at.setdefault(event.name, event.at)
        elif event.type == "pod running" and event.details["node"] not in nodes:
            running_at.append(event.at)
    count = sum(node in nodes for node in node_by_pod.values())
    if not 0 < count <= len(running_at):
        return Rescheduling()
    running_at.sort()
    away = [
        _seconds(running, terminated) or 0.0
        for terminated, running in zip(sorted(terminated_at.values()), running_at, strict=False)
    ]
    return Rescheduling(seconds_to_running=_seconds(running_at[count - 1], since), seconds_away=max(away, default=None))


def _bindings(events: Iterable[TimelineEvent], before: datetime) -> dict[str, str]:
    """The node of each workload pod at a moment."""
    node_by_pod: dict[str, str] = {}
    for event in events:
        if event.at >= before or not _is_workload(event):
            continue
        if event.type == "pod bound":
            node_by_pod[event.name] = event.details["node"]
        elif event.type == "pod deleted":
            node_by_pod.pop(event.name, None)
    return node_by_pod


def drain_then_provision(
    objects: Sequence[dict[str, Any]],
    replicas: Mapping[str, int],
    interrupt: Interrupt,
    *,
    cluster: str,
    region: str,
    seed: int,
    elapsed: Callable[[], float],
) -> Rescheduling:
    """How the pods of the same cluster are rescheduled if interrupted nodes are drained first.

    ``replicas`` are those of Deployments, by name, during the interruption.
    """
    with World(cluster=cluster, region=region, seed=seed, options=Options(elapsed=elapsed)) as world:
        world.apply(objects)
        for name, count in replicas.items():
            world.scale("default", name, count)
        world.run_until_idle()
        instance_ids = set(interrupt.choose(world))
        nodes = _nodes_of(instance_ids, world.timeline.all)
        pod_count = len(world.pods(phase="Running"))
        since = world.clock.now()
        kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
        for claim in world.claims():
            if claim["status"].get("nodeName") in nodes:
                world.store.delete(kind, claim["metadata"]["name"])
        world.run_until(
            lambda: (
                rescheduled(world.timeline.all, nodes, since).seconds_to_running is not None
                or (world.is_idle() and len(world.pods(phase="Running")) >= pod_count)
            ),
            limit=_COMPARISON_TIMEOUT,
        )
        return rescheduled(world.timeline.all, nodes, since)


def _nodes_of(instance_ids: set[str], events: Iterable[TimelineEvent]) -> set[str]:
    claims = set()
    nodes = set()
    for event in events:
        if event.type == "claim launched" and event.details["instance"] in instance_ids:
            claims.add(event.name)
        elif event.type == "claim registered" and event.name in claims:
            nodes.add(event.details["node"])
    return nodes


def _is_workload(event: TimelineEvent) -> bool:
    return event.name.startswith(_NAMESPACE)


def _seconds(moment: datetime | None, since: datetime) -> float | None:
    return None if moment is None else round((moment - since).total_seconds(), 1)
