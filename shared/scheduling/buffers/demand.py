"""How many chunks of a CapacityBuffer are wanted now, by its annotations.

The spec of a buffer gives the most chunks. Without annotations all are wanted; with some, as many as the one that wants
most: a schedule, a proportion to the cluster's size, or what was seen of a queue, an alarm or events. The rules are in
docs/capacity-buffers.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import buffer_signals, capacity_demand
from shared.api import labels as names
from shared.api.meta import condition
from shared.api.nodeclaim import INITIALIZED
from shared.api.pods import is_daemon, is_mirror, is_terminal, requests
from shared.api.quantity import CPU
from shared.api.standby import was_standby
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from shared.api.capacity_demand import Window
    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.snapshot import Snapshot

_ANNOTATIONS = frozenset(
    {
        names.SCHEDULE,
        names.PER_NODES,
        names.PER_CORES,
        names.MIN_CHUNKS,
        names.SQS_QUEUE,
        names.CLOUDWATCH_ALARM,
        names.EVENT,
    }
)
_MILLICORES = 1000
_UNKNOWN_LAUNCH = timedelta(minutes=2)
"""How long a launch takes where none has been seen: twice what an AL2023 node needs."""
_SWEEP = timedelta(seconds=90)
"""A window is noticed by the next sweep, which comes each minute and may take a while."""
_LONGEST_LEAD = timedelta(minutes=20)
"""A slow launch doesn't raise the cost of every window for ever."""
_PERCENTILE = 0.9


class Demand(Struct):
    """The chunks that one annotation wants, and why, for users. ``chunks`` None: all of the spec's."""

    annotation: str
    chunks: int | None
    why: str


def demands(annotations: Mapping[str, str], snapshot: Snapshot) -> tuple[Demand, ...]:
    """What each annotation of a valid buffer wants now; nothing where all chunks of the spec are wanted.

    Raises:
        QuantityError: a pod's requests can't be read.
    """
    if not _ANNOTATIONS & annotations.keys():
        return ()
    return tuple(_demands(annotations, snapshot))


def wanted(most: int, demands: Iterable[Demand]) -> int:
    """The chunks that are wanted of a spec with ``most``."""
    return max((min(most, most if d.chunks is None else d.chunks) for d in demands), default=most)


def _demands(annotations: Mapping[str, str], snapshot: Snapshot) -> Iterator[Demand]:
    if text := annotations.get(names.SCHEDULE):
        lead = lead_time(annotations, snapshot)
        yield from (_of_window(window, snapshot.taken_at, lead) for window in capacity_demand.windows(text))
    if text := annotations.get(names.PER_NODES):
        nodes = len({pod.spec.node_name for pod in _workload_pods(snapshot)})
        yield Demand(names.PER_NODES, capacity_demand.proportion(text).chunks(nodes), f"nodes with pods: {nodes}")
    if text := annotations.get(names.PER_CORES):
        cores = _requested_cores(snapshot)
        yield Demand(names.PER_CORES, capacity_demand.proportion(text).chunks(cores), f"cores requested: {cores}")
    if text := annotations.get(names.MIN_CHUNKS):
        yield Demand(names.MIN_CHUNKS, capacity_demand.count(text), "at any time")
    yield from _of_signals(annotations, snapshot.taken_at)


def _of_signals(annotations: Mapping[str, str], now: datetime) -> Iterator[Demand]:
    """What was seen of a queue, an alarm and events, as long as it holds."""
    signals, seen = buffer_signals.signals(annotations), buffer_signals.seen(annotations)
    if signals.queue:
        chunks = seen.queue_chunks if _holds(seen.queue_until, now) else 0
        yield Demand(names.SQS_QUEUE, chunks, _why(f"messages in queue {signals.queue}", seen.queue_until))
    if signals.alarm:
        all_or_none = None if _holds(seen.alarm_until, now) else 0
        yield Demand(names.CLOUDWATCH_ALARM, all_or_none, _why(f"alarm {signals.alarm}", seen.alarm_until))
    if signals.events:
        all_or_none = None if _holds(seen.event_until, now) else 0
        yield Demand(names.EVENT, all_or_none, _why(" or ".join(map(str, signals.events)), seen.event_until))


def _holds(until: datetime | None, now: datetime) -> bool:
    return until is not None and now < until


def _why(signal: str, until: datetime | None) -> str:
    return f"{signal}, until {until:%a %d %b %H:%M}" if until is not None else f"no {signal}"


def _of_window(window: Window, now: datetime, lead: timedelta) -> Demand:
    opens = window.opens_after(now)
    if window.is_open(now):
        return Demand(names.SCHEDULE, window.chunks, f"{window.text}: open")
    local = f"{opens.astimezone(window.time.zone):%a %d %b %H:%M}" if opens is not None else "never"
    if opens is not None and opens - now <= lead:
        minutes = -(-lead // timedelta(minutes=1))
        return Demand(names.SCHEDULE, window.chunks, f"{window.text}: opens {local}, bought {minutes} min before")
    return Demand(names.SCHEDULE, 0, f"{window.text}: opens {local}")


def lead_time(annotations: Mapping[str, str], snapshot: Snapshot) -> timedelta:
    """How long before a window the chunks are bought: as given, or as long as the slowest NodePool's launches take."""
    if text := annotations.get(names.LEAD_TIME):
        return capacity_demand.lead_time(text)
    remembered = (names.integer(p.metadata.annotations.get(names.LAUNCH_SECONDS, "")) for p in snapshot.node_pools)
    known = [seconds for seconds in remembered if seconds is not None]
    if known:
        launch = timedelta(seconds=min(max(known), _LONGEST_LEAD.total_seconds()))
    else:
        launch = launch_time(snapshot.node_claims) or _UNKNOWN_LAUNCH
    return min(launch + _SWEEP, _LONGEST_LEAD)


def launch_time(claims: Iterable[NodeClaim]) -> timedelta | None:
    """How long nine of ten NodeClaims took from creation to initialization; None if none is initialized."""
    times = sorted(_launch_times(claims))
    return times[int(_PERCENTILE * (len(times) - 1))] if times else None


def _launch_times(claims: Iterable[NodeClaim]) -> Iterator[timedelta]:
    for claim in claims:
        initialized = condition(claim.status.conditions, INITIALIZED)
        created = claim.metadata.creation_timestamp
        if initialized is None or initialized.status != "True" or created is None or was_standby(claim):
            continue
        if initialized.last_transition_time is not None:
            yield initialized.last_transition_time - created


def _workload_pods(snapshot: Snapshot) -> Iterator[Pod]:
    """The pods on nodes that take pods, without DaemonSets': what doesn't grow with the room that is kept."""
    schedulable = {node.metadata.name for node in snapshot.nodes if not node.spec.unschedulable}
    for pod in snapshot.pods:
        if pod.spec.node_name in schedulable and not (is_daemon(pod) or is_mirror(pod) or is_terminal(pod)):
            yield pod


def _requested_cores(snapshot: Snapshot) -> int:
    """The CPUs that pods request, rounded up."""
    millicores = sum(requests(pod).get(CPU, 0) for pod in _workload_pods(snapshot))
    return -(-millicores // _MILLICORES)
