"""Nodes whose capacity reservation has ended or was cancelled, and those of capacity blocks that end soon.

The first run on, and are on-demand from then on. Their labels say so, on the NodeClaim and the node, so that their
price is the on-demand price and no pod is kept by a reservation that isn't there. Those of a capacity block don't: EC2
begins to terminate them half an hour before its end. They are drained from ten minutes before that. Rules: Karpenter's
controllers capacityreservation/capacitytype and capacityreservation/expiration.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from shared.api import labels as names
from shared.api.meta import EventReason
from shared.api.nodeclass import EXPIRING
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.termination.drain import with_termination_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node
    from shared.api.meta import ObjectMeta
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot

    L = TypeVar("L", NodeClaim, Node)

_TERMINATED_BEFORE_END = timedelta(minutes=30)
_SETTLED_AFTER = timedelta(minutes=5)
"""EC2's first answers about an instance may lack its reservation."""


def relabel(context: ReconcileContext, snapshot: Snapshot, instances: Iterable[Instance]) -> None:
    """Make nodes on-demand by their labels that are reserved by them and have no reservation in EC2 any more."""
    on_demand = {
        i.provider_id: i
        for i in instances
        if i.capacity_type == names.ON_DEMAND and context.now - i.launched_at > _SETTLED_AFTER
    }
    for claim in snapshot.node_claims:
        if claim.status.provider_id in on_demand and _is_reserved(claim):
            context.attempt(claim.ref, partial(_relabel_claim, context, claim, on_demand[claim.status.provider_id]))
    for node in snapshot.nodes:
        is_registered = node.metadata.labels.get(names.REGISTERED) == "true"
        if node.spec.provider_id in on_demand and is_registered and _is_reserved(node):
            context.attempt(node.ref, partial(_relabel_node, context, node))


def end_capacity_blocks(
    context: ReconcileContext, snapshot: Snapshot, node_classes: Mapping[str, EC2NodeClass]
) -> None:
    """Delete the NodeClaims of capacity blocks that end soon; a drain ends when EC2 begins to terminate instances."""
    expiring = {
        r.id: r.end_time
        for node_class in node_classes.values()
        for r in node_class.status.capacity_reservations
        if r.state == EXPIRING and r.end_time is not None
    }
    for claim in snapshot.node_claims if expiring else ():
        end = expiring.get(claim.metadata.labels.get(names.RESERVATION_LABELS[0], ""))
        if end is not None and claim.metadata.deletion_timestamp is None:
            context.attempt(claim.ref, partial(_end_claim, context, claim, end))


def _end_claim(context: ReconcileContext, claim: NodeClaim, end: datetime) -> None:
    reservation = claim.metadata.labels[names.RESERVATION_LABELS[0]]
    deadline = end - _TERMINATED_BEFORE_END
    context.update(resources.NODE_CLAIMS, claim, partial(with_termination_timestamp, deadline=deadline))
    message = (
        f"capacity block {reservation} ends at {end:%Y-%m-%d %H:%M} UTC; "
        f"EC2 terminates its instances from {deadline:%H:%M} UTC"
    )
    context.delete_nodeclaim(claim, EventReason("CapacityBlockEnds"), message)


def _is_reserved(obj: NodeClaim | Node) -> bool:
    is_deleted = obj.metadata.deletion_timestamp is not None
    return obj.metadata.labels.get(names.CAPACITY_TYPE) == names.RESERVED and not is_deleted


def _relabel_claim(context: ReconcileContext, claim: NodeClaim, instance: Instance) -> None:
    reservation = claim.metadata.labels.get(names.RESERVATION_LABELS[0], "")
    writes.update(context.client, resources.NODE_CLAIMS, claim, _on_demand)
    message = f"capacity reservation {reservation} has ended for instance {instance.id}, which runs on as on-demand"
    context.recorder.record(claim.ref, "Normal", EventReason("CapacityReservationEnded"), message)
    context.logger.info("A capacity reservation ended", extra={"nodeclaim": claim.name, "why": message})


def _relabel_node(context: ReconcileContext, node: Node) -> None:
    writes.update(context.client, resources.NODES, node, _on_demand)


def _on_demand(obj: L) -> L:
    return with_fields(obj, metadata=_on_demand_metadata(obj.metadata))


def _on_demand_metadata(metadata: ObjectMeta) -> ObjectMeta:
    kept = {key: value for key, value in metadata.labels.items() if key not in names.RESERVATION_LABELS}
    return with_fields(metadata, labels={**kept, names.CAPACITY_TYPE: names.ON_DEMAND})
