"""The realised price of decisions: the price of all nodes once a decision's pods run, added to the decision log.

A decision's pods run when its NodeClaims are initialized (or gone) and none of the pods planned for them is pending.
Until then, kube-scheduler may leave pods over that need another node, so what was bought isn't yet what is paid.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true
from shared.api.pods import is_provisionable
from shared.base import decision_log
from shared.base.struct import with_fields
from shared.scheduling.nominations.planned_pods import planned_pods

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclaim import NodeClaim
    from shared.base.decision_log import LaunchRecord
    from shared.snapshot import Snapshot

WINDOW = timedelta(minutes=30)
"""Decisions older than this are left without a realised price: their pods couldn't all run."""


def realise(context: ReconcileContext, snapshot: Snapshot, price: float) -> float | None:
    """Add the ``price`` of all nodes (USD per hour) to decisions whose pods run now; None if there are none.

    DynamoDB is read only while there are NodeClaims of such an age.
    """
    by_decision: defaultdict[str, list[NodeClaim]] = defaultdict(list)
    for claim in snapshot.node_claims:
        created = claim.metadata.creation_timestamp
        if names.DECISION in claim.metadata.annotations and created is not None and context.now - created < WINDOW:
            by_decision[claim.metadata.annotations[names.DECISION]].append(claim)
    if not by_decision:
        return None
    pending = {p.key for p in snapshot.pods if is_provisionable(p)}
    running = {decision for decision, claims in by_decision.items() if _pods_run(claims, pending)}
    if not running:
        return None
    return _add(context, running, price)


def _pods_run(claims: list[NodeClaim], pending: set[str]) -> bool:
    if not all(is_true(c.status.conditions, nodeclaim.INITIALIZED) for c in claims):
        return False
    return not any(pod in pending for c in claims for pod in planned_pods(c))


def _add(context: ReconcileContext, decisions: set[str], price: float) -> float | None:
    dynamodb, table = context.aws.dynamodb(), context.settings.table_name
    records = decision_log.launches_since(dynamodb, table, context.now - WINDOW)
    realised: LaunchRecord | None = None
    for record in records:
        if record.realised is not None or record.decision not in decisions:
            continue
        realised = with_fields(record, realised=price)
        decision_log.put_launches(dynamodb, table, realised)
        context.logger.info(
            "The pods of a decision run",
            extra={
                "decision": realised.decision,
                "planned_usd_per_hour": realised.planned,
                "bought_usd_per_hour": realised.bought,
                "usd_per_hour_before": realised.before,
                "realised_usd_per_hour": round(price, 6),
            },
        )
    return price if realised is not None else None
