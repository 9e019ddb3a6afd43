"""ARC's zonal shifts of the cluster: read each minute, and kept on the cluster's Lease, where decisions see them.

What ARC answers replaces what is on the Lease. If it doesn't answer, what is known holds until its end. ARC says no end
of an autoshift, so it gets one an hour later, which is moved as long as ARC names it. Events are written before the
Lease, so a function that dies in between writes them again.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.api import labels as names
from shared.api.meta import EventReason
from shared.api.zonal_shift import current_shifts, format_shifts, read_shifts, shift_annotation
from shared.base.aws import error_code
from shared.base.struct import Struct
from shared.cluster.cluster_pause import lease_annotations, write_annotations
from shared.cluster.connect import describe
from shared.launch.resolved_node_pools import allowed_subnets, node_class_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot

AUTOSHIFT_VALIDITY = timedelta(hours=1)
"""How long an autoshift holds if ARC isn't heard of any more."""
_ACTION = "arc-zonal-shift:GetManagedResource"
_APPLIED = "APPLIED"


def applied_shifts(resource: Mapping[str, Any], known: Mapping[str, datetime], *, now: datetime) -> dict[str, datetime]:
    """By zone id: the shifts that are in effect now, each with its end, by ARC's answer to GetManagedResource.

    A shift that isn't applied, because another takes precedence, doesn't count. ``known`` are the ends so far: that of
    an autoshift is moved only once half of its validity is over, because each change interrupts decisions.
    """
    shifts: dict[str, datetime] = {}
    for shift in resource.get("zonalShifts", ()):
        if shift["appliedStatus"] == _APPLIED and shift["expiryTime"] > now:
            shifts[shift["awayFrom"]] = max(shift["expiryTime"], shifts.get(shift["awayFrom"], now))
    for autoshift in resource.get("autoshifts", ()):
        zone = autoshift["awayFrom"]
        if autoshift["appliedStatus"] != _APPLIED or zone in shifts:
            continue
        until = known.get(zone, now)
        shifts[zone] = until if until - now > AUTOSHIFT_VALIDITY / 2 else now + AUTOSHIFT_VALIDITY
    return {zone: until.astimezone(UTC) for zone, until in shifts.items()}


def zone_names(snapshot: Snapshot, node_classes: Iterable[EC2NodeClass]) -> dict[str, str]:
    """The names of zones by id, in this account: those of node classes' subnets, and of nodes."""
    of_nodes = ((n.metadata.labels.get(names.ZONE_ID), n.metadata.labels.get(names.ZONE)) for n in snapshot.nodes)
    zones = {zone_id: zone for zone_id, zone in of_nodes if zone_id and zone}
    return zones | {s.zone_id: s.zone for c in node_classes for s in c.status.subnets if s.zone_id and s.zone}


def follow_shifts(
    context: ReconcileContext, snapshot: Snapshot, node_classes: Mapping[str, EC2NodeClass]
) -> dict[str, datetime]:
    """The zones that are shifted away now, by name with the end of each shift; changes are written to the Lease.

    Raises:
        ApiError: the Lease can't be read or written.
    """
    cluster = context.settings.cluster_name
    annotations = lease_annotations(context.client, cluster=cluster)
    zones = zone_names(snapshot, node_classes.values())
    before = read_shifts(annotations)
    ends = {zone_id: before[zone] for zone_id, zone in zones.items() if zone in before}
    pools = _PoolEvents(context=context, snapshot=snapshot, zones=zones, node_classes=node_classes)
    try:
        arn = describe(context.aws.eks(), cluster).arn
        resource = context.aws.arc_zonal_shift().get_managed_resource(resourceIdentifier=arn)
    except (BotoCoreError, ClientError) as error:
        known = current_shifts(annotations, now=context.now)
        pools.unreadable(error, known)
        return known
    applied = applied_shifts(resource, ends, now=context.now)
    shifts = {zones[zone_id]: until for zone_id, until in applied.items() if zone_id in zones}
    pools.changed(before, shifts)
    if shifts != before:
        write_annotations(context.client, {names.SHIFTED_ZONES: shift_annotation(shifts)}, cluster=cluster)
    return shifts


class _PoolEvents(Struct, kw_only=True):
    """The events of NodePools; ``zones`` are names of zones by id."""

    context: ReconcileContext
    snapshot: Snapshot
    zones: Mapping[str, str]
    node_classes: Mapping[str, EC2NodeClass]

    def changed(self, before: Collection[str], after: Mapping[str, datetime]) -> None:
        """Say which of a NodePool's zones are shifted away or back, and, as long as it has no other, that it hasn't."""
        ids = {zone: zone_id for zone_id, zone in self.zones.items()}
        record = self.context.recorder.record
        for pool in self.snapshot.node_pools if before or after else ():
            own = self._zones_of(pool)
            for zone in sorted(own & (after.keys() - set(before))):
                message = f"traffic is shifted away from zone {zone} ({ids.get(zone, '')}): nothing is launched there"
                record(
                    pool.ref, "Warning", EventReason("ZonalShiftActive"), f"{message}, and its nodes aren't disrupted"
                )
            for zone in sorted(own & (set(before) - after.keys())):
                record(
                    pool.ref,
                    "Normal",
                    EventReason("ZonalShiftCleared"),
                    f"zone {zone} ({ids.get(zone, '')}) is used again",
                )
            if own and own <= after.keys():
                message = f"traffic is shifted away from all its zones: {format_shifts(after, own)}"
                record(pool.ref, "Warning", EventReason("AllZonesShifted"), f"{message}; nothing can be launched")

    def unreadable(self, error: Exception, known: Mapping[str, datetime]) -> None:
        """Say why ARC's shifts can't be read, what helps, and what holds meanwhile."""
        cluster = self.context.settings.cluster_name
        code = error_code(error) if isinstance(error, ClientError) else type(error).__name__
        advice = {
            "AccessDeniedException": f"allow {_ACTION} on the cluster",
            "ResourceNotFoundException": "register the cluster: "
            f"aws eks update-cluster-config --name {cluster} --zonal-shift-config enabled=true",
        }.get(code, "it is tried again each minute")
        held = f"; until then {format_shifts(known)} stays shifted away" if known else ""
        message = f"zonal shifts can't be read ({_ACTION}: {code}): {advice}{held}"
        self.context.logger.warning("Zonal shifts can't be read", extra={"why": str(error)})
        for pool in self.snapshot.node_pools:
            self.context.recorder.record(pool.ref, "Warning", EventReason("ZonalShiftUnknown"), message)

    def _zones_of(self, pool: NodePool) -> set[str]:
        node_class = node_class_of(pool, self.node_classes.values())
        return {s.zone for s in allowed_subnets(pool, node_class)} if node_class is not None else set()
