"""The status of a deployment: functions, queues, alarms, and conditions of NodePools and node classes.

Only read calls are made. A part that can't be read says so in its place and the others are still shown, because
operators often have only some of the permissions.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
import msgspec
from botocore.exceptions import ClientError

from cli.cluster.observed_cluster import pause_messages
from cli.status import interruption_feed
from cli.status.interruption_feed import InterruptionFeed
from infra import function_sizes
from infra.cluster import resource_names
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.standby import standby_state
from shared.base import aws
from shared.base.settings import variable
from shared.base.struct import WireStruct
from shared.instance_types.instance_type import is_bare_metal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim
    from shared.base.aws import UntypedClient
    from shared.snapshot import Snapshot

_MAX_ALARM_NAME = 255
_NOT_DEPLOYED = "not deployed"
SHADOW = "shadow"
"""The mode of a deployment that only compares."""


class Function(WireStruct, kw_only=True):
    """A deployed function. ``ran`` is the time of its last log line, None if there is none or it can't be read."""

    name: str
    version: str
    deployed: str
    state: str
    ran: datetime | None
    trouble: str = ""


class Queue(WireStruct, kw_only=True):
    """The messages of a queue: visible, in flight, delayed; and in its dead-letter queue."""

    name: str
    waiting: int = 0
    in_flight: int = 0
    delayed: int = 0
    dead: int = 0
    trouble: str = ""


class Alarm(WireStruct, kw_only=True):
    """An alarm in the ALARM state."""

    name: str
    since: datetime
    why: str
    runbook: str


class Unready(WireStruct, kw_only=True):
    """A condition of a NodePool, node class or NodeClaim that is False, or late."""

    kind: str
    name: str
    condition: str
    reason: str
    message: str


class DeploymentStatus(WireStruct, kw_only=True):
    """The status of all parts; ``notes`` say what could not be read, ``pauses`` what is paused.

    ``mode`` is active or shadow. ``fleet`` is the fleet whose catalog function, undelivered events and alarm these are,
    "" if they are the cluster's own.
    """

    functions: tuple[Function, ...]
    queues: tuple[Queue, ...]
    alarms: tuple[Alarm, ...]
    unready: tuple[Unready, ...]
    interruption_feed: InterruptionFeed = InterruptionFeed()
    notes: tuple[str, ...] = ()
    mode: str = "active"
    pauses: tuple[str, ...] = ()
    fleet: str = ""

    @property
    def healthy(self) -> bool:
        """Whether nothing needs attention."""
        return not (
            self.alarms
            or self.unready
            or self.interruption_feed.problems
            or any(q.dead or q.trouble for q in self.queues)
            or any(f.trouble for f in self.functions)
        )


class StatusOutput(DeploymentStatus, kw_only=True):
    """The status of Tenon itself. ``well``: nothing needs attention; ``notes`` say what could not be read."""

    well: bool


def output(deployed: DeploymentStatus) -> StatusOutput:
    """The status as ``tenon status --json`` prints it."""
    parts = {part.name: getattr(deployed, part.name) for part in msgspec.structs.fields(deployed)}
    return StatusOutput(**parts, well=deployed.healthy)


T = TypeVar("T", Function, Queue)


def read(cluster: str, snapshot: Snapshot | None, *, now: datetime, notes: Sequence[str] = ()) -> DeploymentStatus:
    """The status of a cluster's deployment; without a snapshot, of its AWS resources only."""
    if _function(cluster, function_sizes.SHADOW).trouble != _NOT_DEPLOYED:
        return _shadow(cluster, notes)
    all_notes = list(notes)
    alarms: tuple[Alarm, ...] = ()
    fleet = _fleet(cluster)
    shared = resource_names.of_fleet(fleet) if fleet else cluster
    try:
        alarms = _alarms(shared)
    except ClientError as error:
        all_notes.append(f"alarms can't be read: {_reason(error)}")
    feed = InterruptionFeed()
    try:
        feed = interruption_feed.read(cluster, now=now)
    except ClientError as error:
        if _reason(error) != _NOT_DEPLOYED:  # the queue's own row says that
            all_notes.append(f"the rules of the interruption queue can't be read: {_reason(error)}")
    return DeploymentStatus(
        functions=tuple(
            _required_or_deployed(
                _function(shared if name == function_sizes.CATALOG else cluster, name) for name in function_sizes.ALL
            )
        ),
        queues=(*_required_or_deployed(_queue(cluster, name) for name in _QUEUES), _undelivered(shared)),
        alarms=alarms,
        unready=(*unready_conditions(snapshot), *stuck_claims(snapshot, now)) if snapshot is not None else (),
        interruption_feed=feed,
        notes=(*all_notes, *(superseded_objects(snapshot) if snapshot is not None else ())),
        pauses=pause_messages(snapshot, now) if snapshot is not None else (),
        fleet=fleet,
    )


