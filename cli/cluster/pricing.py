"""Prices of nodes: by instance type, zone and capacity type, in USD per hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.labels import offering_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import ResolvedNodePools
    from shared.snapshot import Snapshot

Prices = dict[tuple[str, str, str], float]
"""USD per hour by instance type, zone and capacity type."""


def offering_prices(resolved_pools: ResolvedNodePools) -> Prices:
    """The price of every offering, of whichever NodePool."""
    return {
        (t.name, o.zone, o.capacity_type): o.price
        for types in resolved_pools.instance_types.values()
        for t in types
        for o in t.offerings
    }


def nodes_cost(nodes: Iterable[Node], prices: Prices) -> tuple[float, int]:
    """USD per hour of the nodes, and the number of nodes whose price is unknown."""
    node_prices = [prices.get(offering_key(n.metadata.labels)) for n in nodes]
    return sum(p for p in node_prices if p is not None), sum(p is None for p in node_prices)


def cluster_cost(snapshot: Snapshot, resolved_pools: ResolvedNodePools) -> tuple[float, int]:
    """USD per hour of all nodes and of launched NodeClaims without a node; and how many prices are unknown."""
    prices = offering_prices(resolved_pools)
    total, unpriced = nodes_cost(snapshot.nodes, prices)
    for claim in claims_without_node(snapshot):
        price = prices.get(offering_key(claim.metadata.labels))
        total += price or 0.0
        unpriced += price is None
    return total, unpriced


def claims_without_node(snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """The NodeClaims whose instance runs and whose node has not joined yet."""
    joined = {n.spec.provider_id for n in snapshot.nodes}
    return tuple(c for c in snapshot.node_claims if c.status.provider_id and c.status.provider_id not in joined)
