"""The traffic between zones before and after a plan, and what changes for each Service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.traffic.cross_zone import Traffic
from shared.base.struct import Struct

if TYPE_CHECKING:
    from cli.traffic.cross_zone import ServiceTraffic


class ServiceChange(Struct, kw_only=True):
    """A Service's traffic before and after the plan; None: it has no endpoints then."""

    service: str
    before: ServiceTraffic | None
    after: ServiceTraffic | None

    @property
    def latest(self) -> ServiceTraffic:
        """The traffic after the plan; before, if the Service has no endpoints then."""
        traffic = self.after or self.before
        assert traffic is not None
        return traffic

    @property
    def change(self) -> float:
        """By how much the share that crosses zones changes."""
        return self.after.share - self.before.share if self.before and self.after else 0.0


class PlannedTraffic(Struct, kw_only=True):
    """The traffic before and after the plan; ``problem`` is why it isn't known, empty if it is."""

    before: Traffic = Traffic()
    after: Traffic = Traffic()
    problem: str = ""

    @property
    def changes(self) -> tuple[ServiceChange, ...]:
        """The Services: those first whose endpoints change their share most, then those that could avoid most."""
        before = {s.service: s for s in self.before.services}
        after = {s.service: s for s in self.after.services}
        names = sorted(before.keys() | after.keys())
        changes = (ServiceChange(service=n, before=before.get(n), after=after.get(n)) for n in names)
        return tuple(sorted(changes, key=_order))


def _order(change: ServiceChange) -> tuple[float, float, str]:
    endpoints = change.latest.endpoints
    return -round(abs(change.change) * endpoints, 6), -change.latest.avoidable_share * endpoints, change.service
