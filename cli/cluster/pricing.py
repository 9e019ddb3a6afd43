"""Prices of nodes in USD per hour: AWS's, or those that NodeOverlays set, by which Tenon decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.labels import offering_key
from shared.base.struct import Struct
from shared.instance_types.overlays import overlaid_price

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.kubernetes import Node
    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import ResolvedNodePools
    from shared.snapshot import Snapshot


class Prices(Struct, kw_only=True):
    """AWS's prices by instance type, zone and capacity type, and the NodeOverlays that change those of nodes."""

    by_offering: Mapping[tuple[str, str, str], float]
    overlays: tuple[NodeOverlay, ...] = ()

    def of_node(self, labels: Mapping[str, str]) -> float | None:
        """The price of a node or NodeClaim with these labels; None if it isn't known."""
        price = self.by_offering.get(offering_key(labels))
        return None if price is None else overlaid_price(price, labels, self.overlays)


def offering_prices(resolved_pools: ResolvedNodePools) -> Prices:
    """The prices of every offering, of whichever NodePool."""
    return Prices(
        by_offering={
            (t.name, o.zone, o.capacity_type): o.price if o.list_price is None else o.list_price
            for types in resolved_pools.instance_types.values()
            for t in types
            for o in t.offerings
        },
        overlays=resolved_pools.overlays,
    )


def nodes_cost(nodes: Iterable[Node], prices: Prices) -> tuple[float, int]:
    """USD per hour of the nodes, and the number of nodes whose price is unknown."""
    node_prices = [prices.of_node(n.metadata.labels) for n in nodes]
    return sum(p for p in node_prices if p is not None), sum(p is None for p in node_prices)


def cluster_cost(snapshot: Snapshot, resolved_pools: ResolvedNodePools) -> tuple[float, int]:
    """USD per hour of all nodes and of launched NodeClaims without a node; and how many prices are unknown."""
    prices = offering_prices(resolved_pools)
    total, unpriced = nodes_cost(snapshot.nodes, prices)
    for claim in claims_without_node(snapshot):
        price = prices.of_node(claim.metadata.labels)
        total += price or 0.0
        unpriced += price is None
    return total, unpriced


def claims_without_node(snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """The NodeClaims whose instance runs and whose node has not joined yet."""
    joined = {n.spec.provider_id for n in snapshot.nodes}
    return tuple(c for c in snapshot.node_claims if c.status.provider_id and c.status.provider_id not in joined)
