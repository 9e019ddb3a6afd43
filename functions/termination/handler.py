"""Termination function: invoked by messages about deletions, unblocked drains, requeues, full nodes and garbage."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from functions.termination.controller import TerminationController
from functions.termination.settings import TerminationSettings
from shared.api.kubernetes import Node, Pod
from shared.api.nodeclaim import NodeClaim
from shared.base import aws, hints, queues, runtime
from shared.base.runtime import in_threads
from shared.base.settings import read
from shared.cluster import listing
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.invocations import attempt, entry_point
from shared.launch.ec2_cloud_provider import EC2CloudProvider

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="termination")
_DRAINS_AT_ONCE = 4
"""The drains of one message that are reconciled at once; each evicts its pods in threads of its own."""
listing.prepare(Node, NodeClaim, Pod)


@entry_point(logger, respond=queues.respond)
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Reconcile each NodeClaim, node and instance of the batch.

    Returns the messages to deliver again, with the seconds until then.
    """
    settings = read(TerminationSettings, runtime.current().environ)
    messages = queues.parse_batch(
        event,
        cluster=settings.cluster_name,
        sqs=aws.sqs(),
        dead_letter_queue_url=settings.dead_letter_queue_url,
        logger=logger,
    )
    if not messages:
        return {}
    requeues = max(message.hint.requeues for message in messages)
    controller = _controller(settings, context, requeues=requeues)
    failed = {message.id for message in messages}
    for message in messages:
        with attempt("Termination", logger, keys=message.hint.keys):
            if _reconcile(controller, message.hint):
                failed.remove(message.id)
    with attempt("Termination", logger) as finish:
        controller.finish()
    if not finish.succeeded:  # reconciling a NodeClaim that is done costs one request
        failed = {message.id for message in messages}
    return queues.redelivery(event, failed)


def _controller(settings: TerminationSettings, context: LambdaContext, *, requeues: int) -> TerminationController:
    clock, client = runtime.current().now, connect(settings)
    return TerminationController(
        settings,
        client=client,
        recorder=recorder(client),
        cloud_provider=EC2CloudProvider.of_cluster(settings.cluster_name),
        sqs=aws.sqs,
        dynamodb=aws.dynamodb,
        now=clock,
        until=clock() + timedelta(milliseconds=context.get_remaining_time_in_millis() / 2),
        logger=logger,
        requeues=requeues,
    )


def _reconcile(controller: TerminationController, hint: hints.Hint) -> bool:
    """Reconcile each object of the message; False if it must be redelivered, because a step of a drain is running."""
    if hint.detail_type == hints.INSTANCES_ORPHANED:
        controller.terminate_instances_without_nodeclaim(hint.keys)
        return True
    if hint.detail_type == hints.ROOM_NEEDED:
        full = [key for key in hint.keys if not controller.make_room(key)]
        return not full
    reconcile = {
        hints.NODES_DELETING: controller.reconcile_node,
        hints.DRAINS_UNBLOCKED: controller.reconcile_unblocked,
    }.get(hint.detail_type, controller.reconcile_nodeclaim)
    return all(in_threads(reconcile, hint.keys, threads=_DRAINS_AT_ONCE))
