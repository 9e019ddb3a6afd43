"""Provisioning while ARC has shifted traffic away from zones: nothing is launched there.

All other features see it in the snapshot. Pods that would have a node without the shift say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.zonal_shift import current_shifts, format_shifts
from shared.base.struct import with_fields
from shared.provisioning.round import Feature

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from shared.provisioning.round import Provisioning, Round


class ZonalShift(Feature, kw_only=True):
    """One round while zones are shifted away, by name with the end of each shift."""

    provisioning: Provisioning
    zones: Mapping[str, datetime]

    def before(self, round_: Round) -> Round:
        """The round whose snapshot says so."""
        return with_fields(round_, snapshot=with_fields(round_.snapshot, shifted_zones=self.zones))

    def after(self, round_: Round) -> Round:
        """The decision, with the shift as the reason of the pods that wait for nothing else."""
        errors = round_.decision.pod_errors
        if not errors:
            return round_
        snapshot = with_fields(round_.snapshot, shifted_zones={})
        pools = self.provisioning.resolved_pools(snapshot, round_.now)
        without_shift = round_.schedule(snapshot, resolved_pools=pools)
        zones = format_shifts(self.zones)
        explained = {
            pod: why
            if pod in without_shift.pod_errors
            else with_fields(why, message=f"waits because traffic is shifted away from {zones}; {why.message}")
            for pod, why in errors.items()
        }
        return with_fields(round_, decision=with_fields(round_.decision, pod_errors=explained))


def zonal_shift(provisioning: Provisioning, round_: Round) -> ZonalShift | None:
    """The feature for the shifts on the cluster's Lease; None if they have ended."""
    zones = current_shifts(round_.lease.annotations, now=round_.now)
    return ZonalShift(provisioning=provisioning, zones=zones) if zones else None
