"""Pods over time as CSV: what a cluster had to run, second by second.

The columns ``name``, ``cpu_milli``, ``memory_mib``, ``num_gpu``, ``creation_time`` and ``deletion_time`` are those of
the pod lists of Alibaba's cluster-trace-gpu-v2023 (``openb_pod_list_*.csv``), which can be replayed as they are. Times
are seconds since the trace's start. ``priority``, ``workload`` (``Deployment/NAME/REVISION`` or ``Job/NAME``) and
``zone_spread`` (maxSkew over zones) may be left out, and so may be their values. All other columns are ignored.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

REQUIRED = ("name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time")
OPTIONAL = ("priority", "workload", "zone_spread")
_MAX_PROBLEMS = 20
_KINDS = {"Deployment": 3, "Job": 2}
"""Kinds of workloads, and the parts of their names."""


class TraceError(Exception):
    """The file isn't a trace: it can't be read, or lacks a column."""


class TracePod(Struct, kw_only=True):
    """A pod that exists from ``created`` to ``deleted`` (seconds since the trace's start).

    ``cpu`` is in milli-cpu, ``memory`` in MiB, ``gpus`` are whole ones. ``zone_spread`` is maxSkew over zones, 0: none.
    """

    name: str
    cpu: int
    memory: int
    gpus: int
    created: int
    deleted: int
    priority: int = 0
    workload: str = ""
    zone_spread: int = 0


class Trace(Struct, kw_only=True):
    """The pods, sorted by creation, and why rows of the file were left out."""

    pods: tuple[TracePod, ...]
    problems: tuple[str, ...] = ()

    def window(self, start: int, seconds: int) -> Trace:
        """The pods that exist within the window, with times since its start; both are in seconds.

        Those that existed before are created at its start.
        """
        shifted = (
            with_fields(p, created=max(p.created - start, 0), deleted=p.deleted - start)
            for p in self.pods
            if p.created < start + seconds and p.deleted > start
        )
        return Trace(pods=_sorted(shifted), problems=self.problems)


def read(path: Path) -> Trace:
    """The trace in a CSV file; rows with errors are left out, with line and column in ``problems``.

    Raises:
        TraceError: the file can't be read, or lacks a column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            missing = [c for c in REQUIRED if c not in (rows.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}: no column {', '.join(missing)}; required: {', '.join(REQUIRED)}")
            return _parsed(path, ((rows.line_num, row) for row in rows))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: not CSV: {error}") from error


def write(trace: Trace, path: Path) -> None:
    """Write the trace as CSV, as :func:`read` reads it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*REQUIRED, *OPTIONAL))
        for p in trace.pods:
            times = p.created, p.deleted
            writer.writerow(
                (p.name, p.cpu, p.memory, p.gpus, *times, p.priority or "", p.workload, p.zone_spread or "")
            )


def _parsed(path: Path, rows: Iterable[tuple[int, Mapping[str, str | None]]]) -> Trace:
    pods: dict[str, TracePod] = {}
    problems: list[str] = []
    count = 0
    for line, row in rows:
        try:
            pod = _pod(row, pods)
        except _RowError as error:
            count += 1
            if count <= _MAX_PROBLEMS:
                problems.append(f"{path}: line {line}, column {error.column}: {error}")
            continue
        pods[pod.name] = pod
    if count > _MAX_PROBLEMS:
        problems.append(f"{path}: {count - _MAX_PROBLEMS} more rows have errors")
    return Trace(pods=_sorted(pods.values()), problems=tuple(problems))


class _RowError(Exception):
    """A value of a row can't be used."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def _pod(row: Mapping[str, str | None], earlier: Mapping[str, TracePod]) -> TracePod:
    name = (row["name"] or "").strip()
    if not name:
        raise _RowError("name", "it is empty")
    if name in earlier:
        raise _RowError("name", f"{name} is the name of an earlier row too")
    cpu, memory = _number(row, "cpu_milli"), _number(row, "memory_mib")
    created, deleted = _number(row, "creation_time"), _number(row, "deletion_time")
    if deleted <= created:
        raise _RowError("deletion_time", f"{deleted} isn't after creation_time {created}")
    return TracePod(
        name=name,
        cpu=cpu,
        memory=memory,
        gpus=_number(row, "num_gpu"),
        created=created,
        deleted=deleted,
        priority=_number(row, "priority", default=0, least=-(2**31)),
        workload=_workload(row),
        zone_spread=_number(row, "zone_spread", default=0),
    )


def _number(row: Mapping[str, str | None], column: str, *, default: int | None = None, least: int = 0) -> int:
    text = (row.get(column) or "").strip()
    if not text and default is not None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise _RowError(column, f"{text!r} isn't a whole number") from None
    if number < least:
        raise _RowError(column, f"{number} is less than {least}")
    return number


def _workload(row: Mapping[str, str | None]) -> str:
    text = (row.get("workload") or "").strip()
    parts = text.split("/")
    if text and (len(parts) != _KINDS.get(parts[0]) or not all(parts)):
        raise _RowError("workload", f"{text!r} is neither Deployment/NAME/REVISION nor Job/NAME")
    return text


def _sorted(pods: Iterable[TracePod]) -> tuple[TracePod, ...]:
    return tuple(sorted(pods, key=lambda p: (p.created, p.name)))
