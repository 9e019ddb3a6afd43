"""The cluster's instances, also while an Availability Zone is disrupted.

EC2 then fails every call that may be about the zone, so the sweep by tag fails whole. The instances of NodeClaims and
nodes are asked for by id, zone by zone, and what is in a zone without an answer is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api import labels as names
from shared.base.struct import with_fields
from shared.cloud_provider import zone_of
from shared.launch.instances import is_unanswered

if TYPE_CHECKING:
    from collections.abc import Collection

    from functions.lifecycle.context import ReconcileContext
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot


def list_instances(context: ReconcileContext, snapshot: Snapshot) -> tuple[tuple[Instance, ...], frozenset[str] | None]:
    """The instances, and the zones about which EC2 doesn't answer.

    None: every instance is listed. Otherwise those without a NodeClaim and a node are missing.

    Raises:
        ClientError: EC2 returned an error that no zone explains.
    """
    try:
        return context.cloud_provider.list(), None
    except ClientError as error:
        if not is_unanswered(error):
            raise
        provider_ids = {
            *(claim.status.provider_id for claim in snapshot.node_claims),
            *(node.spec.provider_id for node in snapshot.nodes),
        }
        answer = context.cloud_provider.list_by_zone(sorted(provider_ids))
        context.logger.warning(
            "EC2 can't list the cluster's instances; those of NodeClaims and nodes are asked for by id",
            extra={"why": str(error), "zones_without_answer": sorted(answer.unanswered)},
        )
        return answer.instances, answer.unanswered


def outside(snapshot: Snapshot, zones: Collection[str]) -> Snapshot:
    """The snapshot without the NodeClaims and nodes of the zones."""
    if not zones:
        return snapshot
    return with_fields(
        snapshot,
        node_claims=tuple(
            c
            for c in snapshot.node_claims
            if not {c.metadata.labels.get(names.ZONE), zone_of(c.status.provider_id)}.intersection(zones)
        ),
        nodes=tuple(n for n in snapshot.nodes if zone_of(n.spec.provider_id) not in zones),
    )
