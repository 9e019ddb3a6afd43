"""EKS cordons the nodes of a zone that ARC has shifted traffic away from, and uncordons them some time after.

It leaves alone nodes that somebody else has cordoned.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from shared.api.labels import ZONE
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from datetime import datetime

    from local.aws.zonal_shifts import ZonalShifts
    from local.kubernetes.registry.store import Store

LAG = timedelta(seconds=60)
"""How long after its shift a zone's nodes stay cordoned, and new ones are; Karpenter's suite waits 90 s for it."""


class ZonalShiftCordons(MutableStruct, kw_only=True):
    """An actor; ``zones`` are those whose nodes it cordons, each with when it stops (None: while the shift lasts)."""

    store: Store
    shifts: ZonalShifts
    zones: dict[str, datetime | None] = {}
    cordoned: set[str] = set()

    def step(self, now: datetime) -> bool:
        """Cordon and uncordon nodes; whether it has changed one."""
        shifted = self.shifts.shifted_away()
        if not (shifted or self.zones):
            return False
        for zone in self.zones.keys() - shifted:
            self.zones[zone] = self.zones[zone] or now + LAG
        self.zones |= dict.fromkeys(shifted)
        self.zones = {zone: until for zone, until in self.zones.items() if until is None or until > now}
        changed = False
        for node in self.store.list(kinds.NODES):
            name, zone = str(node["metadata"]["name"]), str((node["metadata"].get("labels") or {}).get(ZONE))
            is_cordoned = bool(node["spec"].get("unschedulable"))
            if zone in self.zones and not is_cordoned:
                self.store.patch(kinds.NODES, name, {"spec": {"unschedulable": True}})
                self.cordoned.add(name)
                changed = True
            elif zone not in self.zones and name in self.cordoned:
                self.store.patch(kinds.NODES, name, {"spec": {"unschedulable": None}})
                self.cordoned.discard(name)
                changed = True
        return changed

    def due(self) -> datetime | None:
        """When a shift expires, or nodes are uncordoned."""
        times = [until for until in self.zones.values() if until is not None]
        expiry = self.shifts.next_expiry()
        return min([*times, *([expiry] if expiry is not None else [])], default=None)
