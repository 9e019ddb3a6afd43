"""Records what the launches of a decision cost: planned and bought price, in the decision log and in a log line.

The lifecycle function adds the realised price once the decision's pods run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws, decision_log, runtime
from shared.api import labels as names
from shared.api import nodeclaim
from shared.cloud_provider import LaunchedInstance
from shared.decision_log import LaunchRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import LaunchResult
    from shared.settings import ProvisioningSettings


def planned_price(claims: Iterable[NodeClaim], launched: Iterable[LaunchedInstance]) -> float:
    """USD per hour that those of the NodeClaims were planned with that have these instances."""
    prices = {c.name: nodeclaim.planned_price(c) for c in claims}
    return sum(prices[r.claim_name] for r in launched)


def record_launches(
    created: Sequence[NodeClaim],
    results: Iterable[LaunchResult],
    settings: ProvisioningSettings,
    *,
    pods: Mapping[str, str],
    before: float,
    logger: Logger,
) -> None:
    """Record the launches of a decision's ``created`` NodeClaims; a failure of DynamoDB is only logged.

    ``pods`` has the NodeClaim of each pod, ``before`` is the price of the nodes that existed, USD per hour.
    """
    names_of_created = {c.name for c in created}
    launched = [r for r in results if isinstance(r, LaunchedInstance) and r.claim_name in names_of_created]
    if not launched:
        return
    record = LaunchRecord(
        decision=created[-1].metadata.annotations.get(names.DECISION, ""),
        at=runtime.current().now(),
        pods=sum(claim in names_of_created for claim in pods.values()),
        nodes=len(launched),
        planned=planned_price(created, launched),
        bought=sum(r.price for r in launched),
        before=before,
    )
    logger.info(
        "Launched the nodes of a decision",
        extra={
            "decision": record.decision,
            "nodes": record.nodes,
            "pods": record.pods,
            "planned_usd_per_hour": round(record.planned, 6),
            "bought_usd_per_hour": round(record.bought, 6),
            "usd_per_hour_before": round(record.before, 6),
        },
    )
    try:
        decision_log.put_launches(aws.dynamodb(), settings.table_name, record)
    except ClientError as error:
        logger.warning("Couldn't write to the decision log", extra={"decision": record.decision, "why": str(error)})
