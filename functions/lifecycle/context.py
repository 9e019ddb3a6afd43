"""One run of lifecycle: the tools that its parts share, what it has changed; one object's trouble stays its own."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws, hints
from shared.cluster import resources, writes
from shared.cluster.errors import ApiError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.lifecycle.cluster_metrics import Figures
    from functions.lifecycle.settings import LifecycleSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.cluster.resources import Resource
    from shared.cluster.writes import O


@dataclass(kw_only=True)
class Report:
    """What a run changed, for its log line and metrics."""

    registered: int = 0
    initialized: int = 0
    slowest_ready: float = 0.0
    """Seconds from creation to Initialized, of the slowest claim that got there."""
    given_up: int = 0
    lost: int = 0
    orphans: int = 0
    repaired: int = 0
    failures: int = 0
    figures: Figures | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """The tools of one run, and its report.

    ``now`` is when it began; ``counting`` is held by whoever changes the report.
    """

    settings: LifecycleSettings
    client: Client
    recorder: Recorder
    logger: Logger
    now: datetime
    report: Report = field(default_factory=Report)
    counting: Lock = field(default_factory=Lock)

    def each(self, ref: object, work: Callable[[], None]) -> None:
        """Do the work for one object; what goes wrong with it doesn't stop the others."""
        try:
            work()
        except (ApiError, ClientError) as error:
            with self.counting:
                self.report.failures += 1
            self.logger.warning("An object will be looked at again", extra={"object": str(ref), "why": str(error)})

    def update(self, resource: Resource, obj: O, change: Callable[[O], O]) -> None:
        """Change an object, unless it is gone."""
        with contextlib.suppress(NotFoundError):
            writes.update(self.client, resource, obj, change)

    def give_up(self, claim: NodeClaim, reason: str, message: str) -> None:
        """Delete a claim, and say why on it."""
        self.recorder.record(claim.ref, "Warning", reason, message)
        self.logger.warning("Gave up a NodeClaim", extra={"nodeclaim": claim.name, "reason": reason, "why": message})
        writes.delete(self.client, resources.NODE_CLAIMS, claim)

    def send(self, about: str, keys: Iterable[str]) -> None:
        """Tell termination of these."""
        for body in hints.message_bodies(about, cluster=self.settings.cluster_name, keys=keys, time=self.now):
            aws.sqs().send_message(QueueUrl=self.settings.termination_queue_url, MessageBody=body)
