"""Zones that ARC has shifted the cluster's traffic away from: an annotation of the cluster's Lease. Pure.

Whoever decides holds that Lease, so a decision knows the shifted zones without a request. Every shift has an end, which
holds even if nobody writes the annotation again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shared.api.labels import SHIFTED_ZONES
from shared.api.meta import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def read_shifts(annotations: Mapping[str, str]) -> dict[str, datetime]:
    """The zones of the annotation, by name, with the end of each shift, past ones too. Other text is left out.

    >>> read_shifts({"tenon.sh/shifted-zones": "us-west-2a=2026-11-26T12:00:00+00:00,nonsense"})
    {'us-west-2a': datetime.datetime(2026, 11, 26, 12, 0, tzinfo=datetime.timezone.utc)}
    """
    shifts: dict[str, datetime] = {}
    for entry in annotations.get(SHIFTED_ZONES, "").split(","):
        zone, _, text = entry.partition("=")
        if zone and (until := parse_timestamp(text)) is not None:
            shifts[zone] = until
    return shifts


def current_shifts(annotations: Mapping[str, str], *, now: datetime) -> dict[str, datetime]:
    """The zones that are shifted away at that time, by name, each with the end of its shift."""
    return {zone: until for zone, until in read_shifts(annotations).items() if until > now}


def is_shifted(annotations: Mapping[str, str], zone: str, *, now: datetime) -> bool:
    """Whether nothing may be launched, disrupted or rebooted in the zone, by the annotations of the cluster's Lease."""
    return zone in current_shifts(annotations, now=now)


def shift_annotation(shifts: Mapping[str, datetime]) -> str | None:
    """The annotation's value; None removes it.

    >>> shift_annotation({"us-west-2a": datetime(2026, 11, 26, 12, tzinfo=UTC)})
    'us-west-2a=2026-11-26T12:00:00+00:00'
    """
    return ",".join(f"{zone}={until.isoformat()}" for zone, until in sorted(shifts.items())) or None


def format_shifts(shifts: Mapping[str, datetime], zones: Iterable[str] | None = None) -> str:
    """These zones, or all, with the ends of their shifts, for users.

    >>> format_shifts({"us-west-2a": datetime(2026, 11, 26, 12, tzinfo=UTC)})
    'us-west-2a (until 2026-11-26 12:00 UTC)'
    """
    listed = sorted(shifts if zones is None else set(zones) & shifts.keys())
    return ", ".join(f"{zone} (until {shifts[zone].astimezone(UTC):%Y-%m-%d %H:%M} UTC)" for zone in listed)
