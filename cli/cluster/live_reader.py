"""Reads a cluster from its API by the user's kubeconfig, and from AWS what can be launched for it.

Where Tenon stores the catalog, unavailable offerings and the decision log is read from the provisioner function's
environment. A cluster without Tenon can be read too: the catalog is then fetched as the catalog function does.
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import boto3
import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from cli import workloads
from cli.cluster import kubeconfig_context, node_groups, price_origin
from cli.cluster.history import PastEvent
from cli.cluster.node_groups import GroupOfferings
from cli.cluster.observed_cluster import ObservedCluster
from cli.cluster.offerings import CatalogOfferings
from cli.cluster.services import read_services
from cli.errors import CommandError, UsageError
from infra.cluster import resource_names
from shared.api.kubernetes import Node
from shared.api.meta import ApiStruct
from shared.base import aws, decision_log, runtime
from shared.base.settings import CommitmentSettings, variable
from shared.base.settings import read as read_settings
from shared.base.struct import Struct, WireStruct, with_fields
from shared.cluster import kubeconfig, lease_record, listing, node_class_groups, resources
from shared.cluster.cluster_pause import LeaseState, lease_annotations, state_of
from shared.cluster.errors import ApiError
from shared.cluster.resources import Resource
from shared.cluster.snapshot_reader import SnapshotReader, list_if_kind_exists
from shared.commitments import store as commitment_store
from shared.disruption import load_history
from shared.disruption.load_history import InvalidHistoryError, LoadHistory
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.refresh import refresh
from shared.launch.ec2_cloud_provider import read_conditions
from shared.launch.resolved_node_pools import CommitmentUse
from shared.node_groups import stored_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.model import OperationModel

    from cli.cluster.cluster_reference import ClusterReference
    from cli.workloads import Workload
    from shared.api.meta import ObjectRef
    from shared.base.decision_log import DecisionRecord, LaunchRecord
    from shared.cluster.client import Client
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot

MIN_KUBERNETES_VERSION = (1, 25)
"""The first version whose API server evaluates the CEL rules of the CustomResourceDefinitions."""
_READ_OPERATIONS = ("BatchGet", "Describe", "Get", "Head", "List", "Query", "Scan", "Search")
_WORKLOADS = tuple(
    Resource(group="apps", plural=f"{kind.lower()}s", kind=kind, namespaced=True) for kind in workloads.KINDS
)


class _Version(WireStruct):
    major: str = ""
    minor: str = ""


class _Event(ApiStruct):
    reason: str = ""
    message: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    reporting_component: str = ""


class Deployment(Struct, kw_only=True):
    """The table and the bucket of the cluster's Tenon deployment, and whether it scales node groups.

    ``fleet`` is the fleet that shares the catalog, "" without one. ``has_all_metrics``: with full observability.
    ``commitments`` says whether and how Savings Plans and Reserved Instances count.
    """

    table: str
    bucket: str
    node_groups: bool = False
    fleet: str = ""
    has_all_metrics: bool = False
    commitments: CommitmentSettings = CommitmentSettings(cluster_name="")


class LiveHistory(Struct, kw_only=True):
    """Events of the cluster, and the decision log."""

    client: Client
    table: str

    def events(self, ref: ObjectRef) -> tuple[PastEvent, ...]:
        """The events on an object, newest first; none if they can't be read."""
        fields = f"involvedObject.kind={ref.kind},involvedObject.name={ref.name}"
        try:
            listed = listing.list_objects(
                self.client, resources.EVENTS, _Event, fields=fields, namespace=ref.namespace or "default"
            )
        except ApiError:
            return ()
        events = [
            PastEvent(at=e.last_timestamp or e.event_time, reason=e.reason, message=e.message, by=e.reporting_component)
            for e in listed.objects
        ]
        return tuple(sorted(events, key=lambda e: e.at.timestamp() if e.at else 0.0, reverse=True))

    def decisions(self, node: str) -> tuple[DecisionRecord, ...]:
        """The decision log's rows on a node; none if there is no log or it can't be read."""
        if not self.table:
            return ()
        try:
            return decision_log.latest(aws.dynamodb_with_errors(), self.table, node)
        except (BotoCoreError, ClientError):
            return ()

    def since(self, moment: datetime) -> tuple[DecisionRecord, ...]:
        """The decision log after a moment; empty without a Tenon deployment.

        Raises:
            ClientError: it can't be read.
        """
        return decision_log.since(aws.dynamodb_with_errors(), self.table, moment) if self.table else ()

    def launches_since(self, moment: datetime) -> tuple[LaunchRecord, ...]:
        """The launches of scheduling decisions after a moment, oldest first."""
        return decision_log.launches_since(aws.dynamodb_with_errors(), self.table, moment) if self.table else ()


