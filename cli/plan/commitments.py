"""What a plan uses of commitments: Savings Plans and Reserved Instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.json_output import Output
from shared.api.labels import ON_DEMAND

if TYPE_CHECKING:
    from cli.plan.planning import Plan
    from shared.cloud_provider import ResolvedNodePools


class CommitmentUse(Output, frozen=True, kw_only=True):
    """USD per hour: what is paid in any case, and what of it the account's instances use before and after the plan."""

    paid: float
    used_before: float
    used_after: float


def commitment_use(plan: Plan) -> CommitmentUse | None:
    """What the plan uses; None where commitments don't count, or there are none."""
    coverage = plan.resolved_pools.coverage
    if coverage is None:
        return None
    on_demand = _on_demand_prices(plan.resolved_pools)
    claims = {c.status.node_name: c.name for c in plan.snapshot.node_claims if c.status.node_name}
    removed = {claims.get(node, node) for node in (*plan.lost, *plan.disruption.nodes)}
    launched = [c.cheapest for c in plan.launches.new_node_claims]
    launched += [c.cheapest for action in plan.disruption.actions for c in action.replacements]
    more = [(o.instance_type, o.zone) for o in launched if o.capacity_type == ON_DEMAND]
    before, after = coverage.bill(on_demand), coverage.bill(on_demand, without=removed, more=more)
    if not before.committed:
        return None
    return CommitmentUse(
        paid=round(before.committed, 6),
        used_before=round(before.committed - before.unused, 6),
        used_after=round(after.committed - after.unused, 6),
    )


def _on_demand_prices(resolved_pools: ResolvedNodePools) -> dict[str, float]:
    types = (t for types in resolved_pools.instance_types.values() for t in types)
    return {t.name: o.price for t in types for o in t.offerings if o.capacity_type == ON_DEMAND}
