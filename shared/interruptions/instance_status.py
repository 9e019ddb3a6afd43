"""EC2's answer to DescribeInstanceStatus: status checks that fail for long enough, and scheduled events. Pure.

A failed check of the instance or of its host means that its node is broken: it is removed at once, without evictions.
A scheduled event is what AWS Health announces too (:mod:`shared.interruptions.scheduled_change`). Failed checks of EBS
volumes are left alone: the volume may be a pod's. Source of the checks and the threshold: Karpenter's
``pkg/providers/instancestatus`` (docs/facts/karpenter-1.15.md, ``instance-status``).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api.meta import EventReason
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.interruptions.notice import VALIDITY, Action, Evidence, Notice

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from mypy_boto3_ec2.type_defs import (
        FilterTypeDef,
        InstanceStatusEventTypeDef,
        InstanceStatusSummaryTypeDef,
        InstanceStatusTypeDef,
    )

UNHEALTHY_AFTER = timedelta(minutes=2)
"""How long a check fails before it counts."""
MAX_IMPAIRED_PERCENT = 20
"""If more of the cluster's instances, or of a zone's, fail their checks, the trouble is AWS's."""
_FAILED = "failed"
_OVER = ("[Completed]", "[Canceled]")
"""What EC2's description of an event starts with once it is over; it is described for up to a week then."""

SCHEDULED: Sequence[FilterTypeDef] = (
    {
        "Name": "event.code",
        "Values": [
            "instance-reboot",
            "instance-retirement",
            "instance-stop",
            "system-maintenance",
            "system-reboot",
        ],
    },
)
FILTERS: tuple[Sequence[FilterTypeDef], ...] = (
    ({"Name": "system-status.status", "Values": ["impaired"]},),
    ({"Name": "instance-status.status", "Values": ["impaired"]},),
    SCHEDULED,
)
"""What is asked for, one after the other: EC2 only returns instances for which all filters of a call hold."""


def notice_of(status: InstanceStatusTypeDef, *, now: datetime) -> Notice | None:
    """What EC2's status of an instance requires now; None if nothing does."""
    for name, summary in (("system", status.get("SystemStatus")), ("instance", status.get("InstanceStatus"))):
        if summary is not None and _fails(summary, now):
            return Notice(
                instance_ids=(status["InstanceId"],),
                action=Action.CORDON_AND_DRAIN,
                reason=EventReason("InstanceUnhealthy"),
                message=f"EC2's {name} status check fails for more than {UNHEALTHY_AFTER.total_seconds():.0f} seconds",
                evidence=Evidence.NONE,
                effective_at=now,
                running=False,
            )
    events = _scheduled_events(status)
    if not events:
        return None
    first = min(events, key=lambda e: e.get("NotBefore", now))
    start = first.get("NotBefore", now)
    return Notice(
        instance_ids=(status["InstanceId"],),
        action=Action.REPLACE_BEFORE_MAINTENANCE,
        reason=EventReason("ScheduledChange"),
        message=f"EC2 has scheduled {first.get('Code', 'an event')} for {start:%Y-%m-%d %H:%M} UTC",
        evidence=Evidence.NONE,
        effective_at=start,
        valid_for=VALIDITY,
    )


def scheduled_starts(statuses: Iterable[InstanceStatusTypeDef], *, now: datetime) -> dict[str, datetime]:
    """When the first scheduled event of each instance starts that has one."""
    return {
        status["InstanceId"]: min(event.get("NotBefore", now) for event in events)
        for status in statuses
        if (events := _scheduled_events(status))
    }


def _scheduled_events(status: InstanceStatusTypeDef) -> list[InstanceStatusEventTypeDef]:
    """The events of the instance that aren't over."""
    return [e for e in status.get("Events", ()) if not e.get("Description", "").startswith(_OVER)]


def _fails(summary: InstanceStatusSummaryTypeDef, now: datetime) -> bool:
    failed = (d for d in summary.get("Details", ()) if d.get("Status") == _FAILED)
    return any("ImpairedSince" not in d or now - d["ImpairedSince"] >= UNHEALTHY_AFTER for d in failed)


class Brake(Struct, kw_only=True):
    """The zones in which too many instances fail their checks ("" for the whole cluster), each with a sentence."""

    zones: Mapping[str, str]

    def why_kept(self, zone: str) -> str:
        """Why an instance in the zone is kept although its checks fail; "" if it isn't."""
        return self.zones.get("", self.zones.get(zone, ""))


def brake(impaired: Collection[str], zones: Mapping[str, str]) -> Brake:
    """Where more instances fail than :data:`MAX_IMPAIRED_PERCENT`; ``zones`` are those of all instances, by id.

    >>> zones = {f"i-{n}": "us-west-2a" for n in range(10)} | {f"i-{n}": "us-west-2b" for n in range(10, 100)}
    >>> brake({"i-1", "i-2"}, zones).zones
    {}
    >>> brake({"i-1", "i-2", "i-3"}, zones).zones
    {'us-west-2a': 'status checks of 3 of 10 instances in zone us-west-2a fail, more than 20%'}
    """
    kept = {}
    for zone in ("", *sorted(set(zones.values()))):
        there = [id_ for id_ in zones if zone in ("", zones[id_])]
        failing = sum(id_ in impaired for id_ in there)
        if failing > -(-len(there) * MAX_IMPAIRED_PERCENT // 100):
            where = f" in zone {zone}" if zone else ""
            share = f"more than {MAX_IMPAIRED_PERCENT}%"
            kept[zone] = f"status checks of {failing} of {plural(len(there), 'instance')}{where} fail, {share}"
    return Brake(zones=kept)
