"""The scheduling decision of a cluster with what its NodePools can launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from shared.cloud_provider import ResolvedNodePools
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot


def schedule_with(
    snapshot: Snapshot, resolved_pools: ResolvedNodePools, leaving: frozenset[str] = frozenset()
) -> Decision:
    """The decision for the pods that need a node and those of ``leaving`` nodes."""
    return schedule(
        Problem(
            snapshot=snapshot,
            instance_types=resolved_pools.instance_types,
            not_ready=resolved_pools.not_ready,
            leaving=leaving,
            unused=resolved_pools.unused,
        )
    )
