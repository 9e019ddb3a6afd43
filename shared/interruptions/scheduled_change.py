"""Scheduled change: AWS Health announces maintenance that stops, reboots or retires EC2 instances.

Sample: AWS's pages "AWS Health events Amazon EventBridge schema" and "Scheduled events for your instances". Such events
usually come about two weeks before the maintenance; times are in the format of RFC 5322 ("Sat, 05 Jun 2016 15:10:09
GMT").
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from shared.api.meta import EventReason
from shared.interruptions.notice import (
    VALIDITY,
    Action,
    Detail,
    Evidence,
    MalformedEventError,
    Notice,
    optional_time,
)

SOURCE = "aws.health"
DETAIL_TYPE = "AWS Health Event"
_CLOSED = "closed"
_RESOLVED = "RESOLVED"


def parse(detail: Detail, time: datetime) -> Notice:
    """The affected instances are replaced before the maintenance; other services and categories need no action.

    One message may name all instances of a cluster, so EC2 is asked for the events of each before it counts.
    """
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return Notice(
            instance_ids=(),
            action=Action.NO_ACTION,
            reason=EventReason("ScheduledChange"),
            message="not about EC2 instances",
            evidence=Evidence.NONE,
        )
    entities = detail.get("affectedEntities", [])
    if not isinstance(entities, list):
        raise MalformedEventError(f"detail.affectedEntities is {entities!r}, must be a list")
    ids = tuple(dict.fromkeys(instance_id for entity in entities if (instance_id := _instance_id(entity))))
    code = str(detail.get("eventTypeCode", "a scheduled change"))
    # Without a start time, maintenance counts as starting when it was announced.
    start = optional_time(detail, "startTime", _rfc_5322_time) or time
    closed = detail.get("statusCode") == _CLOSED
    return Notice(
        instance_ids=ids,
        action=Action.NO_ACTION if closed or not ids else Action.REPLACE_BEFORE_MAINTENANCE,
        reason=EventReason("ScheduledChange"),
        message=f"AWS Health announces {code} for {start:%Y-%m-%d %H:%M} UTC",
        evidence=Evidence.SCHEDULED,
        effective_at=start,
        valid_for=VALIDITY,
    )


def _instance_id(entity: Any) -> str:  # noqa: ANN401 (any JSON value)
    """The id of an affected instance; "" for other entities (a volume, a host) and resolved ones."""
    if not isinstance(entity, dict) or entity.get("status") == _RESOLVED:
        return ""
    value = str(entity.get("entityValue", ""))
    return value if value.startswith("i-") else ""


def _rfc_5322_time(text: str) -> datetime:
    """A time in the format of RFC 5322; without a time zone it is UTC."""
    time = parsedate_to_datetime(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time
