"""A cluster that another autoscaler runs, with the stack of shadow mode next to it: objects are set, time is turned."""

from __future__ import annotations

import base64
import contextlib
import json
import lzma
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import boto3

from infra import assembly, function_sizes
from infra.cluster.kubernetes import cluster_manifests
from local.aws.cloud import Cloud
from local.clock import Clock
from local.faults import Faults
from local.kubernetes.objects import Obj, timestamp
from local.world import catalog_cache
from local.world.apply import apply_object
from local.world.control_plane import EmbeddedControlPlane
from shared.base.struct import with_fields
from shared.instance_types import catalog_store
from shared.shadow import record as records
from shared.shadow import store as shadow_store
from tests.e2e.shadow.record_day import FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from local.aws.invocation import Invocation
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.shadow.ledger import Day
    from shared.shadow.record import Record

CLUSTER = "demo"
REGION = "us-east-1"
INTERVAL = timedelta(minutes=5)


class ShadowCluster:
    """A context manager. Its clock stands still but for :meth:`run`."""

    def __init__(self, start: datetime, context: Mapping[str, str] | None = None) -> None:
        self.clock = Clock(start, elapsed=lambda: 0.0)
        self.faults = Faults(seed=0)
        self.control_plane = EmbeddedControlPlane(self.clock, self.faults)
        self.store = self.control_plane.store
        self._context = {"mode": "shadow", "bundle": "source", **(context or {})}
        self._stack = contextlib.ExitStack()
        self.aws: Cloud
        self.cluster = CLUSTER

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.control_plane)
            self.aws = stack.enter_context(
                Cloud(now=self.clock.now, sleep=self.clock.sleep, region=REGION, faults=self.faults)
            )
            authority = base64.b64encode(self.control_plane.certificate_authority.encode()).decode()
            self.aws.prepare(
                cluster=CLUSTER, version="1.34", endpoint=self.control_plane.url, certificate_authority=authority
            )
            deployed = self.aws.deploy(assembly.cached(cluster=CLUSTER, root=assembly.CHECKOUT, context=self._context))
            self.control_plane.authenticate_functions(deployed)
            for obj in (*cluster_manifests.kinds(), *cluster_manifests.access([function_sizes.SHADOW])):
                apply_object(self.store, obj)
            self.bucket = deployed.function("shadow").environ["TENON_CATALOG_BUCKET"]
            self.set_prices()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    # --- what happens ---

    def set_prices(self, factor: float = 1.0) -> None:
        """Set all spot prices to those of the local world, times this."""
        self.catalog = with_spot(catalog(self.clock.now()), factor)
        catalog_store.save(boto3.client("s3"), self.bucket, self.catalog)

    def put(self, obj: Obj) -> None:
        """Set the object to this state, as others left it."""
        metadata = obj["metadata"]
        kind = self.store.kind(obj["apiVersion"], obj["kind"])
        before = self.store.find(kind, metadata["name"], namespace=metadata.get("namespace", ""))
        whole = {"uid": f"uid-{kind.kind}-{metadata['name']}", **metadata}
        with self.store.lock:
            self.store._write(kind, "ADDED" if before is None else "MODIFIED", {**obj, "metadata": whole}, before)

    def remove(self, kind: str, name: str, *, namespace: str = "") -> None:
        """Remove the object."""
        version = {"NodeClaim": "karpenter.sh/v1"}.get(kind, "v1")
        stored = self.store.kind(version, kind)
        before = self.store.get(stored, name, namespace=namespace)
        with self.store.lock:
            self.store._write(stored, "DELETED", before, before)

    def run(self, at: datetime, *, event_time: datetime | None = None) -> Invocation:
        """Turn the clock to that time, and run the function as its schedule does (``event_time``: an earlier event)."""
        self.clock.skip_to(at)
        return self.aws.functions.invoke("shadow", schedule_event(event_time or at), trigger="schedule")

    # --- what is there ---

    def record(self) -> Record:
        """The stored record."""
        return shadow_store.load(boto3.client("s3"), self.bucket, CLUSTER).record

    def days(self) -> dict[str, Day]:
        """All days, archived ones too."""
        s3 = boto3.client("s3")
        prefix = f"{shadow_store.PREFIX}{CLUSTER}/days/"
        keys = [o["Key"] for o in s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])]
        archived = [records.DAY_FORM.decode(s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()) for key in keys]
        return {day.date: day for day in (*archived, *self.record().days)}

    def versions(self) -> dict[tuple[str, str, str], str]:
        """The resourceVersion of every object of the cluster."""
        return {
            (kind.kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj["metadata"][
                "resourceVersion"
            ]
            for kind in self.store.served()
            for obj in self.store.list(kind)
        }


def schedule_event(time: datetime) -> dict[str, Any]:
    """The event of an EventBridge schedule."""
    return {"source": "aws.events", "detail-type": "Scheduled Event", "time": timestamp(time), "detail": {}}


def catalog(now: datetime) -> InstanceTypeCatalog:
    """The local world's catalog."""
    return catalog_cache.load_or_fetch(region=REGION, seed=0, now=now)


def with_spot(base: InstanceTypeCatalog, factor: float) -> InstanceTypeCatalog:
    """The catalog with other spot prices."""
    spot = {name: {zone: price * factor for zone, price in zones.items()} for name, zones in base.spot.items()}
    return with_fields(base, spot=spot)


class RecordedDay:
    """The recorded day, repeated in a cluster."""

    def __init__(self) -> None:
        document = json.loads(lzma.decompress(FILE.read_bytes()))
        self.begin = datetime.fromisoformat(document["begin"])
        self.initial: list[Obj] = document["initial"]
        self._states = [(datetime.fromisoformat(at), key, obj) for at, key, obj in document["states"]]
        self._next = 0

    def start(self, cluster: ShadowCluster) -> None:
        """Set the objects at the beginning."""
        for obj in self.initial:
            cluster.put(obj)

    def apply(self, cluster: ShadowCluster, until: datetime) -> None:
        """Set the objects to their states at that time."""
        while self._next < len(self._states) and self._states[self._next][0] <= until:
            _, key, obj = self._states[self._next]
            self._next += 1
            kind, namespace, name = key.split("/", 2)
            if obj is None:
                cluster.remove(kind, name, namespace=namespace)
            else:
                cluster.put(obj)

    def objects_at(self, moments: Iterable[datetime]) -> Iterator[tuple[datetime, dict[str, Obj]]]:
        """All objects (by kind, namespace and name) at each of these moments, read from the recording alone."""
        state = {key_of(obj): obj for obj in self.initial}
        states = iter(self._states)
        pending = next(states, None)
        for moment in moments:
            while pending is not None and pending[0] <= moment:
                _, key, obj = pending
                if obj is None:
                    state.pop(key, None)
                else:
                    state[key] = obj
                pending = next(states, None)
            yield moment, dict(state)


def key_of(obj: Obj) -> str:
    """Kind, namespace and name."""
    metadata = obj["metadata"]
    return f"{obj['kind']}/{metadata.get('namespace', '')}/{metadata['name']}"


def run_times(
    begin: datetime, length: timedelta, *, skipped: Callable[[int], bool] = lambda _: False
) -> list[datetime]:
    """The times of the runs, without those whose number is ``skipped``."""
    count = int(length / INTERVAL)
    return [begin + i * INTERVAL for i in range(count + 1) if not skipped(i)]
