"""What there is to know of a deployment: functions, queues, alarms, and the conditions of pools and classes.

Only read calls. A part that may not be read, or isn't there, says so in its place, and the others are still shown: an
operator at night has some of the permissions, seldom all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from infra import function_sizes, resource_names
from shared import aws

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.api.meta import Condition
    from shared.snapshot import Snapshot

_ALARM_NAME = 255


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function as deployed; ``ran`` is when it last wrote a log line, None where it hasn't yet or nobody may see."""

    name: str
    version: str
    deployed: str
    state: str
    ran: datetime | None
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Queue:
    """How many messages a queue has: to be taken, taken and not finished, delayed; and in its dead-letter queue."""

    name: str
    waiting: int = 0
    in_flight: int = 0
    delayed: int = 0
    dead: int = 0
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm that is on, since when, and why."""

    name: str
    since: datetime
    why: str
    runbook: str


@dataclass(frozen=True, kw_only=True)
class Unready:
    """A pool or class with a condition that is not true."""

    kind: str
    name: str
    condition: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """Everything, and ``notes`` about what could not be seen."""

    functions: tuple[Function, ...]
    queues: tuple[Queue, ...]
    alarms: tuple[Alarm, ...]
    unready: tuple[Unready, ...]
    notes: tuple[str, ...] = ()

    @property
    def well(self) -> bool:
        """Whether nothing asks for anybody."""
        return not (
            self.alarms
            or self.unready
            or any(q.dead or q.trouble for q in self.queues)
            or any(f.trouble for f in self.functions)
        )


def deployment(cluster: str, snapshot: Snapshot | None, *, notes: Sequence[str] = ()) -> Status:
    """The status of a cluster's Tenon; without a snapshot, of what is on AWS alone."""
    said = list(notes)
    alarms: tuple[Alarm, ...] = ()
    try:
        alarms = _alarms(cluster)
    except ClientError as error:
        said.append(f"alarms can't be seen: {_why(error)}")
    return Status(
        functions=tuple(_function(cluster, name) for name in function_sizes.FUNCTIONS),
        queues=(*(_queue(cluster, name) for name in _FEEDS), _undelivered(cluster)),
        alarms=alarms,
        unready=unready(snapshot) if snapshot is not None else (),
        notes=tuple(said),
    )


_FEEDS = ("provisioning", "interruption", "termination", "disruption")
"""The purposes of queues, as infra/queues.py names them."""


def _function(cluster: str, name: str) -> Function:
    full = resource_names.function(cluster, name)
    try:
        found = _client("lambda").get_function_configuration(FunctionName=full)
    except ClientError as error:
        return Function(name=name, version="", deployed="", state="", ran=None, trouble=_why(error))
    group = found.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{full}"
    state = found.get("State") or "Active"
    return Function(
        name=name,
        version=str(found.get("CodeSha256", ""))[:10],
        deployed=str(found.get("LastModified", "")),
        state=state,
        ran=_last_line(group),
        trouble="" if state == "Active" else str(found.get("StateReason", state)),
    )


def _last_line(group: str) -> datetime | None:
    try:
        streams = _client("logs").describe_log_streams(
            logGroupName=group, orderBy="LastEventTime", descending=True, limit=1
        )["logStreams"]
    except ClientError:
        return None
    stamps = [s["lastEventTimestamp"] for s in streams if s.get("lastEventTimestamp")]
    return datetime.fromtimestamp(max(stamps) / 1000, UTC) if stamps else None


def _queue(cluster: str, purpose: str) -> Queue:
    fifo = purpose == "provisioning"
    try:
        waiting, in_flight, delayed = _counts(resource_names.queue(cluster, purpose, fifo=fifo))
        dead, _, _ = _counts(resource_names.queue(cluster, f"{purpose}-dead-letters", fifo=fifo))
    except ClientError as error:
        return Queue(name=purpose, trouble=_why(error))
    return Queue(name=purpose, waiting=waiting, in_flight=in_flight, delayed=delayed, dead=dead)


def _undelivered(cluster: str) -> Queue:
    """Events that EventBridge or Lambda could not deliver; all of them are dead."""
    try:
        dead, _, _ = _counts(resource_names.queue(cluster, "undelivered", fifo=False))
    except ClientError as error:
        return Queue(name="undelivered", trouble=_why(error))
    return Queue(name="undelivered", dead=dead)


def _counts(name: str) -> tuple[int, int, int]:
    url = aws.sqs().get_queue_url(QueueName=name)["QueueUrl"]
    found: Mapping[str, str] = aws.sqs().get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]  # type: ignore[assignment]  # its keys are said as literals
    keys = ("", "NotVisible", "Delayed")
    waiting, in_flight, delayed = (int(found.get(f"ApproximateNumberOfMessages{key}", 0)) for key in keys)
    return waiting, in_flight, delayed


def _alarms(cluster: str) -> tuple[Alarm, ...]:
    prefix = resource_names.name(cluster, "", longest=_ALARM_NAME)
    pages = _client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=prefix, StateValue="ALARM")
    return tuple(
        Alarm(
            name=found["AlarmName"].removeprefix(prefix),
            since=found["StateUpdatedTimestamp"],
            why=found.get("AlarmDescription", "").partition(" What to do: ")[0],
            runbook=found.get("AlarmDescription", "").partition(" What to do: ")[2],
        )
        for page in pages
        for found in page["MetricAlarms"]
    )


def unready(snapshot: Snapshot) -> tuple[Unready, ...]:
    """What is wrong with pools and classes, in order of kind and name."""
    found = [
        Unready(kind=i.ref.kind, name=i.ref.name, condition="", reason="Invalid", message="; ".join(i.problems))
        for i in snapshot.invalid
    ]
    objects: list[tuple[str, str, Sequence[Condition]]] = [
        *(("NodePool", p.name, p.status.conditions) for p in snapshot.node_pools),
        *(("EC2NodeClass", c.name, c.status.conditions) for c in snapshot.node_classes),
    ]
    for kind, name, conditions in objects:
        wrong = [c for c in conditions if c.status == "False"]
        # Ready only sums up the others.
        named = [c for c in wrong if c.type != "Ready"] or wrong
        found += [Unready(kind=kind, name=name, condition=c.type, reason=c.reason, message=c.message) for c in named]
    return tuple(sorted(found, key=lambda u: (u.kind, u.name, u.condition)))


def _client(service: str) -> Any:  # noqa: ANN401 (services whose stubs aren't installed)
    make: Callable[..., Any] = boto3.client
    return make(service)


def _why(error: ClientError) -> str:
    answer = error.response["Error"]
    missing = ("NotFound", "NonExistent", "DoesNotExist")
    if any(part in answer["Code"] for part in missing):
        return "not deployed"
    return f"{answer['Code']}: {answer['Message']}"