def _fleet(cluster: str) -> str:
    """The fleet of the cluster; "" if it has none or isn't deployed."""
    name = resource_names.function(cluster, function_sizes.LIFECYCLE)
    try:
        configuration = _client("lambda").get_function_configuration(FunctionName=name)
    except ClientError:
        return ""  # its own row says why
    return str(configuration.get("Environment", {}).get("Variables", {}).get(variable("fleet"), ""))


_LATE_AFTER = {nodeclaim.REGISTERED: timedelta(minutes=5), nodeclaim.INITIALIZED: timedelta(minutes=10)}
"""How long after its launch a NodeClaim should have a condition. Most nodes join within a minute and a half."""
_SLOW_BOOT = 3
"""How many times as long Windows and bare metal may take."""
_QUEUES = ("provisioning", "interruption", "termination", "disruption", "buffers", "nodegroups")
"""The queues by purpose, as infra/cluster/queues.py names them."""


def _shadow(cluster: str, notes: Sequence[str]) -> DeploymentStatus:
    """The status of a deployment in shadow mode: it has two functions, and nothing that the cluster needs."""
    alarms: tuple[Alarm, ...] = ()
    try:
        alarms = _alarms(cluster)
    except ClientError as error:
        notes = [*notes, f"alarms can't be read: {_reason(error)}"]
    functions = tuple(_function(cluster, name) for name in function_sizes.SHADOW_MODE)
    return DeploymentStatus(functions=functions, queues=(), alarms=alarms, unready=(), mode=SHADOW, notes=tuple(notes))


def _required_or_deployed(parts: Iterable[T]) -> Iterator[T]:
    """The parts without those that needn't be deployed and aren't."""
    return (part for part in parts if part.name not in function_sizes.OPTIONAL or part.trouble != _NOT_DEPLOYED)


def _function(cluster: str, name: str) -> Function:
    function_name = resource_names.function(cluster, name)
    try:
        configuration = _client("lambda").get_function_configuration(FunctionName=function_name)
    except ClientError as error:
        return Function(name=name, version="", deployed="", state="", ran=None, trouble=_reason(error))
    log_group = configuration.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{function_name}"
    state = configuration.get("State") or "Active"
    return Function(
        name=name,
        version=str(configuration.get("CodeSha256", ""))[:10],
        deployed=str(configuration.get("LastModified", "")),
        state=state,
        ran=_last_log_time(log_group),
        trouble="" if state == "Active" else str(configuration.get("StateReason", state)),
    )


def _last_log_time(log_group: str) -> datetime | None:
    try:
        streams = _client("logs").describe_log_streams(
            logGroupName=log_group, orderBy="LastEventTime", descending=True, limit=1
        )["logStreams"]
    except ClientError:
        return None
    timestamps = [s["lastEventTimestamp"] for s in streams if s.get("lastEventTimestamp")]
    return datetime.fromtimestamp(max(timestamps) / 1000, UTC) if timestamps else None


def _queue(cluster: str, purpose: str) -> Queue:
    fifo = purpose == "provisioning"
    try:
        waiting, in_flight, delayed = _counts(resource_names.queue(cluster, purpose, fifo=fifo))
        dead, _, _ = _counts(resource_names.queue(cluster, f"{purpose}-dead-letters", fifo=fifo))
    except ClientError as error:
        return Queue(name=purpose, trouble=_reason(error))
    return Queue(name=purpose, waiting=waiting, in_flight=in_flight, delayed=delayed, dead=dead)


def _undelivered(cluster: str) -> Queue:
    """The dead-letter queue for events that EventBridge or Lambda could not deliver."""
    try:
        dead, _, _ = _counts(resource_names.queue(cluster, "undelivered", fifo=False))
    except ClientError as error:
        return Queue(name="undelivered", trouble=_reason(error))
    return Queue(name="undelivered", dead=dead)


def _counts(name: str) -> tuple[int, int, int]:
    url = aws.sqs().get_queue_url(QueueName=name)["QueueUrl"]
    attributes: Mapping[str, str] = aws.sqs().get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]  # type: ignore[assignment]  # the stubs type its keys as literals
    suffixes = ("", "NotVisible", "Delayed")
    waiting, in_flight, delayed = (
        int(attributes.get(f"ApproximateNumberOfMessages{suffix}", 0)) for suffix in suffixes
    )
    return waiting, in_flight, delayed