@contextlib.contextmanager
def read_only_aws(reference: ClusterReference) -> Iterator[None]:
    """Inside, AWS calls that don't read are refused before they are sent."""
    before = boto3.DEFAULT_SESSION
    if reference.region and boto3.Session().region_name != reference.region:
        boto3.setup_default_session(region_name=reference.region)
    outer = runtime.current()
    # a host of its own, so that the guard leaves calls of a local cluster in the same process alone
    inner = runtime.Runtime(environ=os.environ, now=outer.now, sleep=outer.sleep)

    def guard(model: OperationModel, **_: object) -> None:
        if runtime.current() is inner and not model.name.startswith(_READ_OPERATIONS):
            denied = {"Error": {"Code": "AccessDenied", "Message": f"this command only reads; {model.name} writes"}}
            raise ClientError(denied, model.name)  # type: ignore[arg-type] # botocore answers with more than that

    session = boto3._get_default_session()  # noqa: SLF001 (what boto3.client uses)
    session.events.register("before-call", guard)
    try:
        with runtime.using(inner):
            yield
    finally:
        session.events.unregister("before-call", guard)
        boto3.DEFAULT_SESSION = before


def connect(reference: ClusterReference) -> Client:
    """A client of the cluster.

    Raises:
        KubeconfigError: no kubeconfig can be used.
        CommandError: the Kubernetes version is too old.
    """
    client = kubeconfig.client(os.environ, context=reference.context, attempts=2, user_agent="tenon-cli")
    version = server_version(client)
    major, _, minor = version.partition(".")
    if minor and (int(major), int(minor)) < MIN_KUBERNETES_VERSION:
        raise CommandError(
            f"the cluster runs Kubernetes {version}, and Tenon needs "
            f"{MIN_KUBERNETES_VERSION[0]}.{MIN_KUBERNETES_VERSION[1]} or newer: upgrade its control plane first"
        )
    return client


def server_version(client: Client) -> str:
    """The API server's minor version, such as "1.37"; "1." if it doesn't say."""
    version = msgspec.json.decode(client.get("/version"), type=_Version)
    return f"{version.major or 1}.{re.sub(r'[^0-9]', '', version.minor)}"


def _refresh(snapshot: Snapshot, client: Client, reference: ClusterReference, reader: SnapshotReader) -> Snapshot:
    """The snapshot with the present pods, nodes, NodeClaims and pause."""
    pods = reader.pods.read().objects
    claims = reader.node_claims()
    nodes = list_if_kind_exists(client, resources.NODES, Node).objects
    unmanaged = node_class_groups.unmanaged(nodes, claims.foreign_provider_ids)
    read_again = with_fields(snapshot, pods=pods, node_claims=claims.own.objects, nodes=unmanaged)
    return with_lease(client, reference, read_again, now=runtime.now())[0]


def read(client: Client, reference: ClusterReference, *, now: datetime) -> ObservedCluster:
    """The cluster now. Call it inside :func:`read_only_aws`.

    Raises:
        UsageError: neither options nor the context name the EKS cluster.
        ApiError, ClientError, BotoCoreError: the cluster or AWS can't be read.
    """
    if not reference.cluster:
        raise UsageError(kubeconfig_context.NO_CLUSTER_NAME)
    reader = SnapshotReader(client)
    snapshot, lease_notes = with_lease(client, reference, reader.read(now), now=now)
    deployment = find_deployment(reference.cluster)
    raw, notes = _catalog(deployment, now)
    if not snapshot.node_pools:
        notes.append(
            "the cluster has no valid NodePool; "
            f"`tenon manifests {reference.cluster} | kubectl apply -f -` installs the CustomResourceDefinitions"
        )
    own_offerings = _offerings(deployment, reference.cluster, raw, notes, now)
    groups = None
    if deployment is not None and deployment.node_groups:
        if stored_options.cluster_autoscaler_runs(client, now=now):
            notes.append("node groups aren't scaled by Tenon while Cluster Autoscaler is running")
        else:
            groups = node_groups.read(client, reference.cluster, snapshot, own_offerings, now=now)
            notes.extend(groups.view.problems if groups is not None else ())
    prices = price_origin.of_account(raw)
    return ObservedCluster(
        name=f"{reference.cluster} in {raw.region}",
        now=now,
        snapshot=snapshot,
        offerings=own_offerings if groups is None else GroupOfferings(own=own_offerings, pools=groups.pools),
        node_groups=groups,
        history=LiveHistory(client=client, table=deployment.table if deployment is not None else ""),
        notes=(*lease_notes, *notes, *((prices.note,) if prices.note else ())),
        prices=prices,
        workloads=_workloads(client),
        refresh=partial(_refresh, snapshot, client, reference, reader),
        services=partial(read_services, client),
        load=_load_history(client, reference.cluster, now),
    )


