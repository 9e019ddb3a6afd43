"""``tenon demo --interrupt``: EC2 takes machines back, and how soon their pods run elsewhere.

Beside the demo's own world a second one plays the same without replacements at once: the same machines are only drained
there, and what they ran is launched for once it is pending. Both times are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from typing import Any

    from local.world.timeline import Happening

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
    launched, or that needed none. ``seconds_drain_then_provision`` is what ``seconds_warning_to_running`` would be
    without replacements at once.
    """

    warned: int
    drained_in_time: int
    replacement_before_drain_end: int
    seconds_warning_to_replacement: float | None
    seconds_warning_to_drained: float | None
    seconds_warning_to_running: float | None
    seconds_drain_then_provision: float | None = None

    def compared(self, seconds: float | None) -> Interruptions:
        """With the time of a world that only drains."""
        return replace(self, seconds_drain_then_provision=seconds)


def compute(happenings: Sequence[Happening]) -> Interruptions | None:
    """The figures of a timeline; None: nothing was interrupted."""
    warnings = [h for h in happenings if h.what == "interruption"]
    if not warnings:
        return None
    warned_at = min(h.at for h in warnings)
    nodes = _nodes_of({h.name for h in warnings}, happenings)
    drained = dict.fromkeys(nodes, warned_at)
    for h in happenings:
        if h.what == "pod gone" and h.at >= warned_at and h.about["node"] in nodes and _is_workload(h):
            drained[h.about["node"]] = h.at
    created = {h.name for h in happenings if h.what == "claim created" and warned_at <= h.at <= warned_at + NOTICE}
    launched = [h.at for h in happenings if h.what == "claim launched" and h.name in created]
    replaced = max(launched, default=None)
    return Interruptions(
        warned=len(warnings),
        drained_in_time=sum(at <= warned_at + NOTICE for at in drained.values()),
        replacement_before_drain_end=sum(replaced is None or replaced <= at for at in drained.values()),
        seconds_warning_to_replacement=_seconds(replaced, warned_at),
        seconds_warning_to_drained=_seconds(max(drained.values(), default=None), warned_at),
        seconds_warning_to_running=running_again(happenings, nodes, warned_at),
    )


def running_again(happenings: Sequence[Happening], nodes: Iterable[str], since: datetime) -> float | None:
    """Seconds until as many workload pods as those nodes had have begun to run elsewhere; None: they haven't."""
    nodes = set(nodes)
    on: dict[str, str] = {}
    for h in happenings:
        if h.at >= since:
            break
        if h.what == "pod bound" and _is_workload(h):
            on[h.name] = h.about["node"]
        elif h.what == "pod gone":
            on.pop(h.name, None)
    lost = sum(node in nodes for node in on.values())
    elsewhere = [
        h.at
        for h in happenings
        if h.what == "pod running" and h.at >= since and _is_workload(h) and h.about["node"] not in nodes
    ]
    return _seconds(sorted(elsewhere)[lost - 1], since) if 0 < lost <= len(elsewhere) else None


def drain_then_provision(
    docs: Sequence[dict[str, Any]],
    scale: tuple[str, int],
    interrupt: Interrupt,
    *,
    cluster: str,
    region: str,
    seed: int,
) -> float | None:
    """``seconds_warning_to_running`` of the same cluster if the warned machines were only drained.

    ``scale`` is the deployment, if there is one, and the replicas at which the interruption comes.
    """
    with World(cluster=cluster, region=region, seed=seed) as world:
        world.apply(docs)
        if world.store.find(kinds.DEPLOYMENTS, scale[0], namespace="default") is not None:
            world.scale("default", *scale)
        world.run_until_rest()
        taken = set(interrupt.choose(world))
        nodes = _nodes_of(taken, world.events.all)
        pods = len(world.pods(phase="Running"))
        since = world.clock.now()
        kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
        for claim in world.claims():
            if claim["status"].get("nodeName") in nodes:
                world.store.delete(kind, claim["metadata"]["name"])
        world.run_until(
            lambda: (
                running_again(world.events.all, nodes, since) is not None
                or (world.at_rest() and len(world.pods(phase="Running")) >= pods)
            ),
            limit=_PATIENCE,
        )
        return running_again(world.events.all, nodes, since)


def _nodes_of(instances: set[str], happenings: Iterable[Happening]) -> set[str]:
    claims = set()
    nodes = set()
    for h in happenings:
        if h.what == "claim launched" and h.about["instance"] in instances:
            claims.add(h.name)
        elif h.what == "claim registered" and h.name in claims:
            nodes.add(h.about["node"])
    return nodes


def _is_workload(h: Happening) -> bool:
    return h.name.startswith(_NAMESPACE)


def _seconds(moment: datetime | None, since: datetime) -> float | None:
    return None if moment is None else round((moment - since).total_seconds(), 1)
