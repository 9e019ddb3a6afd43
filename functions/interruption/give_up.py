"""What a notice about instances leads to: the claims concerned are given up, their offerings remembered as scarce.

Every cluster of an account gets the whole Region's events, so most are about other people's instances: those are
dropped after one look at the claims. Draining is termination's work; it is told at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from shared import aws, hints, host
from shared.api import labels as names
from shared.api.nodeclaim import NodeClaim
from shared.cluster import resources, writes
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.listing import objects
from shared.instances import unavailable
from shared.interruption.notice import Ask
from shared.launch.instances import instance_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aws_lambda_powertools import Logger

    from functions.interruption.settings import InterruptionSettings
    from shared.interruption.parsing import Event

STALE_AFTER = timedelta(minutes=15)
"""An older event says nothing about now: what it announced has happened, and the sweeps have seen it."""


@dataclass(kw_only=True)
class Report:
    """What a batch came to, for its log line and metrics."""

    given_up: int = 0
    told: int = 0
    foreign: int = 0
    stale: int = 0


class GivingUp:
    """The tools of one invocation, for any number of events."""

    def __init__(self, settings: InterruptionSettings, *, logger: Logger) -> None:
        self._settings = settings
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._claims: dict[str, NodeClaim] | None = None
        self.report = Report()

    def follow(self, event: Event) -> None:
        """Do what the event asks for, for each of our claims that it concerns."""
        if event.notice.ask is Ask.NOTHING:
            return
        if host.current().now() - event.time > STALE_AFTER:
            self.report.stale += 1
            return
        for claim in self._ours(event.notice.instance_ids):
            self._follow(event, claim)

    def _ours(self, instance_ids: Iterable[str]) -> list[NodeClaim]:
        if self._claims is None:
            listed = objects(self._client, resources.NODE_CLAIMS, NodeClaim).objects
            self._claims = {instance_id(c.status.provider_id): c for c in listed if c.status.provider_id}
        ours = [self._claims[i] for i in instance_ids if i in self._claims]
        self.report.foreign += not ours
        return ours

    def _follow(self, event: Event, claim: NodeClaim) -> None:
        if claim.metadata.deletion_timestamp is not None:
            # It is going already; what EC2 says now, our own termination made it say.
            return
        notice = event.notice
        self._logger.info(
            "EC2 says something about a node",
            extra={"nodeclaim": claim.name, "reason": notice.reason, "why": notice.message},
        )
        self._recorder.record(claim.ref, "Warning", notice.reason, notice.message)
        if notice.ask is Ask.TELL:
            self.report.told += 1
            return
        now = host.current().now()
        if notice.offering_gone:
            offering = tuple(
                claim.metadata.labels.get(key, "") for key in (names.CAPACITY_TYPE, names.INSTANCE_TYPE, names.ZONE)
            )
            unavailable.mark(
                aws.dynamodb(),
                self._settings.table_name,
                (offering[0], offering[1], offering[2]),
                reason=notice.reason,
                now=now,
            )
        writes.delete(self._client, resources.NODE_CLAIMS, claim)
        self.report.given_up += 1
        for body in hints.bodies(hints.DRAIN, cluster=self._settings.cluster_name, keys=[claim.name], time=now):
            aws.sqs().send_message(QueueUrl=self._settings.termination_queue_url, MessageBody=body)
