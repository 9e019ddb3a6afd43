"""A cluster from its API, by the user's kubeconfig, and what could be bought for it, by the user's AWS credentials.

What Tenon has stored (catalog, offerings without capacity, decision log) is found by its provisioner function's own
settings. A cluster without Tenon is asked about as well: then the catalog is fetched as the catalog function would.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import boto3
import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from cli.cluster import workloads
from cli.cluster.observed_cluster import Facts, Said
from cli.cluster.offerings import Sold
from cli.errors import CommandError, UsageError
from infra import resource_names
from shared import aws, decision_log, runtime
from shared.api.kubernetes import Node
from shared.api.meta import Struct
from shared.api.nodeclaim import NodeClaim
from shared.cluster import kubeconfig, listing, resources
from shared.cluster.errors import ApiError
from shared.cluster.resources import Resource
from shared.cluster.snapshot_reader import SnapshotReader, list_if_kind_exists
from shared.instance_types import catalog_store, unavailable_offerings
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.refresh import refresh
from shared.settings import variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.cluster.observed_cluster import Workload
    from shared.api.meta import ObjectRef
    from shared.cluster.client import Client
    from shared.decision_log import DecisionRecord
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot

OLDEST = (1, 25)
"""The first Kubernetes whose API server judges the rules (CEL) of our CustomResourceDefinitions."""
_ARN = re.compile(r"arn:[\w-]+:eks:(?P<region>[\w-]+):\d+:cluster/(?P<name>[\w-]+)")
_EKSCTL = re.compile(r"(?P<name>[\w-]+)\.(?P<region>[\w-]+)\.eksctl\.io")
_READING = ("BatchGet", "Describe", "Get", "Head", "List", "Query", "Scan", "Search")
_APPS = tuple(Resource(group="apps", plural=f"{kind.lower()}s", kind=kind, namespaced=True) for kind in workloads.KINDS)


@dataclass(frozen=True, kw_only=True)
class Where:
    """Which cluster: by the kubeconfig's context, and its name and Region in AWS where the context doesn't say."""

    context: str = ""
    cluster: str = ""
    region: str = ""


class _Version(msgspec.Struct):
    major: str = ""
    minor: str = ""


class _Event(Struct):
    reason: str = ""
    message: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    reporting_component: str = ""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Where Tenon's functions keep things for the cluster."""

    table: str
    bucket: str


@dataclass(frozen=True, kw_only=True)
class Records:
    """What was said before, in the cluster and in the decision log."""

    client: Client
    table: str

    def events(self, ref: ObjectRef) -> tuple[Said, ...]:
        """The events on an object, newest first; none where they may not be read."""
        fields = f"involvedObject.kind={ref.kind},involvedObject.name={ref.name}"
        try:
            listed = listing.list_objects(
                self.client, resources.EVENTS, _Event, fields=fields, namespace=ref.namespace or "default"
            )
        except ApiError:
            return ()
        found = [
            Said(at=e.last_timestamp or e.event_time, reason=e.reason, message=e.message, by=e.reporting_component)
            for e in listed.objects
        ]
        return tuple(sorted(found, key=lambda s: s.at.timestamp() if s.at else 0.0, reverse=True))

    def decisions(self, node: str) -> tuple[DecisionRecord, ...]:
        """The decision log's rows on a node; none where there is no log, or none that may be read."""
        if not self.table:
            return ()
        try:
            return decision_log.latest(aws.dynamodb(), self.table, node)
        except (BotoCoreError, ClientError):
            return ()

    def since(self, moment: datetime) -> tuple[DecisionRecord, ...]:
        """The decision log after a moment; nothing where there is no Tenon.

        Raises:
            ClientError: it may not be read.
        """
        return decision_log.since(aws.dynamodb(), self.table, moment) if self.table else ()


@contextlib.contextmanager
def reading_only(where: Where) -> Iterator[None]:
    """A host of the command's own, on which AWS is only ever read: any other call is refused before it is sent."""
    before = boto3.DEFAULT_SESSION
    if where.region and boto3.Session().region_name != where.region:
        boto3.setup_default_session(region_name=where.region)
    outer = runtime.current()
    ours = runtime.Runtime(environ=os.environ, now=outer.now, sleep=outer.sleep)

    def guard(model: Any, **_: object) -> None:  # noqa: ANN401 (botocore's model of an operation)
        if runtime.current() is ours and not model.name.startswith(_READING):
            denied = {"Error": {"Code": "AccessDenied", "Message": f"this command only reads; {model.name} writes"}}
            raise ClientError(denied, model.name)  # type: ignore[arg-type] # botocore answers with more than that

    session = boto3._get_default_session()  # noqa: SLF001 (what boto3.client uses)
    session.events.register("before-call", guard)
    try:
        with runtime.using(ours):
            yield
    finally:
        session.events.unregister("before-call", guard)
        boto3.DEFAULT_SESSION = before