def with_lease(
    client: Client, reference: ClusterReference, snapshot: Snapshot, *, now: datetime
) -> tuple[Snapshot, list[str]]:
    """The snapshot with what the cluster's Lease says (pause, zones, last hour), and a note if it can't be read.

    Few users may read Leases of kube-system.
    """
    try:
        annotations = lease_annotations(client, cluster=reference.cluster)
    except ApiError as error:
        return LeaseState().on(snapshot), [f"whether the cluster is paused can't be read: {error}"]
    return state_of(annotations, now=now).on(snapshot), []


def _load_history(client: Client, cluster: str, now: datetime) -> LoadHistory:
    """The load history that the disruption function keeps; an empty one if there is none or it can't be used."""
    with contextlib.suppress(ApiError, InvalidHistoryError):
        record = lease_record.read(client, cluster=cluster, record=load_history.RECORD)
        if record.text:
            return load_history.decode(record.text, now=now)
    return LoadHistory()


def find_deployment(cluster: str) -> Deployment | None:
    """The cluster's Tenon deployment, by the provisioner function's environment; None if there is none.

    Raises:
        ClientError: the function can't be read.
    """
    name = resource_names.function(cluster, "provisioner")
    try:
        configuration = aws.lambda_functions().get_function_configuration(FunctionName=name)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            return None
        raise
    environ = configuration.get("Environment", {}).get("Variables", {})
    return Deployment(
        table=environ.get(variable("table_name"), ""),
        bucket=environ.get(variable("catalog_bucket"), ""),
        node_groups=environ.get(variable("node_groups")) == "on",
        fleet=environ.get(variable("fleet"), ""),
        has_all_metrics=environ.get(variable("observability")) == "full",
        commitments=read_settings(CommitmentSettings, environ | {variable("cluster_name"): cluster}),
    )


def _catalog(deployment: Deployment | None, now: datetime) -> tuple[InstanceTypeCatalog, list[str]]:
    """The stored catalog that the functions use, or one fetched now from EC2 and the price list; and notes on it."""
    if deployment is not None:
        with contextlib.suppress(CatalogMissingError):
            return catalog_store.load(aws.s3(), deployment.bucket, max_age=None), []
    refreshed = refresh(aws, None, requested=None, region=aws.ec2().meta.region_name, now=now)
    cause = "Tenon isn't deployed for this cluster" if deployment is None else "its catalog isn't stored yet"
    return refreshed.catalog, [f"{cause}: instance types and prices were fetched now", *refreshed.problems]


def _offerings(
    deployment: Deployment | None, cluster: str, raw: InstanceTypeCatalog, notes: list[str], now: datetime
) -> CatalogOfferings:
    """What the deployment's functions know of offerings; why they count no commitments is a note."""
    if deployment is None:
        return CatalogOfferings(raw=raw)
    commitments = commitment_store.load(deployment.commitments, deployment.bucket, s3=aws.s3, runtime=runtime.current())
    if commitments is not None and commitments.problem:
        notes.append(f"Savings Plans and Reserved Instances don't count: {commitments.problem}")
    use = None
    if commitments is not None:
        share = deployment.commitments.commitment_share
        use = CommitmentUse(commitments=commitments, cluster=cluster, share=share)
    conditions = read_conditions(aws.dynamodb_with_errors(), deployment.table, commitments=use, now=now)
    return CatalogOfferings(raw=raw, conditions=conditions)


def _workloads(client: Client) -> dict[tuple[str, str, str], Workload]:
    """The workloads; kinds that can't be read are left out, because only --what-if needs them."""
    result: dict[tuple[str, str, str], Workload] = {}
    for resource in _WORKLOADS:
        with contextlib.suppress(ApiError):
            owners = listing.list_objects(client, resource, workloads.Owner).objects
            result |= workloads.by_name(resource.kind, owners)
    return result
