"""Two provisioning runs at the same time, switched at random at each of their calls: nothing is launched twice."""

from __future__ import annotations

import contextlib
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml
from aws_lambda_powertools import Logger

from infra.cluster.kubernetes import cluster_manifests
from local.aws.cloud import Cloud
from local.faults import Faults
from local.kubernetes import kinds
from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.registry.store import Store
from local.world import catalog_cache
from local.world.kubernetes_faults import kubernetes_requests
from shared.api import labels as names
from shared.base import runtime
from shared.base.settings import ProvisioningSettings
from shared.base.struct import with_fields
from shared.cluster.client import Client
from shared.cluster.connect import ClusterInfo, configuration
from shared.cluster.lease import LeaseHeldError, LeaseLostError
from shared.instance_types import catalog_store
from shared.provisioning.provisioner import provisioner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.faults import Fault, InjectionPoint
    from local.kubernetes.apiserver.http import Request

CHECKOUT = Path(__file__).parent.parent.parent.parent
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = ProvisioningSettings(
    cluster_name="demo",
    event_bus_name="tenon-demo",
    table_name="tenon",
    catalog_bucket="tenon-catalog",
    node_instance_profile="nodes",
)
SHAPES = ("m5.large", "m5.xlarge", "c5.large")
PODS = 2
SERIES, SEEDS_PER_SERIES = 20, 25
"""Five hundred interleavings in all."""


class Interleaving(Faults):
    """Lets one thread at a time run until its next call, then chooses the next thread at random, by a seed."""

    def begin(self, seed: int, *threads: str) -> None:
        self._order = random.Random(seed)  # noqa: S311 (an order of threads)
        self._running = set(threads)
        self._turn = self._order.choice(sorted(threads))
        self._changed = threading.Condition()

    def strike(self, site: InjectionPoint) -> Fault | None:  # noqa: ARG002 (every call is a place to switch threads)
        thread = threading.current_thread().name
        if thread in getattr(self, "_running", ()):
            self._switch()
            self.wait(thread)
        return None

    def wait(self, thread: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == thread)

    def leave(self, thread: str) -> None:
        with self._changed:
            self._running.discard(thread)
        self._switch()

    def _switch(self) -> None:
        with self._changed:
            if self._running:
                self._turn = self._order.choice(sorted(self._running))
            self._changed.notify_all()