def _alarms(cluster: str) -> tuple[Alarm, ...]:
    prefix = resource_names.name(cluster, "", longest=_MAX_ALARM_NAME)
    # By name: the prefix of cluster "a" is also that of cluster "a-b".
    names = [f"{prefix}{alarm}" for alarm in resource_names.alarms(function_sizes.OF_ANY_MODE)]
    pages = _client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNames=names, StateValue="ALARM")
    return tuple(
        Alarm(
            name=alarm["AlarmName"].removeprefix(prefix),
            since=alarm["StateUpdatedTimestamp"],
            why=alarm.get("AlarmDescription", "").partition(resource_names.RUNBOOK_SEPARATOR)[0],
            runbook=alarm.get("AlarmDescription", "").partition(resource_names.RUNBOOK_SEPARATOR)[2],
        )
        for page in pages
        for alarm in page["MetricAlarms"]
    )


def superseded_objects(snapshot: Snapshot) -> Iterator[str]:
    """A note on each legacy object that a migration left next to its successor, which needs no attention."""
    yield from (f"{i.ref.kind} {i.ref.name}: {'; '.join(i.problems)}" for i in snapshot.invalid if i.is_superseded)


def unready_conditions(snapshot: Snapshot) -> tuple[Unready, ...]:
    """Invalid objects and False conditions of NodePools and node classes, by kind and name."""
    invalid = [
        Unready(kind=i.ref.kind, name=i.ref.name, condition="", reason="Invalid", message="; ".join(i.problems))
        for i in snapshot.invalid
        if not i.is_superseded
    ]
    objects: list[tuple[str, str, Sequence[Condition]]] = [
        *((p.ref.kind, p.name, p.status.conditions) for p in snapshot.node_pools),
        *((c.ref.kind, c.name, c.status.conditions) for c in snapshot.node_classes),
    ]
    unready = [
        Unready(kind=kind, name=name, condition=c.type, reason=c.reason, message=c.message)
        for kind, name, conditions in objects
        for c in _causes(conditions)
    ]
    return tuple(sorted([*invalid, *unready], key=lambda u: (u.kind, u.name, u.condition)))


def _causes(conditions: Sequence[Condition]) -> list[Condition]:
    """The False conditions; Ready only where it is the only one, because it summarises the others.

    Where there is none, the circuit breaker's pause, for what fails elsewhere.
    """
    false = [c for c in conditions if c.status == "False"]
    paused = [c for c in conditions if (c.type, c.status, c.reason) == ("Paused", "True", "CircuitBreakerOpen")]
    return [c for c in false if c.type != "Ready"] or false or paused


def stuck_claims(snapshot: Snapshot, now: datetime) -> Iterator[Unready]:
    """The NodeClaims whose launch EC2 refuses, or whose node is late, those with the same trouble as one."""
    claims: dict[tuple[str, str, str], list[str]] = {}
    for claim in snapshot.node_claims:
        if claim.metadata.deletion_timestamp is None and (trouble := _trouble(claim, now)) is not None:
            claims.setdefault(trouble, []).append(claim.name)
    for (condition_type, reason, message), stuck in claims.items():
        name = stuck[0] + (f" and {len(stuck) - 1} more" if len(stuck) > 1 else "")
        yield Unready(kind="NodeClaim", name=name, condition=condition_type, reason=reason, message=message)


def _trouble(claim: NodeClaim, now: datetime) -> tuple[str, str, str] | None:
    """The condition that a NodeClaim should have by now, the reason and the message; None if all is well."""
    conditions = {c.type: c for c in claim.status.conditions}
    launched = conditions.get(nodeclaim.LAUNCHED)
    if launched is None or launched.status != "True":
        return None if launched is None or launched.status != "False" else _stated(launched)
    if standby_state(claim):
        return None
    since = launched.last_transition_time or claim.metadata.creation_timestamp or now
    labels = claim.metadata.labels
    is_slow = is_bare_metal(labels.get(names.INSTANCE_TYPE, "")) or labels.get(names.OS) == "windows"
    for type_, usual in _LATE_AFTER.items():
        within = usual * (_SLOW_BOOT if is_slow else 1)
        current = conditions.get(type_)
        if current is None or current.status != "True":
            return (type_, *_late(current, within)) if now - since > within else None
    return None


def _stated(current: Condition) -> tuple[str, str, str]:
    return current.type, current.reason, current.message


def _late(current: Condition | None, within: timedelta) -> tuple[str, str]:
    """The reason and the message of a condition that isn't True ``within`` the usual time after the launch."""
    stated = f": {current.message}" if current is not None and current.message else ""
    return "Late", f"not within {within.total_seconds() / 60:.0f} minutes of the launch{stated}"


def _client(service: str) -> UntypedClient:
    make: Callable[..., Any] = boto3.client
    return make(service)


def _reason(error: ClientError) -> str:
    details = error.response["Error"]
    if any(part in details["Code"] for part in ("NotFound", "NonExistent", "DoesNotExist")):
        return _NOT_DEPLOYED
    return f"{details['Code']}: {details['Message']}"
