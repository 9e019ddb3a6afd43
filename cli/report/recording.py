"""The data of a report: nodes over their lifetime, samples of cost and pods, and disruption decisions.

Times are seconds since ``start``, prices USD per hour. A recording is saved as JSON.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path  # noqa: TC003 (next to it)
from typing import TYPE_CHECKING

import msgspec

from cli.errors import UsageError
from cli.file_contents import read_bytes
from cli.report.costs import RecordedCosts
from cli.report.traffic import RecordedTraffic
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from shared.base.decision_log import DecisionRecord, LaunchRecord

VERSION = 1
_MAX_SECONDS = 366 * 86_400


class NodeSpan(
    msgspec.Struct, frozen=True, kw_only=True, rename={"created": "asked", "deleted": "leaving", "terminated": "gone"}
):
    """The lifetime of one node; a time is None if it is unknown.

    ``created`` and ``deleted`` are those of its NodeClaim, ``ready`` is when that was initialized, ``terminated`` when
    the instance was. ``chunks`` of CapacityBuffers have their room on it at the end. The file has other names for some
    of them.
    """

    name: str
    pool: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: float | None = None
    created: float | None = None
    launched: float | None = None
    ready: float | None = None
    deleted: float | None = None
    terminated: float | None = None
    most_pods: int = 0
    chunks: int = 0
    why: str = ""


class Sample(WireStruct, array_like=True):
    """Totals from this moment to the next: cost, its lower bound, scheduled pods, pending pods. None: unknown."""

    at: float
    cost: float
    lower_bound: float | None = None
    scheduled: int | None = None
    pending: int | None = None


class RecordedDecision(WireStruct, kw_only=True):
    """A disruption decision: ``outcome`` is taken, refused or undone; ``savings`` are USD per hour.

    ``pods`` and ``nodes`` are those of the whole command; an object blocks it where ``blocked_by`` isn't "".
    """

    at: float
    node: str
    outcome: str
    reason: str
    why: str
    savings: float | None = None
    pods: int = 0
    nodes: int = 0
    blocked_by: str = ""

    @classmethod
    def of(cls, record: DecisionRecord, at: float) -> RecordedDecision:
        """As the decision log has it."""
        return cls(
            at=at,
            node=record.node,
            outcome=record.outcome,
            reason=record.reason,
            why=record.why,
            savings=record.savings,
            pods=record.pods,
            nodes=record.nodes,
            blocked_by=record.blocked_by,
        )


class RecordedLaunches(WireStruct, kw_only=True):
    """The launches of one decision; prices in USD per hour (:class:`shared.base.decision_log.LaunchRecord`)."""

    at: float
    pods: int
    nodes: int
    planned: float
    bought: float
    before: float
    realised: float | None = None

    @classmethod
    def of(cls, record: LaunchRecord, at: float) -> RecordedLaunches:
        """As the decision log has them."""
        return cls(
            at=at,
            pods=record.pods,
            nodes=record.nodes,
            planned=record.planned,
            bought=record.bought,
            before=record.before,
            realised=record.realised,
        )


class Mark(WireStruct, array_like=True):
    """A labelled moment, such as a step of the demo."""

    at: float
    label: str


class _Version(WireStruct):
    """The version alone: the other fields of another version may have other shapes."""

    version: int = VERSION


class Recording(WireStruct, kw_only=True):
    """The data of a report. ``notes`` say what is missing, and why.

    ``traffic`` and ``costs`` of namespaces are those at the end, None of a demo.

    ``is_live``: of a cluster whose times are read from a clock, not from the start of a run.
    """

    version: int = VERSION
    title: str
    is_live: bool = False
    start: datetime
    end: float
    spans: list[NodeSpan] = []
    samples: list[Sample] = []
    decisions: list[RecordedDecision] = []
    launches: list[RecordedLaunches] = []
    marks: list[Mark] = []
    notes: list[str] = []
    traffic: RecordedTraffic | None = None
    costs: RecordedCosts | None = None


def write(recording: Recording, path: Path) -> None:
    """Save the recording.

    Raises:
        UsageError: the file can't be written.
    """
    try:
        path.write_bytes(msgspec.json.encode(recording))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def read(path: Path) -> Recording:
    """A saved recording.

    Raises:
        UsageError: the file doesn't exist, or is not a recording.
    """
    data = read_bytes(path)
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != VERSION:
            raise UsageError(f"{path}: a recording of version {version}; version {VERSION} is required")
        recording = msgspec.json.decode(data, type=Recording)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}: not a recording of `tenon demo --record`: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: lists and maps are nested too deeply") from error
    if not 0 <= recording.end <= _MAX_SECONDS:
        raise UsageError(f"{path}: not a recording of `tenon demo --record`: end is {recording.end:g} seconds")
    return recording


def total_cost(recording: Recording) -> tuple[float, float | None]:
    """USD in total, and the lower bound of it; None if that is unknown for some of the time, or nothing was paid."""
    total, lower_bound, is_known = 0.0, 0.0, True
    end = Sample(recording.end, 0.0)
    for sample, next_sample in pairwise([*recording.samples, end]):
        hours = max(0.0, next_sample.at - sample.at) / 3600
        total += sample.cost * hours
        if sample.lower_bound is not None:
            lower_bound += sample.lower_bound * hours
        else:
            is_known = is_known and not hours
    return total, lower_bound if is_known and total else None
