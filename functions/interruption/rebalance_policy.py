"""What a NodePool does about rebalance recommendations: EC2's hint that a spot instance is at risk.

Most recommendations aren't followed by an interruption, so following them moves pods often. They are ignored unless the
NodePool says otherwise; Karpenter ignores them always.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from shared.api import labels as names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool

ON_REBALANCE = "tenon.sh/on-rebalance"
"""Annotation on a NodePool: its :class:`RebalancePolicy`."""


class RebalancePolicy(Enum):
    """What a rebalance recommendation does to the nodes of a NodePool."""

    IGNORE = "ignore"
    """Only an event is recorded."""
    CORDON = "cordon"
    """The node gets no new pods; running pods stay."""
    REPLACE = "replace"
    """The pods move as soon as all of them fit elsewhere, without the offering at risk."""


def rebalance_policy(pool: NodePool) -> RebalancePolicy:
    """The NodePool's policy; a missing or invalid one is to ignore."""
    try:
        return RebalancePolicy(pool.metadata.annotations.get(ON_REBALANCE, RebalancePolicy.IGNORE.value))
    except ValueError:
        return RebalancePolicy.IGNORE


def is_ignored(claim: NodeClaim, pools: Iterable[NodePool]) -> bool:
    """Whether the policy of the NodeClaim's NodePool ignores rebalance recommendations; so does a missing NodePool."""
    pool = next((p for p in pools if p.name == claim.metadata.labels.get(names.NODEPOOL)), None)
    return pool is None or rebalance_policy(pool) is RebalancePolicy.IGNORE
