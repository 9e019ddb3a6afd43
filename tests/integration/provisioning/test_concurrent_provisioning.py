"""Two functions decide at the same moment, switched at each of their calls at random: nothing is launched twice."""

from __future__ import annotations

import contextlib
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import msgspec
import pytest
import yaml
from aws_lambda_powertools import Logger

from infra import cluster_manifests
from local.aws.cloud import Cloud
from local.faults import Faults
from local.kubernetes import kinds
from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.registry.store import Store
from local.world import catalog_cache
from local.world.kubernetes_faults import kubernetes_client_crashes
from shared import runtime
from shared.api import labels as names
from shared.cluster.client import Client
from shared.cluster.connect import ClusterInfo, configuration
from shared.cluster.lease import LeaseHeldError, LeaseLostError
from shared.instance_types import catalog_store
from shared.provisioning.provisioner import Provisioner
from shared.settings import ProvisioningSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.faults import Fault, InjectionPoint

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
SERIES, EACH = 20, 25
"""Five hundred interleavings in all."""


class Turns(Faults):
    """Lets one thread at a time go on from one call to the next, and chooses which at random, by its seed."""

    def begin(self, seed: int, *threads: str) -> None:
        self._order = random.Random(seed)  # noqa: S311 (an order of turns)
        self._running = set(threads)
        self._turn = self._order.choice(sorted(threads))
        self._changed = threading.Condition()

    def strike(self, site: InjectionPoint) -> Fault | None:  # noqa: ARG002 (every call is a place to switch at)
        me = threading.current_thread().name
        if me in getattr(self, "_running", ()):
            self._pass_on()
            self.wait(me)
        return None

    def wait(self, me: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == me)

    def leave(self, me: str) -> None:
        with self._changed:
            self._running.discard(me)
        self._pass_on()

    def _pass_on(self) -> None:
        with self._changed:
            if self._running:
                self._turn = self._order.choice(sorted(self._running))
            self._changed.notify_all()


class Clock:
    """Stands still during a decision, so that only the order of calls differs; waiting and the next one turn it."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def turn(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Deciders:
    """A cluster and an account, and runs of provisioning in them."""

    def __init__(
        self, cloud: Cloud, kubernetes: Store, turns: Turns, clock: Clock, warm: dict[str, dict[str, Any]]
    ) -> None:
        self.cloud = cloud
        self.store = kubernetes
        self.turns = turns
        self.clock = clock
        self._warm = warm
        self._runs = 0
        self.refused = 0

    def run(self, who: str) -> None:
        """One run; one that finds the other deciding comes back later, which the caller sees to."""
        self._runs += 1
        run = f"{who}-{self._runs}"
        own = runtime.Runtime(environ={}, now=self.clock.now, sleep=self.clock.turn, cache=self._warm[who])
        logger = Logger(service=who, level="CRITICAL")
        with runtime.using(own):
            try:
                Provisioner(SETTINGS, by=who, run=run, logger=logger).run()
            except (LeaseHeldError, LeaseLostError):
                self.refused += 1

    def at_once(self, seed: int) -> None:
        """Both run, switched at their calls; who was refused runs once more, as its message comes back."""
        self.refused = 0
        self.turns.begin(seed, "a", "b")

        def go(who: str) -> None:
            self.turns.wait(who)
            try:
                self.run(who)
            finally:
                self.turns.leave(who)

        threads = [threading.Thread(target=go, name=who, args=(who,)) for who in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.refused:
            self.run("a")

    def claims(self) -> list[dict[str, Any]]:
        return self.store.list(self.store.kind("karpenter.sh/v1", "NodeClaim"))

    def living(self) -> list[Any]:
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
            unplaced = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
            self.store.patch(
                kinds.PODS, name, {"status": {"conditions": unplaced}}, namespace="default", subresource="status"
            )

    def clear(self) -> None:
        claim = self.store.kind("karpenter.sh/v1", "NodeClaim")
        for one in self.claims():
            self.store.patch(claim, one["metadata"]["name"], {"metadata": {"finalizers": None}})
            self.store.delete(claim, one["metadata"]["name"])
        for pod in self.store.list(kinds.PODS):
            self.store.delete(kinds.PODS, pod["metadata"]["name"], namespace="default")
        ids = [i.id for i in self.living()]
        if ids:
            boto3.client("ec2").terminate_instances(InstanceIds=ids)


@pytest.fixture(scope="module")
def deciders() -> Iterator[Deciders]:
    turns, clock = Turns(), Clock()
    raw = catalog_cache.load_or_fetch(region="us-east-1", seed=0, now=clock.now())
    kubernetes = Store(now=clock.now)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(kubernetes))
        cloud = stack.enter_context(Cloud(now=clock.now, sleep=clock.turn, faults=turns))
        stack.enter_context(kubernetes_client_crashes(turns))
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
        few = msgspec.structs.replace(raw, hardware=tuple(s for s in raw.hardware if s.name in SHAPES))
        with runtime.using(runtime.Runtime(environ={})):
            catalog_store.save(boto3.client("s3"), SETTINGS.catalog_bucket, "demo", few)
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
        for who in ("a", "b"):
            client = Client(configuration(server.url, server.ca_pem, lambda: ADMIN_TOKEN), sleep=lambda _: None)
            stack.callback(client.close)
            warm[who] = {"cluster:client": client, "cluster:facts": {"demo": (NOW + timedelta(days=9), info)}}
        yield Deciders(cloud, kubernetes, turns, clock, warm)


@pytest.mark.parametrize("series", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, SERIES))])
def test_concurrent_runs_launch_each_instance_once_and_lose_no_claim(deciders: Deciders, series: int) -> None:
    for i in range(EACH):
        seed = series * EACH + i
        deciders.clear()
        deciders.clock.turn(60)
        deciders.add_pods(PODS, seed)
        deciders.at_once(seed)
        claims, living = deciders.claims(), deciders.living()
        held = sorted(c["status"]["providerID"].rsplit("/", 1)[-1] for c in claims)
        assert held == sorted(i.id for i in living), f"seed {seed}"
        assert len(set(held)) == len(held) > 0
        cpus = sum(int(c["status"]["capacity"]["cpu"]) for c in claims)
        assert cpus < 2 * 2 * PODS, f"seed {seed}: {cpus} cpus for {PODS} pods that get two each"
        tags = {i.id: {t["key"]: t["value"] for t in i.get_tags()} for i in living}
        for claim in claims:
            instance = claim["status"]["providerID"].rsplit("/", 1)[-1]
            assert tags[instance][names.NODECLAIM_TAG] == claim["metadata"]["name"]
