"""Makes room on full nodes: evicts the pods that :mod:`shared.disruption.node_room` chooses, and holds their room.

The room that an evicted pod leaves would go to its own replacement, which waits too. A DaemonSet's pods tolerate
cordons, so the node is cordoned before the first eviction and uncordoned when the daemon runs, after two minutes at
most. The cordon, the attempt and the time until which this invocation evicts are one write, with the resourceVersion
that the choice was made from: of two messages at once one succeeds, and after a crash the next message continues. The
room of a resized pod needs no cordon, because kube-scheduler counts what the pod asks for.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from functions.termination.step_stamp import EVICTING
from shared.api import labels as names
from shared.api.kubernetes import Node, Pod, PodDisruptionBudget
from shared.api.nodepool import NodePool
from shared.api.pods import is_daemon
from shared.base import hints, queues
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.cluster.errors import ConflictError, NotFoundError
from shared.cluster.listing import list_objects
from shared.cluster.watched_objects import UNBOUND, list_pods_on_node
from shared.disruption.disruption_queue import is_queued
from shared.disruption.node_room import (
    MAKE_ROOM,
    node_blocker,
    plan_room,
    pods_by_node,
    required_node,
)
from shared.disruption.pod_disruption_budgets import PodDisruptionBudgets
from shared.disruption.room_record import ANNOTATION, CORDON_LIMIT, EVICTING_TIMEOUT, RoomRecord, encoded, room_record
from shared.scheduling.nominations.displacements import ROOM_FOR_DAEMON

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from functions.termination.cluster_cache import ClusterCache
    from functions.termination.settings import TerminationSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.disruption.node_room import RoomPlan
    from shared.termination.eviction import Evictor

_FIRST_LOOK = timedelta(seconds=5)
"""When a cordoned node is reconciled again; later looks wait a third of the time since it was cordoned."""


class RoomMaker:
    """Makes room on the nodes of one invocation. Nodes whose cordon must go later are sent by :meth:`send`."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        evictor: Evictor,
        *,
        settings: TerminationSettings,
        sqs: Callable[[], SQSClient],
        now: Callable[[], datetime],
        logger: Logger,
    ) -> None:
        self._client = client
        self._cache = cache
        self._evictor = evictor
        self._settings = settings
        self._sqs = sqs
        self._now = now
        self._logger = logger
        self._unbound: tuple[Pod, ...] | None = None
        self._budgets: dict[str, PodDisruptionBudget] | None = None
        self._pools: dict[str, NodePool | None] = {}
        self._again: dict[int, list[str]] = {}
        """The nodes to reconcile again, by seconds until then."""

    def make_room(self, node_name: str, *, until: datetime) -> bool:
        """Evict pods for those that wait for room on the node, or uncordon it when they have it.

        False if the message must be redelivered, because another invocation works on the node or the time is over.
        """
        now = self._now()
        try:
            node = writes.read(self._client, resources.NODES, node_name, Node)
        except NotFoundError:
            return True
        claim = self._cache.nodeclaim_of(self._cache.as_managed(node))
        if claim is None or _is_leaving(node, claim):
            return True
        record = room_record(node.metadata.annotations)
        if record.is_evicting(now=now) or now >= until:
            return False
        try:
            plan = self._plan(node, claim, record, now)
            if plan.evict:
                self._evict(node, plan, record, until=min(until, now + EVICTING))
            elif record.cordoned_since is not None:
                self._release(node, record, now)
        except ConflictError:
            return False
        except NotFoundError:
            return True
        return True

    def send(self, *, requeues: int) -> None:
        """Send the delayed messages about the nodes that are still cordoned; ``requeues`` as in a hint."""
        now = self._now()
        for seconds, node_names in self._again.items():
            for body in hints.message_bodies(
                hints.ROOM_NEEDED, cluster=self._settings.cluster_name, keys=node_names, time=now, requeues=requeues + 1
            ):
                delay = timedelta(seconds=seconds)
                queues.send_delayed(self._sqs(), self._settings.termination_queue_url, body=body, delay=delay)
        self._again.clear()

    # --- what to do ---

    def _plan(self, node: Node, claim: NodeClaim, record: RoomRecord, now: datetime) -> RoomPlan:
        """The evictions for the node as it is now; none for a NodePool that is gone or opts out."""
        pool = self._pool(node.metadata.labels.get(names.NODEPOOL, ""))
        if pool is None or pool.metadata.annotations.get(MAKE_ROOM) == "false":
            return plan_room(node, (), PodDisruptionBudgets(()), record, now=now)
        name = node.metadata.name
        pods = (*list_pods_on_node(self._client, name).objects, *self._unbound_pods())
        return plan_room(
            node,
            pods_by_node(pods, {name})[name],
            PodDisruptionBudgets(self._pod_disruption_budgets().values()),
            record,
            now=now,
            blocker=node_blocker(node, claim, pool, now=now),
        )

    def _unbound_pods(self) -> tuple[Pod, ...]:
        if self._unbound is None:
            self._unbound = list_objects(self._client, resources.PODS, Pod, fields=UNBOUND).objects
        return self._unbound

    def _pod_disruption_budgets(self) -> dict[str, PodDisruptionBudget]:
        """By namespace/name; each eviction of this invocation is counted."""
        if self._budgets is None:
            listed = list_objects(self._client, resources.POD_DISRUPTION_BUDGETS, PodDisruptionBudget).objects
            self._budgets = {f"{b.metadata.namespace}/{b.metadata.name}": b for b in listed}
        return self._budgets

    def _pool(self, name: str) -> NodePool | None:
        """The NodePool; None if it doesn't exist or can't be read."""
        if name not in self._pools:
            try:
                self._pools[name] = writes.read(self._client, resources.NODE_POOLS, name, NodePool)
            except (NotFoundError, msgspec.ValidationError):
                self._pools[name] = None
        return self._pools[name]

    # --- evictions ---

    def _evict(self, node: Node, plan: RoomPlan, record: RoomRecord, *, until: datetime) -> None:
        """Cordon the node if it must hold the room, evict the pods one by one, and stop where one can't be evicted.

        Raises:
            ConflictError: the node has changed since it was read.
        """
        now = self._now()
        attempted = record.with_attempt((p.metadata.uid for p in plan.served), now=now)
        cordons = any(is_daemon(p) for p in plan.served) and not node.spec.unschedulable
        holds = cordons or record.cordoned_since is not None
        begun = with_fields(attempted, evicting_until=now + EVICTING_TIMEOUT, cordoned_since=now if holds else None)
        node = self._write(node, begun, unschedulable=True if cordons else None)
        waiting = plan.served[0]
        lacks = f"{ROOM_FOR_DAEMON}," if is_daemon(waiting) else "has no room for pod"
        reasons = f"node {node.metadata.name} {lacks} {waiting.key}"
        evicted = 0
        for pod in plan.evict:
            if self._now() >= until:
                break
            blocked = self._evictor.evict(pod, why=reasons)
            if blocked:
                self._logger.info("Can't make room now", extra={"node": node.metadata.name, "why": blocked})
                break
            self._count(pod)
            evicted += 1
        if evicted:
            served = [p.key for p in plan.served]
            self._logger.info("Making room", extra={"node": node.metadata.name, "pods": served, "evicted": evicted})
            ended = with_fields(begun, evicting_until=None)
            self._write(with_fields(node, metadata=with_fields(node.metadata, resource_version="")), ended)
            if ended.cordoned_since is not None:
                self._look_again(node.metadata.name, ended.cordoned_since, now)
        else:
            self._uncordon(
                node, with_fields(record, evicting_until=None), was_cordoned=begun.cordoned_since is not None
            )

    def _count(self, pod: Pod) -> None:
        """Count the eviction in the pod's budget, for the nodes that follow in this invocation."""
        budgets = self._pod_disruption_budgets()
        for budget in PodDisruptionBudgets(budgets.values()).counting(pod):
            left = budget.status.disruptions_allowed - 1
            counted = with_fields(budget, status=with_fields(budget.status, disruptions_allowed=left))
            budgets[f"{budget.metadata.namespace}/{budget.metadata.name}"] = counted

    # --- the cordon ---

    def _release(self, node: Node, record: RoomRecord, now: datetime) -> None:
        """Uncordon the node if the pods that it was cordoned for run or have waited too long; else look again."""
        since = record.cordoned_since or now
        waiting = any(
            required_node(p) == node.metadata.name and p.metadata.uid in record.attempts and is_daemon(p)
            for p in self._unbound_pods()
        )
        if waiting and now - since < CORDON_LIMIT:
            self._look_again(node.metadata.name, since, now)
        else:
            self._uncordon(node, record, was_cordoned=True)

    def _uncordon(self, node: Node, record: RoomRecord, *, was_cordoned: bool) -> None:
        released = with_fields(record, cordoned_since=None)
        self._write(node, released, unschedulable=False if was_cordoned else None)

    def _look_again(self, name: str, since: datetime, now: datetime) -> None:
        wait = max(_FIRST_LOOK, (now - since) / 3)
        self._again.setdefault(round(wait.total_seconds()), []).append(name)

    def _write(self, node: Node, record: RoomRecord, *, unschedulable: bool | None = None) -> Node:
        """Write the record, and the cordon unless it stays as it is; the stored node.

        Raises:
            ConflictError: the node has another resourceVersion than this one.
        """
        metadata: dict[str, Any] = {"annotations": {ANNOTATION: encoded(record)}}
        if node.metadata.resource_version:
            metadata["resourceVersion"] = node.metadata.resource_version
        patch: dict[str, Any] = {"metadata": metadata}
        if unschedulable is not None:
            patch["spec"] = {"unschedulable": unschedulable or None}
        stored = self._client.patch(resources.NODES.path(node.metadata.name), patch)
        return msgspec.json.decode(stored, type=Node)


def _is_leaving(node: Node, claim: NodeClaim) -> bool:
    """Whether the node is being drained or is about to be: all its pods leave anyway."""
    is_deleted = node.metadata.deletion_timestamp is not None or claim.metadata.deletion_timestamp is not None
    return is_deleted or is_queued(claim) or any(t.key == names.DISRUPTED_TAINT for t in node.spec.taints)
