"""One batch of events and drains of node groups, and the sweep over drains whose message was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.nodegroups.interrupted_drains import InterruptedDrains
from functions.nodegroups.interruptions import Interruptions
from shared.api.kubernetes import Node
from shared.base import aws
from shared.cluster import resources
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.listing import list_objects
from shared.node_groups.services import group_services
from shared.termination.eviction import Evictor

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.nodegroups.messages import Batch
    from functions.nodegroups.settings import NodeGroupSettings


def handle_batch(batch: Batch, settings: NodeGroupSettings, *, until: datetime, logger: Logger) -> set[str]:
    """Follow the events, and step the drains; the ids of the messages to redeliver.

    Raises:
        ApiError: the API server can't be read.
        ClientError, BotoCoreError: AWS refuses a call.
    """
    drains = _drains(settings, requeues=batch.requeues, logger=logger)
    failed: set[str] = set()
    if batch.events:
        interruptions = Interruptions(
            client=drains.client,
            recorder=drains.recorder,
            services=drains.services,
            ec2=aws.ec2_short_timeout,
            cluster=settings.cluster_name,
            logger=logger,
        )
        marked, failed = interruptions.mark(batch.events)
        unstepped = {name for name in sorted(marked) if not drains.step(name, until=until)}
        if unstepped:
            failed |= {message.id for message in batch.events}
    for message_id, nodes in batch.drains.items():
        unfinished = [name for name in nodes if not drains.step(name, until=until)]
        if unfinished:
            failed.add(message_id)
    return failed


def continue_drains(settings: NodeGroupSettings, *, until: datetime, logger: Logger) -> None:
    """Continue drains whose message was lost.

    Raises:
        ApiError: the nodes can't be listed.
        ClientError, BotoCoreError: AWS refuses a call.
    """
    drains = _drains(settings, requeues=0, logger=logger)
    drains.sweep(list_objects(drains.client, resources.NODES, Node).objects, until=until)


def _drains(settings: NodeGroupSettings, *, requeues: int, logger: Logger) -> InterruptedDrains:
    client, services = connect(settings), group_services()
    events = recorder(client)
    evictor = Evictor(client=client, recorder=events, now=services.clock)
    return InterruptedDrains(
        client=client,
        recorder=events,
        evictor=evictor,
        settings=settings,
        logger=logger,
        services=services,
        sqs=aws.sqs(),
        requeues=requeues,
    )
