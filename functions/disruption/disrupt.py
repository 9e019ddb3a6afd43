"""One look at which nodes nobody needs: since when they are empty is noted, and those whose time is up are given up.

Decided under the cluster's lease. Before a claim goes, its node is tainted and its pods are read once more, because the
scheduler may have used it since; then it has the node back. What can't go yet is looked at again at the second its time
is up, by a delayed message, not at the next minute's sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError
from msgspec.structs import replace
from shared.scheduling.schedule import schedule

from shared import aws, hints, host, queues
from shared.cluster import resources, writes
from shared.cluster.connect import connect
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.events import recorder
from shared.cluster.lease import hold
from shared.cluster.reading import pods_on, read
from shared.disruption import emptiness
from shared.lifecycle import draining
from shared.scheduling.decision import Problem

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.disruption.settings import DisruptionSettings
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.command import Refused, Removal
    from shared.snapshot import Snapshot

_WAKE_UP_WITHIN_SECONDS = 90
"""What is due later than that is found by a sweep that comes before it."""
_WAKE_UP_KEPT_SECONDS = 3600


@dataclass(kw_only=True)
class Report:
    """What a look came to, for its log line and metrics."""

    removed: int = 0
    refused: int = 0


class Disruption:
    """One run: the tools it works with, and its steps."""

    def __init__(self, settings: DisruptionSettings, *, run: str, logger: Logger) -> None:
        self._settings = settings
        self._run = run
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)

    def look(self) -> Report:
        """Note, decide, carry out, and see to it that somebody looks when the next time is up.

        Raises:
            LeaseHeldError: another function is deciding.
        """
        report = Report()
        with hold(
            self._client, cluster=self._settings.cluster_name, holder=f"disruption/{self._run}", now=host.current().now
        ) as lease:
            now = host.current().now()
            snapshot = read(self._client, now=now)
            awaited = _awaited(snapshot)
            snapshot = self._note(snapshot, awaited, now)
            command = emptiness.decide(snapshot, awaited=awaited, now=now)
            nodes = {n.metadata.name: n for n in snapshot.nodes}
            claims = {c.name: c for c in snapshot.node_claims}
            for removal in command.removals:
                lease.check()
                report.removed += self._remove(removal, claims[removal.claim], nodes[removal.node])
        for refused in command.refused:
            self._tell(refused, nodes[refused.node])
        report.refused = len(command.refused)
        if command.look_again is not None:
            self._wake_up(command.look_again)
        return report

    def _note(self, snapshot: Snapshot, awaited: frozenset[str], now: datetime) -> Snapshot:
        """Write since when claims are empty, or no longer; the snapshot as it is after that."""
        noted: dict[str, NodeClaim] = {}
        for observation in emptiness.observe(snapshot, awaited=awaited):
            change = partial(emptiness.noted, is_empty=observation.is_empty, now=now)
            try:
                after = writes.update_status(self._client, resources.NODE_CLAIMS, observation.claim, change)
            except ApiError as error:
                self._logger.warning(
                    "Emptiness was not noted", extra={"nodeclaim": observation.claim.name, "why": str(error)}
                )
                continue
            noted[after.name] = after
        return with_fields(snapshot, node_claims=tuple(noted.get(c.name, c) for c in snapshot.node_claims))

    def _remove(self, removal: Removal, claim: NodeClaim, node: Node) -> bool:
        """Taint, look once more, and delete; True if the claim goes."""
        try:
            tainted = writes.update(self._client, resources.NODES, node, _tainted)
            if not emptiness.still_valid(pods_on(self._client, removal.node).objects):
                writes.update(self._client, resources.NODES, tainted, _untainted)
                self._logger.info("A node is in use again", extra={"node": removal.node})
                return False
            if not writes.delete(self._client, resources.NODE_CLAIMS, claim):
                return False
        except NotFoundError:
            return False
        self._recorder.record(claim.ref, "Normal", "DisruptionTerminating", f"{removal.reason}: {removal.message}")
        self._logger.info(
            "Disrupting a node",
            extra={
                "nodeclaim": removal.claim,
                "node": removal.node,
                "reason": removal.reason,
                "why": removal.message,
            },
        )
        now = host.current().now()
        for body in hints.bodies(hints.DRAIN, cluster=self._settings.cluster_name, keys=[removal.claim], time=now):
            aws.sqs().send_message(QueueUrl=self._settings.termination_queue_url, MessageBody=body)
        return True

    def _tell(self, refused: Refused, node: Node) -> None:
        self._recorder.record(node.ref, "Normal", "DisruptionBlocked", f"{refused.reason}: {refused.message}")
        self._logger.info(
            "A node is kept", extra={"node": refused.node, "reason": refused.reason, "why": refused.message}
        )

    def _wake_up(self, moment: datetime) -> None:
        """Have a message come at that moment, once for each second however many looks ask for it."""
        now = host.current().now()
        wait = moment - now
        if wait.total_seconds() > _WAKE_UP_WITHIN_SECONDS:
            return
        second = -int(-moment.timestamp() // 1)
        try:
            aws.dynamodb().put_item(
                TableName=self._settings.table_name,
                Item={
                    "pk": {"S": "wake-up"},
                    "sk": {"S": str(second)},
                    "expires": {"N": str(second + _WAKE_UP_KEPT_SECONDS)},
                },
                ConditionExpression="attribute_not_exists(pk)",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return
        for body in hints.bodies(hints.WAKE_UP, cluster=self._settings.cluster_name, keys=["empty"], time=now):
            queues.send_later(aws.sqs(), self._settings.disruption_queue_url, body=body, delay=wait)


def _awaited(snapshot: Snapshot) -> frozenset[str]:
    """Nodes and claims that pending pods will use: they are placed first, on what there is."""
    problem = Problem(snapshot=snapshot, instance_types={p.name: () for p in snapshot.node_pools})
    return frozenset(name for name, pods in schedule(problem).existing.items() if pods)


def _tainted(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, taints=draining.with_disrupted(node.spec.taints)))


def _untainted(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, taints=draining.without_disrupted(node.spec.taints)))
