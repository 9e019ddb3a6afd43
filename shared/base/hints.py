"""Hints: the messages between the relay or webhook and the functions. A hint is a batch of reconcile requests.

Every queue and the event bus carry EventBridge's envelope with ``detail = {"cluster": NAME, "keys": [...]}``; keys are
object names (``namespace/name`` or ``name``) or instance ids, never specs. A hint only says which objects to reconcile;
their state is read from the cluster and EC2. Messages that aren't hints are malformed and go to the dead-letter queue.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from shared.base.struct import Struct, WireStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

T = TypeVar("T")

SWEEP_INTERVAL = timedelta(minutes=1)
"""How often functions sweep: what a message asked for before the last sweep is done by that."""

RELAY = "tenon.relay"
FUNCTIONS = "tenon.functions"
WEBHOOK = "tenon.webhook"
WATCHES = frozenset({RELAY, WEBHOOK})
"""The sources of hints about what changes in the cluster."""
SCHEDULE = "aws.events"

PODS_UNSCHEDULABLE = "Pods Unschedulable"
PODS_CREATED = "Pods Created"
"""From the admission webhook to the provisioner: pods that kube-scheduler has not tried yet. One of them is named."""
NODES_CHANGED = "Nodes Changed"
NODES_EMPTIED = "Nodes Emptied"
NODES_DELETED = "Nodes Deleted"
"""Nodes of NodePools are gone: disruption budgets allow others."""
NODES_UNDERUTILIZED = "Nodes Underutilized"
"""The cluster's running pods have become fewer by a twentieth: the nodes that they left."""
NODES_DELETING = "Nodes Deleting"
NODE_CLAIMS_DELETING = "NodeClaims Deleting"
DRAINS_UNBLOCKED = "Drains Unblocked"
"""NodeClaims whose blocked drain may continue: a budget allows a disruption again, or a pod can be evicted or ended."""
NODE_POOLS_CHANGED = "NodePools Changed"
"""A NodePool, EC2NodeClass, Provisioner, AWSNodeTemplate or NodeOverlay was created, changed or deleted, or a NodeClaim
without a NodePool was created."""
CAPACITY_BUFFERS_CHANGED = "CapacityBuffers Changed"
"""A CapacityBuffer was created, changed or deleted, or a pod came to a node and may have taken the room of one."""
RELAY_STARTED = "Relay Started"
"""A relay can publish. No rule matches it: it proves the relay's rights before the first hint that matters."""
SCHEDULED = "Scheduled Event"
"""EventBridge's own detail-type, from a schedule: reconcile everything (a sweep)."""
REQUEUE = "Requeue"
"""From disruption to itself, delayed: nodes may have become disruptable."""
DRAIN = "Drain"
"""To termination: NodeClaims whose drain starts or continues."""
ROOM_NEEDED = "Room Needed"
"""To termination: full nodes that a DaemonSet's pod or a resized pod waits for, or that are still cordoned for it."""
INSTANCES_ORPHANED = "Instances Orphaned"
"""From lifecycle to termination: instances with the cluster's tag and without a NodeClaim."""
CATALOG_MISSING = "Catalog Missing"
"""From the provisioner to the catalog: there is no catalog of instance types yet."""

MAX_KEYS = 100
"""The most keys in one hint; more keys are split into several hints."""
DRAINS_PER_MESSAGE = 5
"""So that several invocations drain: each works on the messages of its batch in turn, a few drains of each at once."""


class MalformedHintError(ValueError):
    """A message that isn't a hint for this cluster; the text says why."""


class _Detail(WireStruct):
    cluster: str = ""
    keys: list[str] = []
    requeues: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="hops")  # the name in messages


class _Envelope(WireStruct, rename={"detail_type": "detail-type"}):
    source: str
    detail_type: str
    detail: _Detail
    time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class Hint(Struct, kw_only=True):
    """The objects to reconcile, and why (``detail_type``). ``time`` is the sender's, None if it gave none.

    ``requeues`` counts the messages of a chain in which a function sends to its own queue; the first has none.
    """

    source: str
    detail_type: str
    cluster: str
    keys: tuple[str, ...] = ()
    time: datetime | None = None
    requeues: int = 0

    def is_older_than(self, age: timedelta, *, now: datetime) -> bool:
        """Whether it was sent that long ago; not known of one without a time."""
        return self.time is not None and now - self.time >= age


def decode_json(text: bytes | str, kind: type[T]) -> T:
    """The value of JSON that anybody may have written: messages, annotations, files.

    Raises:
        msgspec.DecodeError: it isn't JSON of that kind, is nested too deeply, or isn't valid Unicode.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (RecursionError, UnicodeError) as error:
        raise msgspec.DecodeError(str(error)) from error


def parse(body: str | bytes | dict[str, Any], *, cluster: str) -> Hint:
    """The hint in a message body or an EventBridge event. A hint for another cluster is malformed.

    Raises:
        MalformedHintError: the message isn't an envelope, or is for another cluster.
    """
    try:
        envelope = msgspec.convert(body, _Envelope) if isinstance(body, dict) else decode_json(body, _Envelope)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedHintError(f"invalid message: {error}") from error
    if envelope.source != SCHEDULE and envelope.detail.cluster != cluster:
        raise MalformedHintError(f'message for cluster "{envelope.detail.cluster}", expected "{cluster}"')
    return Hint(
        source=envelope.source,
        detail_type=envelope.detail_type,
        cluster=cluster,
        keys=tuple(envelope.detail.keys),
        time=envelope.time,
        requeues=envelope.detail.requeues or 0,
    )


def message_bodies(
    detail_type: str, *, cluster: str, keys: Iterable[str], time: datetime, requeues: int = 0, source: str = FUNCTIONS
) -> Iterator[str]:
    """Message bodies as :func:`parse` reads them, none for no keys.

    Each has at most :data:`MAX_KEYS` keys, and drains at most :data:`DRAINS_PER_MESSAGE`.
    """
    all_keys = list(keys)
    size = DRAINS_PER_MESSAGE if detail_type == DRAIN else MAX_KEYS
    for start in range(0, len(all_keys), size):
        detail = _Detail(cluster=cluster, keys=all_keys[start : start + size], requeues=requeues or msgspec.UNSET)
        envelope = _Envelope(source=source, detail_type=detail_type, detail=detail, time=time)
        yield msgspec.json.encode(envelope).decode()


def put_events_entry(
    detail_type: str, *, cluster: str, keys: Iterable[str], time: datetime, bus: str, source: str = FUNCTIONS
) -> PutEventsRequestEntryTypeDef:
    """The PutEvents entry of a hint with at most :data:`MAX_KEYS` keys."""
    detail = msgspec.json.encode(_Detail(cluster=cluster, keys=list(keys))).decode()
    return {"EventBusName": bus, "Source": source, "DetailType": detail_type, "Detail": detail, "Time": time}
