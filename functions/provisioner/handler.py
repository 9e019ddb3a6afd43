"""The provisioner's handler: invoked by messages about pending pods and changed NodePools, and each minute.

One run handles a whole batch, because messages only say that something has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from botocore.exceptions import BotoCoreError, ClientError

from functions.provisioner.settings import ProvisionerSettings
from shared import aws, hints, metrics, queues, runtime
from shared.cluster.errors import ApiError
from shared.cluster.lease import LeaseHeldError, LeaseLostError
from shared.instance_types.catalog_store import CatalogMissingError
from shared.provisioning.provisioner import Provisioner
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.metrics import Metric
    from shared.provisioning.launch_records import ProvisioningReport

logger = Logger(service="provisioner")
emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="provisioner")


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Provision everything that is pending; returns which messages should be delivered again."""
    settings = read(ProvisionerSettings, runtime.current().environ)
    messages = queues.parse_batch(
        event,
        cluster=settings.cluster_name,
        sqs=aws.sqs(),
        dead_letter_queue_url=settings.dead_letter_queue_url,
        logger=logger,
    )
    if not messages:
        return queues.partial_batch_response(())
    ids = [m.id for m in messages]
    metrics.emit(emf_metrics, {metrics.HINTS: sum(m.hint.source == hints.RELAY for m in messages)})
    try:
        report = Provisioner(settings, by="provisioner", run=context.aws_request_id, logger=logger).run()
    except (LeaseHeldError, LeaseLostError) as error:
        logger.info("Waiting for the lease", extra={"why": str(error)})
        return queues.retry_response(aws.sqs(), event, ids)
    except (ApiError, BotoCoreError, CatalogMissingError, ClientError) as error:
        logger.warning("Provisioning will be retried", extra={"error": type(error).__name__, "why": str(error)})
        return queues.retry_response(aws.sqs(), event, ids)
    _emit_metrics(report)
    return queues.retry_response(aws.sqs(), event, ids) if report.throttled else queues.partial_batch_response(())


def _emit_metrics(report: ProvisioningReport) -> None:
    values: dict[Metric, float] = {
        metrics.CREATED: report.claims_created,
        metrics.LAUNCHED: len(report.launched),
        metrics.NOT_LAUNCHED: len(report.failed),
        metrics.UNSCHEDULABLE: len(report.unschedulable),
        metrics.DECISION_SECONDS: report.decision_seconds,
        metrics.PLANNED_PRICE: report.planned_price,
        metrics.BOUGHT_PRICE: report.bought_price,
    }
    if report.longest_pod_wait is not None:
        values[metrics.TO_CLAIM_SECONDS] = report.longest_pod_wait
    metrics.emit(emf_metrics, values)
    logger.info(
        "Provisioned",
        extra={
            "claims_created": report.claims_created,
            "launched": len(report.launched),
            "failed": len(report.failed),
            "unschedulable": len(report.unschedulable),
            "planned_usd_per_hour": round(report.planned_price, 6),
            "bought_usd_per_hour": round(report.bought_price, 6),
        },
    )
