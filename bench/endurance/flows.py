"""What flows while a world runs: invocations, messages, requests, log lines and metric series.

The records of the local world itself are emptied at each reading, so that a week fits into memory.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.kubernetes.objects import Change
    from local.world import World


class Flow(Struct, kw_only=True):
    """What happened since the last reading. ``series`` are CloudWatch metrics with their dimensions, each once."""

    invocations: Counter[str]
    messages: int
    calls: Counter[tuple[str, str]]
    writes: Counter[str]
    log_bytes: int
    failures: tuple[str, ...]
    series: frozenset[str]


class Flows:
    """Reads the flow of a world, from its making on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._writes: Counter[str] = Counter()
        world.store.subscribe(self._change)

    def read(self) -> Flow:
        """The flow since the last reading."""
        world, invocations = self._world, list(self._world.aws.functions.invocations)
        flow = Flow(
            invocations=Counter(i.function for i in invocations),
            messages=len(world.aws.queues.delivered),
            calls=Counter((c.caller, c.operation) for c in world.aws.calls.all if c.caller),
            writes=Counter(self._writes),
            log_bytes=sum(len(i.output.encode()) for i in invocations),
            failures=tuple(world.failures()),
            series=frozenset(name for i in invocations for line in i.metrics for name in _series(line)),
        )
        self._writes.clear()
        for records in (
            world.aws.functions.invocations,
            world.aws.queues.delivered,
            world.aws.event_buses.deliveries,
            world.aws.calls.all,
            world.aws.fleets.calls,
            world.timeline.all,
        ):
            records.clear()
        return flow

    def _change(self, change: Change) -> None:
        self._writes[f"{change.type.lower()} {change.kind.kind}"] += 1


def _series(line: Mapping[str, Any]) -> list[str]:
    """The metrics of a line in embedded metric format, each with the values of its dimensions."""
    return [
        f"{directive['Namespace']}/{metric['Name']}{ {name: line[name] for name in dimensions} }"
        for directive in line["_aws"]["CloudWatchMetrics"]
        for dimensions in directive["Dimensions"]
        for metric in directive["Metrics"]
    ]
