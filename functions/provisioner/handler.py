"""The provisioner: woken by hints about pending pods, changed pools, and each minute.

A whole batch is one look at the cluster, because the hints only say that there is something to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from botocore.exceptions import BotoCoreError, ClientError

from functions.provisioner.settings import ProvisionerSettings
from shared import aws, metrics, queues, runtime
from shared.cluster.errors import ApiError
from shared.cluster.lease import LeaseHeldError, LeaseLostError
from shared.instance_types.catalog_store import CatalogMissingError
from shared.provisioning.provisioner import Provisioner
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.metrics import Metric
    from shared.provisioning.provisioner import ProvisioningReport

logger = Logger(service="provisioner")
written = Metrics(namespace=metrics.NAMESPACE, service="provisioner")


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Plan and launch for everything that is pending; answers which messages should come back."""
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
    try:
        report = Provisioner(settings, by="provisioner", run=context.aws_request_id, logger=logger).run()
    except (ApiError, BotoCoreError, CatalogMissingError, ClientError, LeaseHeldError, LeaseLostError) as error:
        logger.warning("Provisioning will be tried again", extra={"error": type(error).__name__, "why": str(error)})
        return queues.retry_response(aws.sqs(), event, ids)
    _measure(report)
    return queues.retry_response(aws.sqs(), event, ids) if report.throttled else queues.partial_batch_response(())


def _measure(report: ProvisioningReport) -> None:
    values: dict[Metric, float] = {
        metrics.CREATED: report.claims_created,
        metrics.LAUNCHED: len(report.launched),
        metrics.NOT_LAUNCHED: len(report.failed),
        metrics.UNSCHEDULABLE: len(report.unschedulable),
        metrics.DECISION_SECONDS: report.decision_seconds,
    }
    if report.longest_pod_wait is not None:
        values[metrics.TO_CLAIM_SECONDS] = report.longest_pod_wait
    metrics.emit(written, values)
    logger.info(
        "Provisioned",
        extra={
            "claims_created": report.claims_created,
            "launched": len(report.launched),
            "failed": len(report.failed),
            "unschedulable": len(report.unschedulable),
        },
    )
