"""Condition CommitmentsReady of NodePools: whether all of the account's commitments could be read.

It says why prices are list prices, and doesn't affect Ready. Where commitments don't count, NodePools don't have it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api.meta import condition, with_condition

if TYPE_CHECKING:
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.meta import Condition
    from shared.api.nodepool import NodePool
    from shared.commitments.commitment import Commitments
    from shared.snapshot import Snapshot

COMMITMENTS_READY = "CommitmentsReady"


def write_conditions(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Write the condition of every NodePool that has another."""
    commitments = None
    if context.settings.commitments == "on":
        from shared.commitments import store  # noqa: PLC0415 (few deployments count commitments)

        bucket = context.settings.catalog_bucket
        commitments = store.load(context.settings, bucket, s3=context.aws.s3, runtime=context.runtime)
    with_commitments = partial(conditions, commitments=commitments, now=context.now)
    for pool in snapshot.node_pools:
        context.attempt(pool.ref, partial(context.write_conditions, pool, with_commitments))


def conditions(pool: NodePool, commitments: Commitments | None, *, now: datetime) -> list[Condition]:
    """The NodePool's conditions with CommitmentsReady; without it where commitments don't count (None)."""
    before = pool.status.conditions
    if commitments is None:
        return [c for c in before if c.type != COMMITMENTS_READY] if condition(before, COMMITMENTS_READY) else before
    return with_condition(
        before,
        COMMITMENTS_READY,
        status=not commitments.problem,
        reason="CommitmentsNotRead" if commitments.problem else "CommitmentsRead",
        message=commitments.problem,
        now=now,
        generation=pool.metadata.generation,
    )
