"""The interruption controller: drains and replaces interrupted nodes at once, and replaces others before they must go.

EC2 is called first to verify the events (:mod:`functions.interruption.verification`), and by a sweep for instances
whose status checks fail (:mod:`functions.interruption.status_checks`). Interrupted nodes come first
(:mod:`functions.interruption.interrupted_nodes`), then nodes at risk and nodes with maintenance ahead
(:mod:`functions.interruption.announced_nodes`). Both share the drains and the launch of replacements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.interruption.announced_nodes import AnnouncedNodes
from functions.interruption.interrupted_nodes import InterruptedNodes
from functions.interruption.node_claim_lookup import NodeClaimLookup
from functions.interruption.status_checks import NO_MESSAGE, StatusChecks
from functions.interruption.verification import Verification
from shared.interruptions.notice import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client

    from functions.interruption.batch import Message, Report
    from functions.interruption.cordon_and_drain import Drainer
    from functions.interruption.replacement_launch import ReplacementLaunch
    from functions.interruption.settings import InterruptionSettings
    from shared.base.runtime import Runtime
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder


class InterruptionController:
    """Handles the batch of one invocation, and counts in its report."""

    def __init__(
        self,
        settings: InterruptionSettings,
        *,
        client: Client,
        recorder: Recorder,
        drainer: Drainer,
        replacements: ReplacementLaunch,
        dynamodb: Callable[[], DynamoDBClient],
        ec2: Callable[[], EC2Client],
        runtime: Runtime,
        report: Report,
        logger: Logger,
    ) -> None:
        now, node_claims = runtime.now, NodeClaimLookup(client, runtime)
        self._verification = Verification(node_claims=node_claims, ec2=ec2, report=report, now=now, logger=logger)
        self._status_checks = StatusChecks(
            cluster=settings.cluster_name,
            client=client,
            node_claims=node_claims,
            recorder=recorder,
            ec2=ec2,
            now=now,
            logger=logger,
        )
        self._interrupted = InterruptedNodes(
            table=settings.table_name,
            node_claims=node_claims,
            drainer=drainer,
            replacements=replacements,
            recorder=recorder,
            dynamodb=dynamodb,
            now=now,
            report=report,
        )
        self._announced = AnnouncedNodes(
            cluster=settings.cluster_name,
            client=client,
            node_claims=node_claims,
            drainer=drainer,
            replacements=replacements,
            recorder=recorder,
            ec2=ec2,
            now=now,
            report=report,
            logger=logger,
        )

    def reconcile(self, messages: Sequence[Message], *, sweep: bool) -> frozenset[str]:
        """Act on the messages, and in a ``sweep`` on EC2's status checks; returns the ids of messages to redeliver.

        Raises:
            ApiError: the NodeClaims can't be listed.
        """
        events, failed = self._verification.verify(messages)
        if sweep:
            events += self._status_checks.events()
        interrupted = [e for e in events if e.notice.action is Action.CORDON_AND_DRAIN]
        announced = [e for e in events if e.notice.action is not Action.CORDON_AND_DRAIN]
        if interrupted:
            failed |= self._interrupted.drain(interrupted)
        if announced or sweep:
            failed |= self._announced.follow(announced, sweep=sweep)
        return frozenset(failed - {NO_MESSAGE})
