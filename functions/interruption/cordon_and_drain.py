"""Drains nodes: taint the node, set the NodeClaim's deadline, delete the NodeClaim, and send it to termination.

Each NodeClaim is handled on its own, so a failure in between leaves the others unchanged. Termination drains a deleted
NodeClaim, and every scheduling decision places its pods elsewhere, whichever function makes it. Until that decision is
made, the drain is delayed, because it determines which pods wait for a replacement; the delayed message that starts the
drain in any case is sent before everything else.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption.deadline import earlier_deadline
from shared.api import labels as names
from shared.api import taints
from shared.api.kubernetes import Node
from shared.base import hints, queues
from shared.base.runtime import KUBERNETES_THREADS, in_threads
from shared.base.struct import Struct, with_fields
from shared.cluster import resources, writes
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.snapshot_reader import cached_reader
from shared.instance_types import unavailable_offerings
from shared.termination import delayed_eviction, requeue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from functions.interruption.settings import InterruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.delayed_eviction import DelayedPods

_MIN_NODES_TO_LIST = 20
"""From this many nodes on, one list is cheaper than a read for each."""
DECISION_TIMEOUT = timedelta(seconds=15)
"""How long a drain waits for the scheduling decision: longer than a decision takes, and short within the notice."""


class Drain(Struct, kw_only=True):
    """A NodeClaim to drain; ``effective_at`` is when its instance is interrupted (None: the drain has no deadline).

    ``awaits_decision`` delays the drain until the scheduling decision about its pods; ``delayed_pods`` wait for a
    replacement (:mod:`shared.termination.delayed_eviction`). ``reason`` and ``message`` are the Kubernetes event's.
    """

    claim: NodeClaim
    effective_at: datetime | None
    reason: str
    message: str
    awaits_decision: bool = False
    delayed_pods: DelayedPods = {}


class Drainer(Struct, kw_only=True):
    """Cordons and drains nodes."""

    settings: InterruptionSettings
    client: Client
    dynamodb: Callable[[], DynamoDBClient]
    sqs: Callable[[], SQSClient]
    now: Callable[[], datetime]
    logger: Logger

    def delayed(self, drains: Mapping[str, Drain]) -> dict[str, Drain]:
        """The drains, with a message on its way that starts those which await the decision, whatever happens next.

        None awaits it if the termination queue can't be reached: each begins when the relay announces the deletion.
        """
        waiting = [name for name, drain in drains.items() if drain.awaits_decision]
        if self._send_to_termination(waiting, delay=DECISION_TIMEOUT):
            return dict(drains)
        return {name: with_fields(drain, awaits_decision=False) for name, drain in drains.items()}

    def cordon_and_drain(self, drains: Sequence[Drain]) -> frozenset[str]:
        """Drain each; returns the names of the NodeClaims that failed and must be tried again."""
        nodes = self._list_nodes(drains)
        start_at_latest = self.now() + DECISION_TIMEOUT

        def try_drain(drain: Drain) -> bool:
            try:
                self._drain(drain, nodes, start_at_latest)
            except (ApiError, BotoCoreError, ClientError) as error:
                self.logger.warning(
                    "Draining a node failed and is tried again",
                    extra={"nodeclaim": drain.claim.name, "error": type(error).__name__, "why": str(error)},
                )
                return False
            return True

        succeeded = in_threads(try_drain, drains, threads=KUBERNETES_THREADS)
        self._send_to_termination(
            [d.claim.name for d, ok in zip(drains, succeeded, strict=True) if ok and not d.awaits_decision]
        )
        return frozenset(d.claim.name for d, ok in zip(drains, succeeded, strict=True) if not ok)

    def start(self, delayed_pods_by_claim: Mapping[str, DelayedPods]) -> None:
        """Start the drains of NodeClaims (by name) that waited for the scheduling decision."""

        def try_start(item: tuple[str, DelayedPods]) -> bool:
            name, delayed_pods = item
            annotations = {
                delayed_eviction.ANNOTATION: delayed_eviction.encode(delayed_pods),
                requeue.REQUEUE_AT: None,
            }
            try:
                self._annotate(name, annotations)
            except NotFoundError:
                return False
            except ApiError as error:
                # The delayed message starts the drain; then no pod waits for its replacement.
                self.logger.warning("A drain starts late", extra={"nodeclaim": name, "why": str(error)})
                return False
            return True

        items = sorted(delayed_pods_by_claim.items())
        succeeded = in_threads(try_start, items, threads=KUBERNETES_THREADS)
        self._send_to_termination([name for (name, _), ok in zip(items, succeeded, strict=True) if ok])

    def mark_offerings_unavailable(self, claims: Iterable[NodeClaim], *, reason: str) -> None:
        """Mark the offerings of the NodeClaims as unavailable."""
        all_labels = (claim.metadata.labels for claim in claims)
        keys = (names.CAPACITY_TYPE, names.INSTANCE_TYPE, names.ZONE)
        offerings = sorted(
            {(labels.get(keys[0], ""), labels.get(keys[1], ""), labels.get(keys[2], "")) for labels in all_labels}
        )
        table, now = self.settings.table_name, self.now()
        unavailable_offerings.mark(self.dynamodb(), table, offerings, reason=reason, now=now)

    def cordon(self, node: Node) -> None:
        """Cordon the node as ``kubectl cordon`` does: it gets no new pods, and running pods stay."""
        writes.update(
            self.client, resources.NODES, node, lambda n: with_fields(n, spec=with_fields(n.spec, unschedulable=True))
        )

    def _drain(self, drain: Drain, nodes: dict[str, Node] | None, start_at_latest: datetime) -> None:
        claim = drain.claim
        try:
            self._taint(claim, nodes)
            self._set_deadline(drain, start_at_latest)
            writes.delete(self.client, resources.NODE_CLAIMS, claim)
        except NotFoundError:
            return
        self.logger.info(
            "Draining a node", extra={"nodeclaim": claim.name, "reason": drain.reason, "why": drain.message}
        )

    def _list_nodes(self, drains: Sequence[Drain]) -> dict[str, Node] | None:
        """The nodes by name; None if there are too few drains to list them."""
        if len(drains) < _MIN_NODES_TO_LIST:
            return None
        return {n.metadata.name: n for n in cached_reader(self.client).nodes.read().objects}

    def _taint(self, claim: NodeClaim, nodes: dict[str, Node] | None) -> None:
        name = claim.status.node_name
        if not name:
            return
        try:
            node = nodes.get(name) if nodes is not None else None
            if node is None:
                node = writes.read(self.client, resources.NODES, name, Node)
            writes.update(self.client, resources.NODES, node, _with_disrupted_taint)
        except NotFoundError:
            return

    def _set_deadline(self, drain: Drain, start_at_latest: datetime) -> None:
        """Write deadline and delayed pods to the NodeClaim; a drain in progress continues at once."""
        claim = drain.claim
        annotations: dict[str, str | None] = {}
        deadline = None
        if drain.effective_at is not None:
            deadline = earlier_deadline(claim, drain.effective_at, now=self.now())
        if deadline is not None:
            annotations = {names.TERMINATION_TIMESTAMP: deadline.isoformat(), requeue.REQUEUE_AT: None}
        if drain.awaits_decision and claim.metadata.deletion_timestamp is None:
            annotations[requeue.REQUEUE_AT] = start_at_latest.isoformat()
        if drain.delayed_pods:
            annotations[delayed_eviction.ANNOTATION] = delayed_eviction.encode(drain.delayed_pods)
        if annotations:
            self._annotate(claim.name, annotations)

    def _annotate(self, claim: str, annotations: Mapping[str, str | None]) -> None:
        self.client.patch(resources.NODE_CLAIMS.path(claim), {"metadata": {"annotations": annotations}})

    def _send_to_termination(self, claims: Sequence[str], *, delay: timedelta = timedelta()) -> bool:
        """Send the NodeClaims to the termination queue; False if it can't be reached."""
        cluster = self.settings.cluster_name
        bodies = hints.message_bodies(hints.DRAIN, cluster=cluster, keys=claims, time=self.now())
        return queues.try_send(self.sqs, self.settings.termination_queue_url, bodies, delay=delay)


def _with_disrupted_taint(node: Node) -> Node:
    """The node with the taint and label that termination sets, so that termination has nothing to change."""
    return with_fields(
        node,
        metadata=with_fields(node.metadata, labels={**node.metadata.labels, names.EXCLUDE_BALANCERS: "karpenter"}),
        spec=with_fields(node.spec, taints=taints.with_disrupted(node.spec.taints)),
    )
