"""The function of node groups: scales them down each minute, and drains nodes whose instances end.

The sweep of each minute begins by a message to the function's own queue, because the functions whose sweeps begin with
the minute hold the lease then; a sweep that finds it held is redelivered.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from botocore.exceptions import BotoCoreError, ClientError

from functions.nodegroups.controller import ScaleDownController
from functions.nodegroups.interruption_controller import continue_drains, handle_batch
from functions.nodegroups.messages import parse_batch, send_sweep
from functions.nodegroups.settings import NodeGroupSettings
from shared.base import aws, metrics, queues, runtime
from shared.base.settings import read
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.invocations import attempt, entry_point
from shared.node_groups.services import group_services

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="nodegroups")
emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="nodegroups")


@entry_point(logger, respond=queues.respond)
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Sweep each minute, or handle a batch; returns the messages to deliver again, with the seconds until then."""
    settings = read(NodeGroupSettings, runtime.current().environ)
    until = runtime.current().now() + timedelta(milliseconds=context.get_remaining_time_in_millis() / 2)
    if "Records" in event:
        return _handle_batch(event, settings, run=context.aws_request_id, until=until)
    try:
        send_sweep(settings, aws.sqs(), now=runtime.current().now())
    except (BotoCoreError, ClientError) as error:
        logger.warning("The sweep begins now: its message can't be sent", extra={"why": str(error)})
        _sweep(settings, run=context.aws_request_id, until=until)
    with attempt("Continuing drains", logger):
        continue_drains(settings, until=until, logger=logger)
    return {}


def _sweep(settings: NodeGroupSettings, *, run: str, until: datetime) -> bool:
    """Scale down; False when it has to be tried again."""
    with attempt("Scaling down", logger) as scale_down:
        client = connect(settings)
        controller = ScaleDownController(
            settings, run=run, logger=logger, client=client, recorder=recorder(client), services=group_services()
        )
        metrics.emit(emf_metrics, {metrics.GROUP_NODES_REMOVED: controller.reconcile(until=until)})
    return scale_down.succeeded


def _handle_batch(event: dict[str, Any], settings: NodeGroupSettings, *, run: str, until: datetime) -> dict[str, int]:
    batch = parse_batch(event, settings, aws.sqs(), now=runtime.current().now(), logger=logger)
    failed = {*(message.id for message in batch.events), *batch.drains}
    with attempt("Handling events", logger):
        failed = handle_batch(batch, settings, until=until, logger=logger)
    if batch.sweeps and not _sweep(settings, run=run, until=until):
        failed.update(batch.sweeps)
    return queues.redelivery(event, failed)
