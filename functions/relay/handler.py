"""The relay function: a schedule invokes it each minute, and one invocation at a time holds the watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from functions.relay.relay_lease import RelayLease
from functions.relay.settings import RelaySettings
from functions.relay.tenure import Tenure
from shared.base import aws, runtime
from shared.base.settings import read
from shared.cluster.connect import connect

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="relay")


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:  # noqa: ARG001 (Lambda's signature)
    """Hold the watch if no invocation does, or succeed the one that ends; the response says which."""
    process = runtime.current()
    began = process.now()
    settings = read(RelaySettings, process.environ)
    # Watchers and renewals try again by themselves, so that they can be stopped while they wait.
    client = connect(settings, attempts=1)
    tenure = Tenure(
        client,
        aws.events_without_retries(),
        RelayLease(client, identity=context.aws_request_id, now=process.now),
        bus=settings.event_bus_name,
        cluster=settings.cluster_name,
        began=began,
        runtime=process,
        logger=logger,
    )
    return {"relay": tenure.run()}
