"""The instances that a sweep compares with the cluster: all of them, or in a large cluster a portion each minute.

Describing 15,000 instances takes EC2 and this function half a minute. Sixteen minutes are soon enough to find an
instance that nothing in the cluster names. What must not wait is asked for by id in each sweep: a Ready node has an
instance, so these are the ones of NodeClaims whose node isn't, of new NodeClaims, whose instances are to be tagged, of
nodes without a NodeClaim, of standby nodes, and of NodeClaims that an instance of the portion is tagged with although
their status names another. If EC2 doesn't know one of them, all are listed: an instance of another portion may have the
NodeClaim's tag.

EC2 fails every call that may be about a disrupted Availability Zone, so a list by tag fails whole. The instances of
NodeClaims and nodes are then asked for by id, zone by zone, and what is in a zone without an answer is left alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api import labels as names
from shared.api.meta import is_true
from shared.api.nodeclaim import LAUNCHED
from shared.api.standby import standby_state
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import Portion, instance_id, zone_of
from shared.launch.instances import is_unanswered
from shared.termination.garbage import is_managed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot

MAX_ASKED = 1_000
"""Instances that a sweep asks for by id besides its portion; with more, they take turns."""
NEW = timedelta(minutes=16)
"""After this time, an instance was in a portion."""
_WHOLE = Portion(0, 1)


class ComparedInstances(Struct, kw_only=True):
    """The instances, and what isn't known of the others.

    ``unanswered_zones`` are those about which EC2 doesn't answer; None: every instance was asked for that should be.
    ``unasked`` are the ids of those that may be gone, and whose turn it is later.
    """

    instances: tuple[Instance, ...]
    portion: Portion = _WHOLE
    unanswered_zones: frozenset[str] | None = None
    unasked: frozenset[str] = frozenset()

    def comparable(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without the NodeClaims and nodes of whose instances nothing is known."""
        zones, unasked = self.unanswered_zones or frozenset(), self.unasked
        if not zones and not unasked:
            return snapshot
        return with_fields(
            snapshot,
            node_claims=tuple(
                c
                for c in snapshot.node_claims
                if not {c.metadata.labels.get(names.ZONE), zone_of(c.status.provider_id)}.intersection(zones)
                and instance_id(c.status.provider_id) not in unasked
            ),
            nodes=tuple(
                n
                for n in snapshot.nodes
                if zone_of(n.spec.provider_id) not in zones and instance_id(n.spec.provider_id) not in unasked
            ),
        )


def list_instances(context: ReconcileContext, snapshot: Snapshot, *, in_portions: bool = True) -> ComparedInstances:
    """The instances that are compared now; all of them unless ``in_portions``.

    Raises:
        ClientError: EC2 returned an error that no zone explains.
    """
    size = max(len(snapshot.node_claims), len(snapshot.nodes)) if in_portions else 0
    portion = Portion.of(size, at=context.now)
    try:
        if portion.is_whole:
            return ComparedInstances(instances=context.cloud_provider.list())
        return _list_portion(context, snapshot, portion)
    except ClientError as error:
        if not is_unanswered(error):
            raise
        return _list_by_zone(context, snapshot, error)


def _list_by_zone(context: ReconcileContext, snapshot: Snapshot, error: ClientError) -> ComparedInstances:
    provider_ids = {
        *(claim.status.provider_id for claim in snapshot.node_claims),
        *(node.spec.provider_id for node in snapshot.nodes),
    }
    answer = context.cloud_provider.list_by_zone(sorted(provider_ids))
    context.logger.warning(
        "EC2 can't list the cluster's instances; those of NodeClaims and nodes are asked for by id",
        extra={"why": str(error), "zones_without_answer": sorted(answer.unanswered)},
    )
    return ComparedInstances(instances=answer.instances, unanswered_zones=answer.unanswered)


def _list_portion(context: ReconcileContext, snapshot: Snapshot, portion: Portion) -> ComparedInstances:
    listed = context.cloud_provider.list(portion)
    if not listed and any(portion.has(instance_id(n.spec.provider_id)) for n in snapshot.nodes):
        return _list_all(context, "EC2 lists none of the instances whose turn it is")
    each_time, in_turn = _suspects(snapshot, listed, portion, new_since=context.server_now - NEW)
    room = max(MAX_ASKED - len(each_time), 0)
    start = int(context.now.timestamp() // 60) * room % len(in_turn) if len(in_turn) > room else 0
    ids = sorted({*each_time, *(in_turn[start:] + in_turn[:start])[:room]})
    described = context.cloud_provider.get(ids) if ids else ()
    if len(described) < len(ids) or any(map(_has_lost_its_instance, snapshot.node_claims)):
        return _list_all(context, "EC2 doesn't know an instance of a NodeClaim or node, and another may have its tag")
    instances = (*listed, *(i for i in described if i.state != "terminated"))
    return ComparedInstances(
        instances=tuple(sorted(instances, key=lambda i: i.id)),
        portion=portion,
        unasked=frozenset(in_turn) - frozenset(ids),
    )


def _list_all(context: ReconcileContext, why: str) -> ComparedInstances:
    context.logger.info("All instances are listed, not only a portion", extra={"why": why})
    return ComparedInstances(instances=context.cloud_provider.list())


def _has_lost_its_instance(claim: NodeClaim) -> bool:
    """Whether the NodeClaim was launched, but its status names no instance."""
    is_live = claim.metadata.deletion_timestamp is None and is_true(claim.status.conditions, LAUNCHED)
    return is_live and not instance_id(claim.status.provider_id)


def _suspects(
    snapshot: Snapshot, listed: Iterable[Instance], portion: Portion, *, new_since: datetime
) -> tuple[list[str], list[str]]:
    """The ids outside the portion that must be asked for in each sweep, and those that may take turns."""
    claimed = {c.status.provider_id for c in snapshot.node_claims}
    tagged = {i.tags.get(names.NODECLAIM_TAG) for i in listed if i.provider_id not in claimed}
    live = [c for c in snapshot.node_claims if c.metadata.deletion_timestamp is None]
    each_time = [c.status.provider_id for c in live if c.name in tagged or standby_state(c)]
    in_turn = [*_new_or_without_ready_node(live, snapshot.nodes, new_since)]
    in_turn += [n.spec.provider_id for n in snapshot.nodes if n.spec.provider_id not in claimed and is_managed(n)]
    return _outside(each_time, portion), _outside(in_turn, portion)


def _new_or_without_ready_node(
    claims: Iterable[NodeClaim], nodes: Iterable[Node], new_since: datetime
) -> Iterator[str]:
    ready = {n.spec.provider_id for n in nodes if is_true(n.status.conditions, "Ready")}
    for claim in claims:
        is_new = (claim.metadata.creation_timestamp or new_since) > new_since
        if is_new or claim.status.provider_id not in ready:
            yield claim.status.provider_id


def _outside(provider_ids: Sequence[str], portion: Portion) -> list[str]:
    known = dict.fromkeys(instance_id(provider_id) for provider_id in provider_ids)
    return [known_id for known_id in known if known_id and not portion.has(known_id)]
