"""AWS Health announces maintenance that stops or retires instances."""

from __future__ import annotations

from shared.interruption.notice import Ask, Detail, MalformedEventError, Notice

SOURCE = "aws.health"
DETAIL_TYPE = "AWS Health Event"


def parse(detail: Detail) -> Notice:
    """The affected instances are drained ahead of it; other services' and other categories' events say nothing here."""
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return Notice(instance_ids=(), ask=Ask.NOTHING, reason="ScheduledChange", message="not about EC2 instances")
    affected = detail.get("affectedEntities", [])
    if not isinstance(affected, list):
        raise MalformedEventError(f"detail.affectedEntities is {affected!r}, where a list is required")
    ids = tuple(str(e["entityValue"]) for e in affected if isinstance(e, dict) and "entityValue" in e)
    code = detail.get("eventTypeCode", "scheduled change")
    return Notice(
        instance_ids=ids,
        ask=Ask.DRAIN,
        reason="ScheduledChange",
        message=f"AWS Health announces {code} for {', '.join(ids)}",
    )
