"""AWS Health announces maintenance that stops, reboots or retires instances: EC2's scheduled events come this way too.

Sample: AWS's pages "AWS Health events Amazon EventBridge schema" and "Scheduled events for your instances". Such events
usually come about two weeks before their start; times are those of RFC 5322 ("Sat, 05 Jun 2016 15:10:09 GMT").
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from functions.interruption.messages.notice import LONG_USE, Ask, Basis, Detail, MalformedEventError, Notice, moment
from shared.api.meta import EventReason

SOURCE = "aws.health"
DETAIL_TYPE = "AWS Health Event"
_OVER = "closed"
_RESOLVED = "RESOLVED"


def parse(detail: Detail, time: datetime) -> Notice:
    """The affected instances are moved before its start; other services' and other categories' say nothing here."""
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return Notice(
            instance_ids=(),
            ask=Ask.NOTHING,
            reason=EventReason("ScheduledChange"),
            message="not about EC2 instances",
            basis=Basis.UNASKED,
        )
    affected = detail.get("affectedEntities", [])
    if not isinstance(affected, list):
        raise MalformedEventError(f"detail.affectedEntities is {affected!r}, where a list is required")
    ids = tuple(dict.fromkeys(i for entity in affected if (i := _instance(entity))))
    code = str(detail.get("eventTypeCode", "a scheduled change"))
    # One that doesn't say when is taken as starting when it was announced.
    start = moment(detail, "startTime", _mail_time) or time
    over = detail.get("statusCode") == _OVER
    return Notice(
        instance_ids=ids,
        ask=Ask.NOTHING if over or not ids else Ask.MAINTENANCE,
        reason=EventReason("ScheduledChange"),
        message=f"AWS Health announces {code} for {start:%Y-%m-%d %H:%M} UTC",
        basis=Basis.UNASKED,
        by=start,
        use=LONG_USE,
    )


def _instance(entity: Any) -> str:  # noqa: ANN401 - whatever the JSON holds
    """The entity's instance, or "": it is something else (a volume, a host), or over."""
    if not isinstance(entity, dict) or entity.get("status") == _RESOLVED:
        return ""
    value = str(entity.get("entityValue", ""))
    return value if value.startswith("i-") else ""


def _mail_time(said: str) -> datetime:
    """A time of RFC 5322; one without a zone is UTC."""
    start = parsedate_to_datetime(said)
    return start.replace(tzinfo=UTC) if start.tzinfo is None else start.astimezone(UTC)