class Clock:
    """Stands still during a decision, so that only the order of calls differs."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def turn(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class ConcurrentRuns:
    """A cluster and an AWS account, and provisioning runs in them."""

    def __init__(
        self, cloud: Cloud, server: Server, interleaving: Interleaving, clock: Clock, warm: dict[str, dict[str, Any]]
    ) -> None:
        self.cloud = cloud
        self.server = server
        self.store = server.store
        self.interleaving = interleaving
        self.clock = clock
        self._warm = warm
        self._runs = 0
        self.lease_conflicts = 0

    def run(self, holder: str) -> None:
        """One run; counts it if another run holds the lease."""
        self._runs += 1
        run = f"{holder}-{self._runs}"
        own = runtime.Runtime(environ={}, now=self.clock.now, sleep=self.clock.turn, cache=self._warm[holder])
        logger = Logger(service=holder, level="CRITICAL")
        with runtime.using(own):
            try:
                provisioner_of(SETTINGS, by=holder, run=run, logger=logger).run()
            except (LeaseHeldError, LeaseLostError):
                self.lease_conflicts += 1

    def run_concurrently(self, seed: int) -> None:
        """Both run, switched at their calls; after a lease conflict one runs again, as its message would."""
        self.lease_conflicts = 0
        self.interleaving.begin(seed, "a", "b")

        def run_in_turn(holder: str) -> None:
            self.interleaving.wait(holder)
            try:
                self.run(holder)
            finally:
                self.interleaving.leave(holder)

        threads = [threading.Thread(target=run_in_turn, name=holder, args=(holder,)) for holder in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.lease_conflicts:
            self.run("a")

    def claims(self) -> list[dict[str, Any]]:
        return self.store.list(self.store.kind("karpenter.sh/v1", "NodeClaim"))

    def running_instances(self) -> list[Any]:
        return [i for i in self.cloud.instances.all if i.state in ("pending", "running")]

    def add_pods(self, count: int, generation: int) -> None:
        for i in range(count):
            name = f"p-{generation}-{i}"
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}]},
            }
            self.store.create(kinds.PODS, pod, namespace="default")
            conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
            self.store.patch(
                kinds.PODS, name, {"status": {"conditions": conditions}}, namespace="default", subresource="status"
            )

    def clear(self) -> None:
        kind = self.store.kind("karpenter.sh/v1", "NodeClaim")
        for claim in self.claims():
            self.store.patch(kind, claim["metadata"]["name"], {"metadata": {"finalizers": None}})
            self.store.delete(kind, claim["metadata"]["name"])
        for pod in self.store.list(kinds.PODS):
            self.store.delete(kinds.PODS, pod["metadata"]["name"], namespace="default")
        ids = [i.id for i in self.running_instances()]
        if ids:
            boto3.client("ec2").terminate_instances(InstanceIds=ids)


@pytest.fixture(scope="module")
def concurrent_runs() -> Iterator[ConcurrentRuns]:
    interleaving, clock = Interleaving(), Clock()
    raw = catalog_cache.load_or_fetch(region="us-east-1", seed=0, now=clock.now())
    kubernetes = Store(now=clock.now)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(kubernetes))
        cloud = stack.enter_context(Cloud(now=clock.now, sleep=clock.turn, faults=interleaving))
        stack.enter_context(kubernetes_requests(interleaving, latencies=None))
        cloud.prepare(cluster="demo", version="1.34", endpoint=server.url, certificate_authority="Q0E=")
        boto3.client("s3").create_bucket(Bucket=SETTINGS.catalog_bucket)
        keys: Any = [("pk", "HASH"), ("sk", "RANGE")]
        boto3.client("dynamodb").create_table(
            TableName=SETTINGS.table_name,
            KeySchema=[{"AttributeName": n, "KeyType": t} for n, t in keys],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        boto3.client("iam").create_instance_profile(InstanceProfileName="nodes")
        few = with_fields(raw, hardware=tuple(s for s in raw.hardware if s.name in SHAPES))
        with runtime.using(runtime.Runtime(environ={})):
            catalog_store.save(boto3.client("s3"), SETTINGS.catalog_bucket, few)
        for kind in cluster_manifests.kinds():
            kubernetes.create(kubernetes.kind(kind["apiVersion"], kind["kind"]), kind)
        text = (CHECKOUT / "cli" / "demo" / "manifests" / "spot-default.yaml").read_text().replace("CLUSTER", "demo")
        for doc in yaml.safe_load_all(text):
            if doc and doc["kind"] != "Deployment":
                kubernetes.create(kubernetes.kind(doc["apiVersion"], doc["kind"]), doc)
        info = ClusterInfo(
            name="demo",
            endpoint=server.url,
            certificate_authority="",
            version="1.34",
            service_cidr="10.100.0.0/16",
            region="us-east-1",
        )
        warm = {}
        for holder in ("a", "b"):
            client = Client(configuration(server.url, server.ca_pem, lambda: ADMIN_TOKEN), sleep=lambda _: None)
            stack.callback(client.close)
            warm[holder] = {"cluster:client": client, "cluster:facts": {"demo": (NOW + timedelta(days=9), info)}}
        yield ConcurrentRuns(cloud, server, interleaving, clock, warm)


@pytest.mark.parametrize("series", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, SERIES))])
def test_concurrent_runs_launch_each_instance_once_and_lose_no_claim(
    concurrent_runs: ConcurrentRuns, series: int
) -> None:
    for i in range(SEEDS_PER_SERIES):
        seed = series * SEEDS_PER_SERIES + i
        concurrent_runs.clear()
        concurrent_runs.clock.turn(60)
        concurrent_runs.add_pods(PODS, seed)
        concurrent_runs.run_concurrently(seed)
        claims, running_instances = concurrent_runs.claims(), concurrent_runs.running_instances()
        held = sorted(c["status"]["providerID"].rsplit("/", 1)[-1] for c in claims)
        assert held == sorted(i.id for i in running_instances), f"seed {seed}"
        assert len(set(held)) == len(held) > 0
        cpus = sum(int(c["status"]["capacity"]["cpu"]) for c in claims)
        assert cpus < 2 * 2 * PODS, f"seed {seed}: {cpus} cpus for {PODS} pods that get two each"
        tags = {i.id: {t["key"]: t["value"] for t in i.get_tags()} for i in running_instances}
        for claim in claims:
            instance = claim["status"]["providerID"].rsplit("/", 1)[-1]
            # Those of a launch for several NodeClaims are tagged by the lifecycle function.
            assert tags[instance].get(names.NODECLAIM_TAG, claim["metadata"]["name"]) == claim["metadata"]["name"]


def test_a_run_whose_lease_expires_before_it_writes_launches_nothing(concurrent_runs: ConcurrentRuns) -> None:
    concurrent_runs.clear()
    concurrent_runs.clock.turn(60)
    concurrent_runs.add_pods(PODS, SERIES * SEEDS_PER_SERIES)
    by_successor: list[str] = []

    def run_successor(request: Request) -> None:
        if request.path.endswith("/poddisruptionbudgets"):  # the last list of a run
            concurrent_runs.server.intercept = None
            concurrent_runs.clock.turn(60)
            concurrent_runs.run("b")
            by_successor.extend(claim["metadata"]["name"] for claim in concurrent_runs.claims())

    concurrent_runs.lease_conflicts = 0
    concurrent_runs.server.intercept = run_successor
    concurrent_runs.run("a")
    assert concurrent_runs.lease_conflicts == 1
    assert [claim["metadata"]["name"] for claim in concurrent_runs.claims()] == by_successor != []