def connect(where: Where) -> Client:
    """A client by the kubeconfig.

    Raises:
        KubeconfigError: there is none that can be used.
        CommandError: the cluster is too old.
    """
    client = kubeconfig.client(os.environ, context=where.context, attempts=2, user_agent="tenon-cli")
    version = msgspec.json.decode(client.get("/version"), type=_Version)
    digits = re.sub(r"\D", "", version.minor)
    if digits and (int(version.major or 1), int(digits)) < OLDEST:
        raise CommandError(
            f"the cluster runs Kubernetes {version.major}.{version.minor}, and Tenon needs "
            f"{OLDEST[0]}.{OLDEST[1]} or newer: upgrade its control plane first"
        )
    return client


def located(where: Where) -> Where:
    """The same with the cluster's name and Region as the kubeconfig's context has them, where they weren't said."""
    from kubernetes.config import ConfigException, list_kube_config_contexts  # noqa: PLC0415 (slow to import)

    try:
        contexts, active = list_kube_config_contexts(config_file=os.environ.get("KUBECONFIG") or None)
    except (ConfigException, TypeError):
        return where
    chosen = next((c for c in contexts if c["name"] == where.context), active if not where.context else None)
    said = " ".join([str((chosen or {}).get("context", {}).get("cluster", "")), str((chosen or {}).get("name", ""))])
    found = _ARN.search(said) or _EKSCTL.search(said)
    if found is None:
        return where
    return Where(context=where.context, cluster=where.cluster or found["name"], region=where.region or found["region"])


def read(client: Client, where: Where, *, now: datetime) -> Facts:
    """The cluster now; inside :func:`reading_only`.

    Raises:
        UsageError: nobody says which EKS cluster it is.
        ApiError, ClientError, BotoCoreError: the cluster or AWS can't be read.
    """
    if not where.cluster:
        raise UsageError("the kubeconfig's context doesn't say which EKS cluster it is; give --cluster NAME")
    reader = SnapshotReader(client)
    snapshot = reader.read(now)

    def look() -> Snapshot:
        pods = reader.pods.read().objects
        claims = list_if_kind_exists(client, resources.NODE_CLAIMS, NodeClaim).objects
        return replace(
            snapshot, pods=pods, node_claims=claims, nodes=list_if_kind_exists(client, resources.NODES, Node).objects
        )

    stored = find_stored(where.cluster)
    raw, notes = _catalog(where.cluster, stored, now)
    if not snapshot.node_pools:
        notes.append(
            "the cluster has no valid NodePool; "
            f"`tenon manifests {where.cluster} | kubectl apply -f -` brings the kinds"
        )
    gone = unavailable_offerings.current(aws.dynamodb(), stored.table, now=now) if stored is not None else frozenset()
    return Facts(
        name=f"{where.cluster} in {raw.region}",
        now=now,
        snapshot=snapshot,
        stock=Sold(raw=raw, unavailable=gone),
        history=Records(client=client, table=stored.table if stored is not None else ""),
        notes=tuple(notes),
        workloads=_workloads(client),
        look=look,
    )


def find_stored(cluster: str) -> Stored | None:
    """Where the cluster's Tenon keeps things, by its provisioner's environment; None: there is no Tenon.

    Raises:
        ClientError: the function may not be looked up.
    """
    name = resource_names.function(cluster, "provisioner")
    client = runtime.current().cached("aws:lambda", lambda: boto3.client("lambda"))
    try:
        found = client.get_function_configuration(FunctionName=name)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            return None
        raise
    environ = found.get("Environment", {}).get("Variables", {})
    return Stored(table=environ.get(variable("table_name"), ""), bucket=environ.get(variable("catalog_bucket"), ""))


def _catalog(cluster: str, stored: Stored | None, now: datetime) -> tuple[InstanceTypeCatalog, list[str]]:
    """The stored catalog, as the functions decide from; without one, a new one from EC2 and the price list."""
    if stored is not None:
        with contextlib.suppress(CatalogMissingError):
            return catalog_store.load(aws.s3(), stored.bucket, cluster, max_age=None), []
    made = refresh(None, asked=None, region=aws.ec2().meta.region_name, now=now)
    lacking = "Tenon isn't deployed for it" if stored is None else "its catalog isn't stored yet"
    return made.catalog, [f"{lacking}: instance types and prices were fetched now", *made.problems]


def _workloads(client: Client) -> dict[tuple[str, str, str], Workload]:
    """Whose pods there are; none of those that may not be read, as only what-if questions need them."""
    found: dict[tuple[str, str, str], Workload] = {}
    for resource in _APPS:
        with contextlib.suppress(ApiError):
            found |= workloads.named(resource.kind, listing.list_objects(client, resource, workloads.Owner).objects)
    return found
