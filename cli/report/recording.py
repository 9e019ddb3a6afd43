"""What a report is made of: nodes from their first to their last moment, samples of cost and pods, and decisions.

Times are seconds since ``start``; prices USD per hour. It is kept as JSON, so that a run can be looked at later.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path  # noqa: TC003 (beside it)

import msgspec

from cli.errors import UsageError

VERSION = 1


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. ``asked``, ``launched``, ``ready``, ``leaving`` and ``gone`` are None where that wasn't seen."""

    name: str
    pool: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: float | None = None
    asked: float | None = None
    launched: float | None = None
    ready: float | None = None
    leaving: float | None = None
    gone: float | None = None
    most_pods: int = 0
    why: str = ""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The sums from this moment to the next: cost, the least that the placed pods could cost, pods on nodes, pending.

    None: not known.
    """

    at: float
    cost: float
    bound: float | None = None
    placed: int | None = None
    pending: int | None = None


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a node: ``outcome`` is taken, refused or undone; ``savings`` USD per hour."""

    at: float
    node: str
    outcome: str
    reason: str
    why: str
    savings: float | None = None


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A moment with a name, such as a step of the demo."""

    at: float
    label: str


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows. ``notes`` say what is missing from it, and why."""

    version: int = VERSION
    title: str
    start: datetime
    end: float
    spans: list[Span] = []
    samples: list[Sample] = []
    decisions: list[Decided] = []
    marks: list[Mark] = []
    notes: list[str] = []


def write(recording: Recording, path: Path) -> None:
    """Keep it.

    Raises:
        UsageError: the file can't be written.
    """
    try:
        path.write_bytes(msgspec.json.encode(recording))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def read(path: Path) -> Recording:
    """A recording that was kept.

    Raises:
        UsageError: there is no such file, or it is no recording.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Recording)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}: not a recording of `tenon demo --record`: {error}") from error
    if found.version != VERSION:
        raise UsageError(f"{path}: a recording of version {found.version}, and this is version {VERSION}")
    return found


def spent(recording: Recording) -> tuple[float, float | None]:
    """USD that were paid in all, and the least that they could have been; None if that isn't known."""
    total, least, known = 0.0, 0.0, False
    last = Sample(recording.end, 0.0)
    for sample, following in pairwise([*recording.samples, last]):
        hours = max(0.0, following.at - sample.at) / 3600
        total += sample.cost * hours
        if sample.bound is not None:
            least += sample.bound * hours
            known = True
    return total, least if known else None
