"""The provisioner's handler: invoked by messages about pending pods and changed NodePools, and each minute.

One run handles a whole batch, because messages only say that something has changed.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from functions.provisioner.settings import ProvisionerSettings
from shared.base import aws, hints, metrics, queues, runtime
from shared.base.plurals import plural
from shared.base.settings import read
from shared.cluster.connect import connect
from shared.cluster.invocations import attempt, entry_point
from shared.instance_types.catalog_store import CatalogMissingError
from shared.provisioning.provisioner import provisioner_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.base.metrics import Metric
    from shared.base.queues import Message
    from shared.provisioning.launch_records import ProvisioningReport

_SILENT = timedelta(minutes=10)
logger = Logger(service="provisioner")
emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="provisioner")


@entry_point(logger, respond=queues.respond)
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Provision everything that is pending; returns the messages to deliver again, with the seconds until then."""
    settings = read(ProvisionerSettings, runtime.current().environ)
    messages = queues.parse_batch(
        event,
        cluster=settings.cluster_name,
        sqs=aws.sqs(),
        dead_letter_queue_url=settings.dead_letter_queue_url,
        logger=logger,
    )
    if not messages:
        return {}
    provision = partial(_provision, settings, run=context.aws_request_id)
    if all(m.hint.detail_type != hints.PODS_CREATED for m in messages):
        return queues.redelivery(event, provision(messages))
    from functions.provisioner import created_pods  # noqa: PLC0415 (only with -c relay=webhook)

    return created_pods.provision(event, messages, connect(settings), provision, now=runtime.current().now())


def _provision(settings: ProvisionerSettings, messages: Sequence[Message], *, run: str) -> list[str]:
    """Provision everything that is pending; returns the ids of the messages to deliver again."""
    retried = [m.id for m in messages]
    hinted = sum(m.hint.source in hints.WATCHES for m in messages)
    metrics.emit(emf_metrics, {metrics.HINTS: hinted})
    with attempt("Provisioning", logger, transient=(CatalogMissingError,)) as provisioning:
        report = provisioner_of(settings, by="provisioner", run=run, logger=logger).run(
            sweep=all(m.hint.detail_type == hints.SCHEDULED for m in messages)
        )
    if not provisioning.succeeded:
        return _without_replaced(messages) if provisioning.lease_held else retried
    _emit_metrics(report)
    if settings.relay != "webhook":
        _watch_relay(heard=hinted > 0, waiting=len(report.unschedulable))
    return retried if report.throttled else []


def _without_replaced(messages: Sequence[Message]) -> list[str]:
    """The ids of the messages for which no sweep has been sent since: those that wait for the lease are left to it."""
    now = runtime.current().now()
    return [m.id for m in messages if not m.hint.is_older_than(hints.SWEEP_INTERVAL, now=now)]


def _watch_relay(*, heard: bool, waiting: int) -> None:
    """Report a relay that gives no hint while pods wait; it repeats its hint each minute.

    The time is that of this process: a new one waits for as long again.
    """
    now = runtime.current().now()
    silent: dict[str, datetime] = runtime.current().cached("provisioner:silent", dict)
    if heard or not waiting:
        silent.clear()
    since = silent.setdefault("since", now)
    if now - since >= _SILENT:
        minutes = (now - since).total_seconds() / 60
        metrics.report_unwell(
            "relay-silent", f"{plural(waiting, 'pod')} pending, and no hint came for {minutes:.0f} minutes"
        )


def _emit_metrics(report: ProvisioningReport) -> None:
    values: dict[Metric, float] = {
        metrics.CREATED: report.claims_created,
        metrics.GROUP_NODES_ADDED: report.group_nodes,
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
