"""Which zone an Auto Scaling group launches in, and which instance it terminates. Pure.

The rules are those of the user guide of EC2 Auto Scaling: zones are balanced before anything else, then the default
termination policy applies ("Configure termination policies", "Auto Scaling benefits for application architecture").
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

_HOUR = timedelta(hours=1)


class Candidate(Struct, kw_only=True):
    """An instance that may be terminated; ``template`` is its launch template's id and version."""

    instance_id: str
    zone: str
    template: tuple[str, int]
    launched_at: datetime
    protected: bool = False


def launch_zones(zones: Iterable[str], occupied: Iterable[str]) -> list[str]:
    """The group's zones in the order in which a launch tries them: those with the fewest instances first.

    ``occupied`` has the zone of each instance that the group has.
    """
    counts = Counter(occupied)
    return sorted(set(zones), key=lambda zone: (counts[zone], zone))


def to_terminate(
    candidates: Sequence[Candidate], *, current: str, now: datetime, among: Collection[str] = ()
) -> Candidate | None:
    """The instance that a scale-in terminates; None if all are protected. ``among``: only in these zones, if any.

    In the zones with the most instances: one of another launch template than the ``current`` one, then one of the
    oldest version, then the one closest to the next billing hour. AWS chooses at random among the rest, this function
    by id.
    """
    unprotected = [c for c in candidates if not c.protected and (not among or c.zone in among)]
    counts = Counter(c.zone for c in candidates)
    most = max((counts[c.zone] for c in unprotected), default=0)

    def order(candidate: Candidate) -> tuple[bool, int, timedelta, str]:
        template, version = candidate.template
        until_billed = _HOUR - (now - candidate.launched_at) % _HOUR
        return template == current, version, until_billed, candidate.instance_id

    return min((c for c in unprotected if counts[c.zone] == most), key=order, default=None)


def rebalanced_zone(zones: Iterable[str], occupied: Collection[str]) -> str | None:
    """The zone in which a rebalancing launches: not the fullest one. None for a group of a single zone or instance."""
    if not occupied:
        return None
    fullest = fullest_zone(occupied)
    return next((zone for zone in launch_zones(zones, occupied) if zone != fullest), None)


def fullest_zone(occupied: Iterable[str]) -> str:
    """The zone with the most instances, from the zone of each."""
    counts = Counter(occupied)
    return min(counts, key=lambda zone: (-counts[zone], zone))
