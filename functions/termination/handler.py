"""Termination: woken by deletions, by what frees a drain, by its own delayed messages, and by orphans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from functions.termination.settings import TerminationSettings
from functions.termination.terminator import Drain
from shared import aws, hints, queues, runtime
from shared.cluster.errors import ApiError
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="termination")


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 (Lambda's signature)
    """Go on with every claim, node and instance that is named; answers which messages should come back."""
    settings = read(TerminationSettings, runtime.current().environ)
    messages = queues.parse_batch(
        event,
        cluster=settings.cluster_name,
        sqs=aws.sqs(),
        dead_letter_queue_url=settings.dead_letter_queue_url,
        logger=logger,
    )
    if not messages:
        return queues.partial_batch_response(())
    drain = Drain(settings, logger=logger)
    failed = []
    for message in messages:
        try:
            _follow(drain, message.hint)
        except (ApiError, BotoCoreError, ClientError) as error:
            logger.warning(
                "Termination will be tried again",
                extra={"keys": message.hint.keys, "error": type(error).__name__, "why": str(error)},
            )
            failed.append(message.id)
    try:
        drain.finish()
    except (ApiError, BotoCoreError, ClientError) as error:
        # who of the batch was concerned doesn't matter: looking again at what is done costs one request
        logger.warning("Termination will be tried again", extra={"error": type(error).__name__, "why": str(error)})
        failed = [message.id for message in messages]
    return queues.retry_response(aws.sqs(), event, failed)


def _follow(drain: Drain, hint: hints.Hint) -> None:
    if hint.detail_type == hints.INSTANCES_ORPHANED:
        drain.terminate_orphans(hint.keys)
        return
    follow = {hints.NODES_DELETING: drain.follow_node, hints.DRAINS_UNBLOCKED: drain.follow_freed}.get(
        hint.detail_type, drain.follow
    )
    for key in hint.keys:
        follow(key)
