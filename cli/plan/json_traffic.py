"""The traffic between zones in the output of ``tenon plan --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.json_output import Output
from cli.traffic.cross_zone import USD_PER_CROSSING_TB
from cli.traffic.service import Routing

if TYPE_CHECKING:
    from cli.plan.traffic import PlannedTraffic, ServiceChange
    from cli.traffic.cross_zone import ServiceTraffic

_DIGITS = 4


class PlannedServiceTraffic(Output, frozen=True, kw_only=True):
    """A Service's traffic before and after the plan; null where it has no ready endpoints.

    Shares that cross zones are from 0 to 1, ``usd_per_tb`` is USD per 1000 GB of the Service's traffic, whether it
    crosses or not. ``same_zone`` is what trafficDistribution PreferSameZone would give after the plan: its share, and
    how busy the busiest endpoint would be (1: as without it).
    """

    service: str
    routing: Routing
    endpoints_before: int
    endpoints_after: int
    share_before: float | None
    share_after: float | None
    usd_per_tb_before: float | None
    usd_per_tb_after: float | None
    same_zone_share: float
    same_zone_load: float


class PlannedCrossZoneTraffic(Output, frozen=True, kw_only=True):
    """The share of Services' traffic that crosses zones, 0 to 1, and USD per 1000 GB that cross.

    It isn't measured: clients are where the cluster's pods are, and every endpoint gets as much. ``problem`` says why
    it isn't known; it is null otherwise.
    """

    problem: str | None
    share_before: float | None
    share_after: float | None
    usd_per_crossing_tb: float
    services: list[PlannedServiceTraffic]


def output(traffic: PlannedTraffic) -> PlannedCrossZoneTraffic:
    """The traffic; Services in the order of :attr:`PlannedTraffic.changes`."""
    return PlannedCrossZoneTraffic(
        problem=traffic.problem or None,
        share_before=_rounded(traffic.before.share),
        share_after=_rounded(traffic.after.share),
        usd_per_crossing_tb=USD_PER_CROSSING_TB,
        services=[_service(change) for change in traffic.changes],
    )


def _service(change: ServiceChange) -> PlannedServiceTraffic:
    before, after, latest = change.before, change.after, change.latest
    return PlannedServiceTraffic(
        service=change.service,
        routing=latest.routing,
        endpoints_before=before.endpoints if before else 0,
        endpoints_after=after.endpoints if after else 0,
        share_before=_share(before),
        share_after=_share(after),
        usd_per_tb_before=_usd_per_tb(before),
        usd_per_tb_after=_usd_per_tb(after),
        same_zone_share=round(latest.same_zone_share, _DIGITS),
        same_zone_load=round(latest.same_zone_load, _DIGITS),
    )


def _share(traffic: ServiceTraffic | None) -> float | None:
    return _rounded(traffic.share) if traffic else None


def _usd_per_tb(traffic: ServiceTraffic | None) -> float | None:
    return _rounded(traffic.usd_per_tb) if traffic else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
