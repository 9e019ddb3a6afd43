"""How the virtual fleet begins: with the nodes that Tenon would take over, as a migration does. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.shadow.real_fleet import price
from functions.shadow.virtual_nodes import adopted, can_be_adopted, offering_of
from shared.api.pods import is_reschedulable
from shared.shadow.ledger import Event, price_text
from shared.shadow.record import VirtualNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from functions.shadow.observed import Observed
    from functions.shadow.virtual_fleet import VirtualFleet
    from shared.api.nodeclaim import NodeClaim
    from shared.shadow.ledger import Ledger


def adopt(fleet: VirtualFleet, observed: Observed, ledger: Ledger, now: datetime) -> None:
    """Take over the nodes that another autoscaler scales, with their pods on them.

    Nodes without a NodePool to decide with, or of an instance type that it doesn't have, aren't taken over: their pods
    need new nodes.
    """
    for claim in _claims(observed, now):
        name, offering = claim.status.node_name, offering_of(claim.metadata.labels)
        fleet.nodes[name] = VirtualNode(claim=claim, counted=now)
        pods = [p for p in observed.snapshot.pods if p.spec.node_name == name and is_reschedulable(p)]
        for pod in pods:
            since = pod.status.start_time or pod.metadata.creation_timestamp or now
            fleet.bind([pod.metadata.uid], name, since=since)
        ledger.add_event(
            Event(
                at=now,
                action="adopted",
                node=name,
                pool=observed.pools[name],
                offering=offering,
                price=price_text(price(observed.catalog, offering)),
                pods=len(pods),
            )
        )
    fleet.waited.update(pod.metadata.uid for pod in observed.snapshot.pods)


def _claims(observed: Observed, now: datetime) -> Iterator[NodeClaim]:
    """The virtual NodeClaims of the nodes that are taken over."""
    claims = {claim.status.provider_id: claim for claim in observed.snapshot.node_claims if claim.status.provider_id}
    pools = {pool.name: pool for pool in observed.snapshot.node_pools}
    for node in observed.snapshot.nodes:
        pool = pools.get(observed.pools.get(node.metadata.name, ""))
        if pool is None or not observed.autoscalers[node.metadata.name] or not can_be_adopted(node):
            continue
        instance_type = offering_of(node.metadata.labels).instance_type
        types = {t.name: t for t in observed.resolved_pools.instance_types.get(pool.name, ())}
        if instance_type in types:
            yield adopted(node, claims.get(node.spec.provider_id), pool, types[instance_type], now=now)
