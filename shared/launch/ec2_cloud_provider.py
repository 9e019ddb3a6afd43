"""EC2 as the cloud provider: instance types of NodePools, instances created, described and terminated, drift.

The rooms behind it are imported when a method needs them: a function that only terminates must not load the launch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.api.labels import PAUSED
from shared.base import aws, dynamodb_rows, runtime
from shared.base.struct import Struct
from shared.cloud_provider import instance_id, zone_of
from shared.instance_types.catalog_store import CatalogMissingError
from shared.launch import instances

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.api.nodeclaim import NodeClaim
    from shared.base.dynamodb_rows import Row
    from shared.base.runtime import Runtime
    from shared.base.settings import LaunchSettings
    from shared.cloud_provider import (
        Instance,
        InstanceNetwork,
        InstancesByZone,
        LaunchFailure,
        LaunchRequest,
        LaunchResult,
        NodeClass,
        Portion,
        RebootFailure,
        ResolvedNodePools,
        Terminations,
    )
    from shared.cluster.connect import ClusterInfo
    from shared.commitments.commitment import Commitments
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.launch.clients import LaunchClients
    from shared.launch.node_class.status import NodeClassResolver
    from shared.launch.resolved_node_pools import CommitmentUse, LaunchConditions
    from shared.snapshot import Snapshot


class EC2CloudProvider(Struct, kw_only=True):
    """EC2 for one cluster: a :class:`shared.cloud_provider.CloudProvider`.

    ``runtime`` is the process: its clock, and the cache of what earlier decisions worked out. ``table_name`` is
    DynamoDB's, which keeps the rate limit of CreateFleet, the unavailable offerings and partial
    launches. It and ``default_instance_profile`` are needed to list instance types and to create; ``catalog`` to list
    instance types. ``commitments`` are the account's, None where they don't count; ``commitment_share`` is what the
    cluster may use of what is unused, None: by running instances.
    """

    clients: LaunchClients
    runtime: Runtime
    cluster_name: str
    table_name: str = ""
    default_instance_profile: str = ""
    catalog: InstanceTypeCatalog | None = None
    commitments: Commitments | None = None
    commitment_share: float | None = None

    @classmethod
    def of_cluster(cls, cluster_name: str) -> EC2CloudProvider:
        """The provider of a function that launches nothing."""
        return cls(clients=aws, runtime=runtime.current(), cluster_name=cluster_name)

    @classmethod
    def launching(cls, settings: LaunchSettings, catalog: InstanceTypeCatalog | None) -> EC2CloudProvider:
        """The provider of a function with these settings; the account's commitments count only with a catalog."""
        process, commitments = runtime.current(), None
        if catalog is not None and settings.commitments == "on":
            from shared.commitments import store

            commitments = store.load(settings, settings.catalog_bucket, s3=aws.s3, runtime=process)
        return cls(
            clients=aws,
            runtime=process,
            cluster_name=settings.cluster_name,
            table_name=settings.table_name,
            default_instance_profile=settings.node_instance_profile,
            catalog=catalog,
            commitments=commitments,
            commitment_share=settings.commitment_share,
        )

    def list_instance_types(
        self, snapshot: Snapshot, *, now: datetime, only_recently_unavailable: bool = False
    ) -> ResolvedNodePools:
        """The instance types that each NodePool can launch now.

        Raises:
            CatalogMissingError: no catalog was given.
            ClientError: AWS failed or throttled.
        """
        from shared.instance_types.provider import InstanceTypeCache
        from shared.launch.resolved_node_pools import current_node_classes, resolve_node_pools

        if self.catalog is None:
            raise CatalogMissingError("the cloud provider was given no catalog")
        conditions = read_conditions(
            self.clients.dynamodb(),
            self.table_name,
            commitments=self._commitment_use(now),
            now=now,
            only_recently_unavailable=only_recently_unavailable,
        )
        node_classes = current_node_classes(self._node_class_resolver(snapshot), snapshot.node_classes, now=now)
        cache = InstanceTypeCache.of(self.runtime)
        resolved = resolve_node_pools(snapshot, node_classes, self.catalog, conditions, cache=cache, now=now)
        if snapshot.pause is None and all(PAUSED not in p.metadata.annotations for p in snapshot.node_pools):
            return resolved
        from shared.api.pause import paused_pools

        return resolved.paused(paused_pools(snapshot.node_pools, snapshot.pause, now=now))

    def create(
        self, requests: Sequence[LaunchRequest], *, now: datetime, recorded: Callable[[], Mapping[str, str]]
    ) -> tuple[LaunchResult, ...]:
        """Launch the NodeClaims by CreateFleet, and remember the offerings that had no capacity.

        Raises:
            ClientError: DynamoDB failed, or the cluster can't be described.
        """
        from shared.instance_types import interruption_rates, unavailable_offerings
        from shared.launch.fleet import errors
        from shared.launch.fleet.launch import PartialLaunches, launch
        from shared.launch.fleet.rate_limit import RateLimiter

        dynamodb = self.clients.dynamodb()
        rate_limiter = RateLimiter(dynamodb, self.table_name)
        interrupted = [*dynamodb_rows.unexpired_rows(dynamodb, self.table_name, interruption_rates.PARTITION, now=now)]
        results = launch(
            requests,
            clients=self.clients,
            runtime=self.runtime,
            cluster=self._cluster(),
            now=now,
            recorded=recorded,
            rate_limiter=rate_limiter,
            interruption_rates=interruption_rates.rates(interrupted, now=now) if interrupted else {},
            partial_launches=PartialLaunches(dynamodb, self.table_name),
        )
        # Each NodeClaim of a call names the call's unavailable offerings; they are written once.
        unavailable = dict.fromkeys(offering for result in results for offering in result.unavailable)
        lasting = {offering for r in results if r.unavailable and errors.is_lasting(r) for offering in r.unavailable}
        for offerings, reason, ttl in (
            ([o for o in unavailable if o not in lasting], "NoCapacity", unavailable_offerings.TTL),
            ([o for o in unavailable if o in lasting], "Failing", unavailable_offerings.LASTING_TTL),
        ):
            if offerings:
                unavailable_offerings.mark(dynamodb, self.table_name, offerings, reason=reason, now=now, ttl=ttl)
        return results

    def start(self, claims: Sequence[NodeClaim], *, now: datetime) -> tuple[LaunchFailure, ...]:
        """Start the NodeClaims' stopped instances, and remember the offerings that had no capacity.

        Raises:
            ClientError: DynamoDB failed.
        """
        from shared.instance_types import unavailable_offerings
        from shared.launch import instance_power

        failures = instance_power.start(self.clients.ec2(), claims)
        unavailable = dict.fromkeys(offering for failure in failures for offering in failure.unavailable)
        if unavailable:
            dynamodb = self.clients.dynamodb()
            unavailable_offerings.mark(dynamodb, self.table_name, unavailable, reason="NoCapacity", now=now)
        return failures

    def stop(self, instance_ids: Sequence[str]) -> Mapping[str, str]:
        """Stop the instances; returns EC2's error by instance."""
        from shared.launch import instance_power

        return instance_power.stop(self.clients.ec2(), instance_ids)

    def reboot(self, instance_id: str) -> RebootFailure | None:
        """Request a reboot of the instance; why EC2 refuses, or None."""
        from shared.launch import instance_power

        return instance_power.reboot(self.clients.ec2(), instance_id)

    def delete(self, instance_ids: Sequence[str]) -> Terminations:
        """Terminate the instances; those that EC2 doesn't know are left out."""
        return instances.terminate(self.clients.ec2(), instance_ids)

    def get(self, instance_ids: Sequence[str]) -> tuple[Instance, ...]:
        """Those of the instances that EC2 knows, terminated ones too, by id."""
        return instances.get(self.clients.ec2(), instance_ids)

    def list(self, portion: Portion | None = None) -> tuple[Instance, ...]:
        """Every instance, or of the portion, that has the cluster's tag and isn't terminated, by id."""
        last_digits = () if portion is None or portion.is_whole else portion.last_digits
        return instances.list_by_cluster(self.clients.ec2(), self.cluster_name, last_digits)

    def list_by_zone(self, provider_ids: Sequence[str]) -> InstancesByZone:
        """Those of the instances that aren't terminated, asked by id: for when a sweep by tag fails."""
        by_zone: dict[str, list[str]] = {}
        for provider_id in provider_ids:
            if known_id := instance_id(provider_id):
                by_zone.setdefault(zone_of(provider_id), []).append(known_id)
        return instances.list_by_zone(self.clients.ec2(), by_zone)

    def is_drifted(self, claim: NodeClaim, node_class: NodeClass, network: InstanceNetwork | None) -> str:
        """How the instance differs from what its EC2NodeClass selects now; empty if it doesn't."""
        from shared.launch.drift import node_class_drift

        return node_class_drift(claim, node_class, network)

    def _commitment_use(self, now: datetime) -> CommitmentUse | None:
        if self.commitments is None:
            return None
        from shared.launch.resolved_node_pools import CommitmentUse

        return CommitmentUse(
            commitments=self.commitments.active(now), cluster=self.cluster_name, share=self.commitment_share
        )

    def _node_class_resolver(self, snapshot: Snapshot) -> NodeClassResolver:
        from shared.ami_family.families import is_version_held
        from shared.cluster.connect import describe
        from shared.launch.node_class.status import NodeClassResolver

        recent = any(map(is_version_held, snapshot.node_classes))

        return NodeClassResolver(
            clients=self.clients,
            runtime=self.runtime,
            cluster=describe(self.clients.eks(), self.cluster_name, recent=recent),
            default_instance_profile=self.default_instance_profile,
            catalog=self.catalog,
        )

    def _cluster(self) -> ClusterInfo:
        from shared.cluster.connect import describe

        return describe(self.clients.eks(), self.cluster_name)


