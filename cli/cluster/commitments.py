"""What a cluster's nodes use of the account's commitments, for plan and report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.labels import ON_DEMAND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shared.cloud_provider import ResolvedNodePools
    from shared.commitments.balance import Bill
    from shared.commitments.commitment import InstanceKind


def commitment_bill(
    resolved_pools: ResolvedNodePools, *, without: Collection[str] = (), more: Iterable[InstanceKind] = ()
) -> Bill | None:
    """The bill for on-demand instances without these nodes (by NodeClaim) and with more of some kinds.

    None where commitments don't count, or there are none.
    """
    coverage = resolved_pools.coverage
    if coverage is None:
        return None
    types = (t for types in resolved_pools.instance_types.values() for t in types)
    on_demand = {t.name: o.price for t in types for o in t.offerings if o.capacity_type == ON_DEMAND}
    bill = coverage.bill(on_demand, without=without, more=more)
    return bill if bill.committed else None
