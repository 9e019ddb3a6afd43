"""How shares of traffic are said to users, in the plan and in the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.traffic.cross_zone import ServiceTraffic

LEAST_SHARE = 0.005
"""The least share that is shown as 1%."""


def percent(share: float | None) -> str:
    """The share in percent; a dash if there is none."""
    return "–" if share is None else f"{share:.0%}"


def same_zone(traffic: ServiceTraffic) -> str:
    """What trafficDistribution PreferSameZone would give; a dash if it is no less than without it."""
    if traffic.routing == "SameZone":
        return "is set"
    if traffic.avoidable_share < LEAST_SHARE:
        return "–"
    return f"{percent(traffic.same_zone_share)}, busiest endpoint × {traffic.same_zone_load:.1f}"