def read_conditions(
    dynamodb: DynamoDBClient,
    table: str,
    *,
    commitments: CommitmentUse | None,
    now: datetime,
    only_recently_unavailable: bool = False,
) -> LaunchConditions:
    """The conditions of launches that the table keeps now, with these ``commitments``.

    They are in rows, a partition for each kind; mostly there are none.

    ``only_recently_unavailable``: for pods without another choice. Offerings that had no capacity are tried again after
    a minute, and zones with few free addresses too: EC2 decides.

    Raises:
        ClientError: DynamoDB failed.
    """
    from shared.instance_types import interruption_rates, unavailable_offerings
    from shared.launch import boot_failures
    from shared.launch.node_class import free_addresses
    from shared.launch.resolved_node_pools import LaunchConditions

    rows = partial(dynamodb_rows.unexpired_rows, dynamodb, table, now=now)
    marked = [*rows(unavailable_offerings.PARTITION, consistent=True)]
    failed = [*rows(boot_failures.PARTITION, consistent=True)]
    interrupted = _or_none(rows(interruption_rates.PARTITION))
    short = [] if only_recently_unavailable else _or_none(rows(free_addresses.PARTITION))
    marked_at = unavailable_offerings.marked_at(marked) if marked else {}
    return LaunchConditions(
        unavailable=frozenset(
            offering
            for offering, at in marked_at.items()
            if not only_recently_unavailable or now - at < unavailable_offerings.RETRY_AFTER
        ),
        short_subnets=free_addresses.remembered(short) if short else (),
        interruption_rates=interruption_rates.rates(interrupted, now=now) if interrupted else {},
        boot_failures=boot_failures.failures_of(failed) if failed else {},
        commitments=commitments,
    )


def _or_none(rows: Iterable[Row]) -> list[Row]:
    """The rows; none if they can't be read: decisions continue with the default rate, and offer every zone."""
    try:
        return [*rows]
    except (ClientError, BotoCoreError):
        return []
