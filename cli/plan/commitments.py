"""What a plan uses of commitments: Savings Plans and Reserved Instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.cluster.commitments import commitment_bill
from cli.json_output import Output
from shared.api.labels import ON_DEMAND

if TYPE_CHECKING:
    from cli.plan.planning import Plan


class CommitmentUse(Output, frozen=True, kw_only=True):
    """USD per hour: what is paid in any case, and what of it the account's instances use before and after the plan."""

    paid: float
    used_before: float
    used_after: float


def commitment_use(plan: Plan) -> CommitmentUse | None:
    """What the plan uses; None where commitments don't count, or there are none."""
    before = commitment_bill(plan.resolved_pools)
    if before is None:
        return None
    claims = {c.status.node_name: c.name for c in plan.snapshot.node_claims if c.status.node_name}
    removed = {claims.get(node, node) for node in (*plan.lost, *plan.disruption.nodes)}
    launched = [c.cheapest for c in plan.launches.new_node_claims]
    launched += [c.cheapest for action in plan.disruption.actions for c in action.replacements]
    more = [(o.instance_type, o.zone) for o in launched if o.capacity_type == ON_DEMAND]
    after = commitment_bill(plan.resolved_pools, without=removed, more=more) or before
    return CommitmentUse(
        paid=round(before.committed, 6),
        used_before=round(before.committed - before.unused, 6),
        used_after=round(after.committed - after.unused, 6),
    )
