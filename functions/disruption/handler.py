"""Disruption's handler: invoked when a node becomes empty, by the function's own requeues, and each minute.

A sweep that meets the lease held begins again :data:`SWEEP_OFFSET` after its schedule, by a message to the function's
own queue: the schedules of all functions run in the same second, and the provisioner's sweep holds the lease while pods
are pending. A message that meets the lease held is redelivered; a schedule's event would be lost until the next minute.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from botocore.exceptions import BotoCoreError, ClientError

from functions.disruption.controller import DisruptionController
from functions.disruption.decision_records import DecisionRecorder
from functions.disruption.replacements import Replacements
from functions.disruption.requeue import CONSOLIDATION, SWEEP, RequeueSender
from functions.disruption.settings import DisruptionSettings
from shared.base import aws, hints, metrics, queues, runtime
from shared.base.settings import read
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.invocations import Attempt, attempt, entry_point
from shared.launch.ec2_cloud_provider import EC2CloudProvider

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.base.hints import Hint
    from shared.base.metrics import Metric

SWEEP_OFFSET = timedelta(seconds=20)
"""By then the provisioner's sweep has mostly ended."""
_RETRY = timedelta(seconds=1)

logger = Logger(service="disruption")
emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="disruption")


@entry_point(logger, respond=queues.respond)
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Reconcile once for all messages of the batch, or for the schedule's event, which also runs consolidation.

    Returns the messages to deliver again, with the seconds until then.
    """
    settings = read(DisruptionSettings, runtime.current().environ)
    if "Records" not in event:
        _sweep(settings, context, hints.parse(event, cluster=settings.cluster_name))
        return {}
    messages = queues.parse_batch(
        event,
        cluster=settings.cluster_name,
        sqs=aws.sqs(),
        dead_letter_queue_url=settings.dead_letter_queue_url,
        logger=logger,
    )
    consolidate = any(_is_about_consolidation(m.hint) for m in messages)
    requeues = max((m.hint.requeues for m in messages), default=0)
    if not messages:
        return {}
    reconcile = _reconcile(settings, context, consolidate=consolidate, requeues=requeues)
    if reconcile.succeeded:
        return {}
    again = queues.redelivery(event, [m.id for m in messages if not _is_replaced(m.hint)])
    # A message that would wait for the lease as long as for the next sweep is left to it: hundreds of nodes that become
    # empty send as many, and would use up their receives.
    longest = hints.SWEEP_INTERVAL.total_seconds() if reconcile.lease_held else queues.MAX_DELAY_SECONDS
    return {id_: delay for id_, delay in again.items() if delay < longest}


def _sweep(settings: DisruptionSettings, context: LambdaContext, hint: Hint) -> None:
    """Reconcile now, and if that has to be retried, by a message after the provisioner's sweep."""
    if _reconcile(settings, context, consolidate=True, requeues=0).succeeded:
        return
    now = runtime.current().now()
    try:
        _requeue_sender(settings).send_at(max((hint.time or now) + SWEEP_OFFSET, now + _RETRY), key=SWEEP)
    except (BotoCoreError, ClientError) as error:
        logger.warning("The sweep is left to the next one: it can't be requeued", extra={"why": str(error)})


def _is_replaced(hint: Hint) -> bool:
    """Whether the next sweep has been requeued since, so that retries of sweeps don't accumulate while all fail."""
    is_sweep = hint.detail_type == hints.REQUEUE and hint.keys == (SWEEP,)
    return is_sweep and hint.is_older_than(hints.SWEEP_INTERVAL, now=runtime.current().now())


def _is_about_consolidation(hint: Hint) -> bool:
    """Whether other nodes may be consolidated now than in the last reconcile."""
    if hint.detail_type == hints.REQUEUE:
        return not {CONSOLIDATION, SWEEP}.isdisjoint(hint.keys)
    return hint.detail_type in {hints.NODES_UNDERUTILIZED, hints.NODES_DELETED}


def _reconcile(settings: DisruptionSettings, context: LambdaContext, *, consolidate: bool, requeues: int) -> Attempt:
    """Reconcile once; unless it succeeds, it has to be retried."""
    controller = _controller(settings, context, requeues=requeues)
    with attempt("Disruption", logger) as disruption:
        report = controller.reconcile(consolidate=consolidate)
        counts: dict[Metric, float] = {metrics.DISRUPTED: report.removed, metrics.REPAIRED: report.repaired}
        metrics.emit(emf_metrics, {**counts, metrics.SAVED: report.saved})
    return disruption


def _controller(settings: DisruptionSettings, context: LambdaContext, *, requeues: int) -> DisruptionController:
    process, client = runtime.current(), connect(settings)
    events = recorder(client)
    cloud_provider = partial(EC2CloudProvider.launching, settings)
    return DisruptionController(
        settings,
        run=context.aws_request_id,
        client=client,
        recorder=events,
        cloud_provider=cloud_provider(None),
        replacements=Replacements(
            settings,
            client=client,
            recorder=events,
            cloud_provider=cloud_provider,
            s3=aws.s3,
            now=process.now,
            logger=logger,
        ),
        decisions=DecisionRecorder(settings.table_name, events, dynamodb=aws.dynamodb, runtime=process, logger=logger),
        requeue_sender=_requeue_sender(settings, requeues=requeues),
        sqs=aws.sqs,
        runtime=process,
        until=process.now() + timedelta(milliseconds=context.get_remaining_time_in_millis() / 2),
        logger=logger,
    )


def _requeue_sender(settings: DisruptionSettings, *, requeues: int = 0) -> RequeueSender:
    return RequeueSender(
        settings=settings, dynamodb=aws.dynamodb, sqs=aws.sqs, now=runtime.current().now, requeues=requeues
    )
