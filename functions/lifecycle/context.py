"""What a reconcile of the lifecycle function is given: clients, settings, the time; and the report of its changes."""

from __future__ import annotations

import contextlib
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from shared.api.pause import paused_pools
from shared.base import decision_log, hints, queues
from shared.base.decision_log import TAKEN, DecisionRecord
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.cluster import resources, writes
from shared.cluster.cluster_pause import lease_state
from shared.cluster.errors import ApiError, NotFoundError
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.launch.clients import NodeClassClients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_eks import EKSClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

    from functions.lifecycle.cluster_metrics import ClusterMetrics
    from functions.lifecycle.settings import LifecycleSettings
    from shared.api.hourly_limits import LastHour
    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.api.pause import Pause
    from shared.base.aws import UntypedClient
    from shared.base.runtime import Runtime
    from shared.cloud_provider import CloudProvider
    from shared.cluster.client import Client
    from shared.cluster.cluster_pause import LeaseState
    from shared.cluster.events import Recorder
    from shared.cluster.resources import Resource
    from shared.cluster.writes import O
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot


class AWSClients(NodeClassClients, Protocol):
    """The AWS clients of this function, each created when it is first called."""

    def arc_zonal_shift(self) -> UntypedClient:
        """ARC's zonal shifts."""
        ...

    def dynamodb(self) -> DynamoDBClient:
        """DynamoDB."""
        ...

    def eks(self) -> EKSClient:
        """EKS."""
        ...

    def s3(self) -> S3Client:
        """S3."""
        ...

    def sqs(self) -> SQSClient:
        """SQS."""
        ...


class ReconcileScope(Struct, kw_only=True):
    """How much a reconcile does; both cost calls, so a reconcile for a node that joins does neither.

    ``resolve_node_classes`` also resolves the node classes on AWS; ``compare_with_ec2`` also collects garbage and
    writes metrics.
    """

    resolve_node_classes: bool
    compare_with_ec2: bool


HINT = ReconcileScope(resolve_node_classes=False, compare_with_ec2=False)
"""The scope of a reconcile for a node that joins."""


class Report(MutableStruct, kw_only=True):
    """What a reconcile changed, for metrics."""

    registered: int = 0
    initialized: int = 0
    slowest_ready: float = 0.0
    """Seconds from creation to Initialized, of the slowest NodeClaim that was initialized."""
    kept_garbage: int = 0
    """Objects that look like garbage and were kept, because they exceed the limit of one sweep."""
    failures: int = 0
    cluster_metrics: ClusterMetrics | None = None
    realised_price: float | None = None
    """USD per hour of all nodes, if the pods of a decision run now for the first time."""
    paused: int = 0
    """NodePools that are paused."""
    breakers: int = 0
    """NodePools whose launches the circuit breaker pauses."""
    held: int = 0
    """NodePools that an hourly limit holds back."""


class ReconcileContext(Struct, kw_only=True, dict=True):
    """The clients of one reconcile, and its report.

    ``now`` is when it began; ``runtime`` has the clock, and what a warm process keeps. ``report_lock`` is held by
    whoever changes the report in a thread.
    """

    settings: LifecycleSettings
    client: Client
    recorder: Recorder
    cloud_provider: CloudProvider
    aws: AWSClients
    runtime: Runtime
    logger: Logger
    now: datetime
    report: Report = msgspec.field(default_factory=Report)
    report_lock: Lock = msgspec.field(default_factory=Lock)

    @cached_property
    def _lease_state(self) -> LeaseState:
        return lease_state(self.client, cluster=self.settings.cluster_name, now=self.now)

    def catalog(self) -> InstanceTypeCatalog | None:
        """The instance types and prices, which a warm process keeps; None if there are none, or they can't be read."""
        try:
            return catalog_store.load(self.aws.s3(), self.settings.catalog_bucket, max_age=None)
        except (CatalogMissingError, ClientError, BotoCoreError) as error:
            self.logger.warning("The catalog can't be read", extra={"why": str(error)})
            return None

    @property
    def server_now(self) -> datetime:
        """When the reconcile began, by the API server's clock, which says when objects were created."""
        return self.now + self.client.server_clock_ahead

    @property
    def pause(self) -> Pause | None:
        """The cluster's pause; read once, by the first who needs it."""
        return self._lease_state.pause

    @property
    def shifted_zones(self) -> Mapping[str, datetime]:
        """The zones that traffic was shifted away from when the reconcile began; read with the pause."""
        return self._lease_state.shifted_zones

    @property
    def last_hour(self) -> LastHour:
        """What NodePools launched and removed when the reconcile began; read with the pause."""
        return self._lease_state.last_hour

    def pauses(self, snapshot: Snapshot) -> Mapping[str, Pause]:
        """The pauses of NodePools, by name."""
        return paused_pools(snapshot.node_pools, self.pause, now=self.now)

    def attempt(self, ref: object, action: Callable[[], None]) -> None:
        """Run the action for one object; an error is logged and does not stop the others."""
        try:
            action()
        except (ApiError, BotoCoreError, ClientError) as error:
            with self.report_lock:
                self.report.failures += 1
            self.logger.warning(
                "Reconciling an object failed, will retry", extra={"object": str(ref), "why": str(error)}
            )

    def update(self, resource: Resource, obj: O, change: Callable[[O], O]) -> None:
        """Change an object, unless it is gone."""
        with contextlib.suppress(NotFoundError):
            writes.update(self.client, resource, obj, change)

    def write_conditions(self, pool: NodePool, conditions: Callable[[NodePool], list[Condition]]) -> None:
        """Write the conditions that the function makes of the NodePool; nothing is sent if it has them."""

        def change(current: NodePool) -> NodePool:
            return with_fields(current, status=with_fields(current.status, conditions=conditions(current)))

        writes.update_status(self.client, resources.for_kind(pool.api_version, pool.kind), pool, change)

    def delete_nodeclaim(self, claim: NodeClaim, reason: str, message: str) -> None:
        """Delete a NodeClaim, with an event that says why."""
        self.recorder.record(claim.ref, "Warning", reason, message)
        self.logger.warning("Deleting a NodeClaim", extra={"nodeclaim": claim.name, "reason": reason, "why": message})
        writes.delete(self.client, resources.NODE_CLAIMS, claim)
        if claim.status.provider_id:
            # Of a node that is gone, the decision log says why, or that it was deleted by hand.
            entry = DecisionRecord(
                node=claim.node_or_own_name, at=self.now, outcome=TAKEN, reason=reason, why=message, nodes=1
            )
            decision_log.put(self.aws.dynamodb(), self.settings.table_name, entry)

    def send_to_termination(self, detail_type: str, keys: Iterable[str]) -> None:
        """Send messages about these keys to the termination queue."""
        bodies = hints.message_bodies(detail_type, cluster=self.settings.cluster_name, keys=keys, time=self.now)
        queues.try_send(self.aws.sqs, self.settings.termination_queue_url, bodies)
