"""The one form of message in the system: a hint that something is worth a look.

Every queue and the bus carry EventBridge's envelope with ``detail = {"cluster": NAME, "keys": [...]}``; keys are object
names (``namespace/name`` or ``name``) or instance ids, never specs. A hint is not believed, only followed: what is true
is read from the cluster and EC2. What is not a hint is malformed and belongs in the dead-letter queue.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

RELAY = "tenon.relay"
FUNCTIONS = "tenon.functions"
SCHEDULE = "aws.events"

PODS_UNSCHEDULABLE = "Pods Unschedulable"
NODES_CHANGED = "Nodes Changed"
NODES_EMPTIED = "Nodes Emptied"
NODES_DELETING = "Nodes Deleting"
NODE_CLAIMS_DELETING = "NodeClaims Deleting"
DRAINS_UNBLOCKED = "Drains Unblocked"
"""NodeClaims whose drain waited for something that has changed: a budget has room, a pod may go or has gone."""
NODE_POOLS_CHANGED = "NodePools Changed"
"""A NodePool, EC2NodeClass, Provisioner or AWSNodeTemplate was made, changed or deleted."""
SCHEDULED = "Scheduled Event"
"""EventBridge's own, from a schedule: sweep."""
REQUEUE = "Requeue"
"""Disruption to itself, delayed: a node's time may be up."""
DRAIN = "Drain"
"""To termination: NodeClaims to drain, or to go on draining."""
INSTANCES_ORPHANED = "Instances Orphaned"
"""Lifecycle to termination: instances with the cluster's tag and no claim."""
CATALOG_MISSING = "Catalog Missing"
"""The provisioner to the catalog: there is nothing to choose from yet."""

MAX_KEYS = 100
"""Keys in one hint; more are split over several."""


class MalformedHintError(ValueError):
    """A message that is no hint; the text says what is wrong with it."""


class _Detail(msgspec.Struct, frozen=True):
    cluster: str = ""
    keys: list[str] = []


class _Envelope(msgspec.Struct, frozen=True, rename={"detail_type": "detail-type"}):
    source: str
    detail_type: str
    detail: _Detail
    time: datetime | None = None


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """What to look at, and why. ``time`` is when the sender saw it, if it said so."""

    source: str
    detail_type: str
    cluster: str
    keys: tuple[str, ...] = ()
    time: datetime | None = None


def parse(body: str | bytes | dict[str, Any], *, cluster: str) -> Hint:
    """The hint of a message body or an EventBridge event.

    A hint for another cluster is malformed here: nothing of ours may send it.

    Raises:
        MalformedHintError: not an envelope, or for another cluster.
    """
    try:
        if isinstance(body, dict):
            envelope = msgspec.convert(body, _Envelope)
        else:
            envelope = msgspec.json.decode(body, type=_Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedHintError(f"not a hint: {error}") from error
    if envelope.source != SCHEDULE and envelope.detail.cluster != cluster:
        raise MalformedHintError(f'a hint for cluster "{envelope.detail.cluster}", but this is "{cluster}"')
    return Hint(
        source=envelope.source,
        detail_type=envelope.detail_type,
        cluster=cluster,
        keys=tuple(envelope.detail.keys),
        time=envelope.time,
    )


def message_bodies(detail_type: str, *, cluster: str, keys: Iterable[str], time: datetime) -> Iterator[str]:
    """Message bodies as :func:`parse` reads them, with at most :data:`MAX_KEYS` keys each; none for no keys."""
    rest = list(keys)
    for start in range(0, len(rest), MAX_KEYS):
        detail = _Detail(cluster=cluster, keys=rest[start : start + MAX_KEYS])
        envelope = _Envelope(source=FUNCTIONS, detail_type=detail_type, detail=detail, time=time)
        yield msgspec.json.encode(envelope).decode()


def put_events_entry(
    detail_type: str, *, cluster: str, keys: Iterable[str], time: datetime, bus: str, source: str = FUNCTIONS
) -> PutEventsRequestEntryTypeDef:
    """An entry for PutEvents that arrives as the same hint; the caller splits the keys."""
    detail = msgspec.json.encode(_Detail(cluster=cluster, keys=list(keys))).decode()
    return {"EventBusName": bus, "Source": source, "DetailType": detail_type, "Detail": detail, "Time": time}
