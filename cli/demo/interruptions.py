"""``tenon demo --interrupt``: EC2 takes machines back, and how soon their pods run elsewhere.

Beside the demo's own world a second one plays the same without replacements at once: the same machines are only drained
there, and what they ran is launched for once it is pending. Both times are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.world import Options, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from typing import Any

    from local.world.timeline import TimelineEvent

NOTICE = timedelta(minutes=2)
_NAMESPACE = "default/"
_PATIENCE = timedelta(minutes=15)


@dataclass(frozen=True, kw_only=True)
class Interrupt:
    """How many spot instances EC2 takes back; None: all."""

    count: int | None = None

    @classmethod
    def parse(cls, text: str) -> Interrupt:
        """``spot=all`` or ``spot=3``.

        Raises:
            ValueError: not of that form.
        """
        kind, _, count = text.partition("=")
        if kind != "spot" or not (count == "all" or (count.isdigit() and int(count))):
            raise ValueError(f'--interrupt "{text}" is not of the form spot=all or spot=NUMBER')
        return cls(count=None if count == "all" else int(count))

    def choose(self, world: World) -> list[str]:
        """The ids of the spot instances that are taken back."""
        return [i.id for i in world.instances() if i.lifecycle == "spot"][: self.count]


@dataclass(frozen=True, kw_only=True)
class Interruptions:
    """What came of spot warnings; the names are the JSON's. Times are the longest, in seconds of cluster time.

    ``replacement_before_drain_end`` counts warned nodes that were still draining when the last replacement was
    launched, or that needed none. ``seconds_pod_away`` is how long a pod did not run, from where it was told to stop to
    where its successor runs. The last two are what both times would be without replacements at once.
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

    def compared(self, other: Moved | None) -> Interruptions:
        """With the times of a world that only drains."""
        if other is None:
            return self
        return replace(
            self,
            seconds_drain_then_provision=other.seconds_to_running,
            seconds_pod_away_drain_then_provision=other.seconds_away,
        )


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How pods came from some nodes to others, in seconds of cluster time; None where they haven't.

    ``seconds_to_running`` is until as many as those nodes had have begun to run elsewhere, ``seconds_away`` the longest
    that one was gone: the n-th that leaves is followed by the n-th that comes.
    """

    seconds_to_running: float | None = None
    seconds_away: float | None = None


def compute(happenings: Sequence[TimelineEvent]) -> Interruptions | None:
    """The figures of a timeline; None: nothing was interrupted."""
    warnings = [h for h in happenings if h.type == "interruption"]
    if not warnings:
        return None
    warned_at = min(h.at for h in warnings)
    nodes = _nodes_of({h.name for h in warnings}, happenings)
    drained = dict.fromkeys(nodes, warned_at)
    for h in happenings:
        if h.type == "pod gone" and h.at >= warned_at and h.details["node"] in nodes and _is_workload(h):
            drained[h.details["node"]] = h.at
    created = {h.name for h in happenings if h.type == "claim created" and warned_at <= h.at <= warned_at + NOTICE}
    launched = [h.at for h in happenings if h.type == "claim launched" and h.name in created]
    replaced = max(launched, default=None)
    moved = follow(happenings, nodes, warned_at)
    return Interruptions(
        warned=len(warnings),
        drained_in_time=sum(at <= warned_at + NOTICE for at in drained.values()),
        replacement_before_drain_end=sum(replaced is None or replaced <= at for at in drained.values()),
        seconds_warning_to_replacement=_seconds(replaced, warned_at),
        seconds_warning_to_drained=_seconds(max(drained.values(), default=None), warned_at),
        seconds_warning_to_running=moved.seconds_to_running,
        seconds_pod_away=moved.seconds_away,
    )


def follow(happenings: Sequence[TimelineEvent], nodes: Iterable[str], since: datetime) -> Moved:
    """How the workload pods of those nodes have come to run elsewhere."""
    nodes = set(nodes)
    on: dict[str, str] = {}
    left: dict[str, datetime] = {}
    back: list[datetime] = []
    for h in happenings:
        if not _is_workload(h):
            continue
        if h.at < since:
            if h.type == "pod bound":
                on[h.name] = h.details["node"]
            elif h.type == "pod gone":
                on.pop(h.name, None)
        elif h.type in ("pod leaving", "pod gone") and h.details["node"] in nodes:
            left.setdefault(h.name, h.at)
        elif h.type == "pod running" and h.details["node"] not in nodes:
            back.append(h.at)
    lost = sum(node in nodes for node in on.values())
    if not 0 < lost <= len(back):
        return Moved()
    back.sort()
    away = [_seconds(there, gone) or 0.0 for gone, there in zip(sorted(left.values()), back, strict=False)]
    return Moved(seconds_to_running=_seconds(back[lost - 1], since), seconds_away=max(away, default=None))


def drain_then_provision(
    docs: Sequence[dict[str, Any]],
    scale: tuple[str, int],
    interrupt: Interrupt,
    *,
    cluster: str,
    region: str,
    seed: int,
    elapsed: Callable[[], float],
) -> Moved:
    """What becomes of the same cluster's pods if the warned machines are only drained.

    ``scale`` is the deployment, if there is one, and the replicas at which the interruption comes.
    """
    with World(cluster=cluster, region=region, seed=seed, options=Options(elapsed=elapsed)) as world:
        world.apply(docs)
        if world.store.find(kinds.DEPLOYMENTS, scale[0], namespace="default") is not None:
            world.scale("default", *scale)
        world.run_until_idle()
        taken = set(interrupt.choose(world))
        nodes = _nodes_of(taken, world.timeline.all)
        pods = len(world.pods(phase="Running"))
        since = world.clock.now()
        kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
        for claim in world.claims():
            if claim["status"].get("nodeName") in nodes:
                world.store.delete(kind, claim["metadata"]["name"])
        world.run_until(
            lambda: (
                follow(world.timeline.all, nodes, since).seconds_to_running is not None
                or (world.is_idle() and len(world.pods(phase="Running")) >= pods)
            ),
            limit=_PATIENCE,
        )
        return follow(world.timeline.all, nodes, since)


def _nodes_of(instances: set[str], happenings: Iterable[TimelineEvent]) -> set[str]:
    claims = set()
    nodes = set()
    for h in happenings:
        if h.type == "claim launched" and h.details["instance"] in instances:
            claims.add(h.name)
        elif h.type == "claim registered" and h.name in claims:
            nodes.add(h.details["node"])
    return nodes


def _is_workload(h: TimelineEvent) -> bool:
    return h.name.startswith(_NAMESPACE)


def _seconds(moment: datetime | None, since: datetime) -> float | None:
    return None if moment is None else round((moment - since).total_seconds(), 1)
