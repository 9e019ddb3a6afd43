"""A Kubernetes API, an EC2 account and a queue; tests run lifecycle and termination and set the clock."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws
from moto.ec2.models.instances import InstanceBackend

from functions.lifecycle.handler import handle as lifecycle
from functions.termination.handler import handle as termination
from infra.cluster.kubernetes import cluster_manifests
from local.aws import backends
from local.kubernetes import kinds
from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.registry.store import Store
from shared.api import labels as names
from shared.base import aws, hints, runtime
from shared.cluster.client import Client
from shared.cluster.connect import ClusterInfo, configuration
from shared.cluster.resources import NODE_CLAIMS, NODES, POD_DISRUPTION_BUDGETS, PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.objects import Obj

REGION = "us-east-1"
CLUSTER = "demo"
START = datetime(2026, 11, 21, 12, tzinfo=UTC)
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}]
CONTEXT: Any = SimpleNamespace(
    function_name="f",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:x",
    aws_request_id="r",
    get_remaining_time_in_millis=lambda: 60_000,
)


@dataclass
class Environment:
    """Creates objects, sends messages, lets time pass, and reads the result."""

    client: Client
    store: Store
    queue_url: str
    now: datetime = START
    due: list[tuple[datetime, str]] = field(default_factory=list)
    invocations: int = 0
    evicting_invocations: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    after_each: Callable[[], None] = lambda: None
    before_request: Callable[[Request], None] = lambda _: None
    warm: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    """Environment variables of options that are on."""

    def turn(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def restart(self) -> None:
        """Every function starts without a cache; objects and instances stay."""
        info = ClusterInfo(
            name=CLUSTER, endpoint="https://x", certificate_authority="", version="1.34", service_cidr="", region=REGION
        )
        self.warm = {"cluster:client": self.client, "cluster:facts": {CLUSTER: (self.now + timedelta(days=99), info)}}
        with runtime.using(self.host):
            aws.sqs().meta.events.register("provide-client-params.sqs.SendMessage", self._sent)
            aws.sqs().meta.events.register("provide-client-params.sqs.SendMessageBatch", self._sent_batch)
            aws.ec2().meta.events.register("before-call.ec2", self._called)

    def _sent(self, params: dict[str, Any], **_: object) -> None:
        self.due.append((self.now + timedelta(seconds=params.get("DelaySeconds", 0)), params["MessageBody"]))

    def _sent_batch(self, params: dict[str, Any], **_: object) -> None:
        for entry in params["Entries"]:
            self._sent(entry)

    def _called(self, model: Any, **_: object) -> None:
        self.calls.append(model.name)

    # --- objects and instances ---

    def instance(self, **tags: str) -> tuple[str, str]:
        """An instance of the cluster's; its id and provider id."""
        all_tags = {names.CLUSTER_TAG.format(cluster=CLUSTER): "owned", names.NODEPOOL: "default", **tags}
        with runtime.using(self.host):
            instance = aws.ec2().run_instances(
                ImageId="ami-12c6146b",
                MinCount=1,
                MaxCount=1,
                TagSpecifications=[
                    {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in all_tags.items()]}
                ],
            )["Instances"][0]
        instance_id, zone = instance["InstanceId"], instance["Placement"]["AvailabilityZone"]
        return instance_id, f"aws:///{zone}/{instance_id}"

    def states(self) -> dict[str, str]:
        with runtime.using(self.host):
            pages = aws.ec2().describe_instances()["Reservations"]
        return {i["InstanceId"]: i["State"]["Name"] for r in pages for i in r["Instances"]}

    @contextlib.contextmanager
    def unknown_instances(self, *ids: str) -> Iterator[None]:
        """While entered, DescribeInstances leaves these instances out."""

        def describe(backend: Any, filters: Any = None) -> list[Any]:
            reservations = backend.all_reservations(filters=filters)
            for reservation in reservations:
                reservation.instances = [i for i in reservation.instances if i.id not in ids]
            return [r for r in reservations if r.instances]

        with backends.replaced(InstanceBackend, "describe_instances", describe):
            yield

    def terminate_from_outside(self, instance_id: str) -> None:
        with runtime.using(self.host):
            aws.ec2().terminate_instances(InstanceIds=[instance_id])
        self.calls.clear()

    def claim(self, name: str, provider_id: str, *, node: str = "", grace: str = "", registered: bool = True) -> Obj:
        spec: dict[str, Any] = {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        }
        if grace:
            spec["terminationGracePeriod"] = grace
        claim = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {
                "name": name,
                "labels": {names.NODEPOOL: "default"},
                "finalizers": [names.TERMINATION_FINALIZER],
            },
            "spec": spec,
        }
        self.client.create(NODE_CLAIMS.path(), claim)
        condition_types = ["Launched", *(["Registered", "Initialized", "Ready"] if registered else [])]
        conditions = [
            {
                "type": t,
                "status": "True",
                "reason": t,
                "message": "",
                "lastTransitionTime": f"{self.now:%Y-%m-%dT%H:%M:%SZ}",
            }
            for t in condition_types
        ]
        status = {"providerID": provider_id, "nodeName": node, "conditions": conditions}
        self.client.patch(NODE_CLAIMS.path(name, subresource="status"), {"status": status})
        return self.stored_claim(name)

    def node(
        self, name: str, provider_id: str, *, ready: bool = True, managed: bool = True, owner: Obj | None = None
    ) -> None:
        metadata: dict[str, Any] = {"name": name, "labels": {names.NODEPOOL: "default", names.REGISTERED: "true"}}
        if managed:
            metadata["finalizers"] = [names.TERMINATION_FINALIZER]
        if owner is not None:
            metadata["ownerReferences"] = [
                {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": owner["metadata"]["name"],
                 "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}
            ]  # fmt: skip
        self.client.create(
            NODES.path(),
            {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"providerID": provider_id}},
        )
        self.set_ready(name, "True" if ready else "Unknown")

    def set_ready(self, name: str, status: str) -> None:
        condition = {**READY[0], "status": status, "lastTransitionTime": f"{self.now:%Y-%m-%dT%H:%M:%SZ}"}
        self.client.patch(
            NODES.path(name, subresource="status"),
            {"status": {"conditions": [condition], "allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}}},
        )

    def a_node(self, name: str, *, grace: str = "", **tags: str) -> str:
        """A claim with its node and instance; the instance's id."""
        instance_id, provider_id = self.instance(**{names.NODECLAIM_TAG: f"claim-{name}", **tags})
        claim = self.claim(f"claim-{name}", provider_id, node=name, grace=grace)
        self.node(name, provider_id, owner=claim)
        return instance_id

    def pod(self, name: str, node: str, *, app: str = "web", grace: int = 30, protected: str = "") -> None:
        self.client.create(
            PODS.path(namespace="default"),
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "labels": {"app": app},
                    "annotations": {names.DO_NOT_DISRUPT: protected} if protected else {},
                },
                "spec": {
                    "nodeName": node,
                    "terminationGracePeriodSeconds": grace,
                    "containers": [{"name": "c", "image": "x"}],
                },
            },
        )
        self.client.patch(
            PODS.path(name, namespace="default", subresource="status"),
            {"status": {"phase": "Running", "conditions": READY}},
        )

    def budget(self, app: str, least: int, *, name: str = "") -> None:
        self.client.create(
            POD_DISRUPTION_BUDGETS.path(namespace="default"),
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name or app, "namespace": "default"},
                "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
            },
        )

    def stop(self, pod: str) -> None:
        """The kubelet reports that a pod has stopped."""
        self.client.delete(PODS.path(pod, namespace="default"), grace_period_seconds=0)

    # --- messages and invocations ---

    def delete(self, name: str) -> None:
        self.client.delete(NODE_CLAIMS.path(name))
        self.send(hints.NODE_CLAIMS_DELETING, name)

    def send(self, detail_type: str, *keys: str) -> None:
        self.due += [
            (self.now, body) for body in hints.message_bodies(detail_type, cluster=CLUSTER, keys=keys, time=self.now)
        ]

    def step(self) -> bool:
        """Deliver the messages that are due next, in one batch."""
        if not self.due:
            return False
        self.due.sort()
        self.now = max(self.now, self.due[0][0])
        bodies = [body for at, body in self.due if at <= self.now]
        self.due = [(at, body) for at, body in self.due if at > self.now]
        self.deliver(*bodies)
        self.after_each()
        return True

    def deliver(self, *bodies: str) -> None:
        arn = f"arn:aws:sqs:{REGION}:123456789012:termination"
        records = [
            {
                "messageId": str(i),
                "receiptHandle": "x",
                "body": body,
                "attributes": {"ApproximateReceiveCount": "1"},
                "eventSourceARN": arn,
            }
            for i, body in enumerate(bodies)
        ]
        self.invocations += 1
        before = len(self.requests)
        with runtime.using(self.host):
            response = termination({"Records": records}, CONTEXT)
        assert response == {"batchItemFailures": []}
        self.evicting_invocations += any("eviction" in path for _, path in self.requests[before:])

    def invoke(self, body: str) -> int:
        """Deliver a message of the queue in a thread of its own; how many messages are to be redelivered."""
        with runtime.using(self.host):
            backends.sqs(REGION).send_message(queue_name="termination", message_body=body)
            (message,) = aws.sqs().receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=1)["Messages"]
            record = {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": {"ApproximateReceiveCount": "1"},
                "eventSourceARN": f"arn:aws:sqs:{REGION}:123456789012:termination",
            }
            return len(termination({"Records": [record]}, CONTEXT)["batchItemFailures"])

    def run(self, *, until: Callable[[], bool] = lambda: False, limit: timedelta = timedelta(days=7)) -> None:
        end = self.now + limit
        while not until() and self.now <= end and self.step():
            pass

    def reconcile(self) -> None:
        """The scheduled reconcile of lifecycle; the messages that it sends become due."""
        with runtime.using(self.host):
            lifecycle({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}, CONTEXT)

    def settle(self, *, minutes: int = 10) -> None:
        """Some minutes with a scheduled reconcile in each, and all that follows."""
        for _ in range(minutes):
            self.reconcile()
            self.collect_garbage()
            self.run(limit=timedelta(seconds=60))
            self.collect_garbage()
            self.turn(60)

    def collect_garbage(self) -> None:
        """As Kubernetes does with nodes whose owner is gone, and with pods whose node is gone."""
        while self.store.collect_garbage():
            pass
        node_names = {n["metadata"]["name"] for n in self.nodes()}
        for pod in self.pods():
            if pod["spec"].get("nodeName") not in node_names:
                self.stop(pod["metadata"]["name"])

    # --- state ---

    @property
    def host(self) -> runtime.Runtime:
        environ = {
            "TENON_CLUSTER_NAME": CLUSTER,
            "TENON_TERMINATION_QUEUE_URL": self.queue_url,
            "TENON_DEAD_LETTER_QUEUE_URL": self.queue_url,
            "TENON_NODE_INSTANCE_PROFILE": "nodes",
            "TENON_CATALOG_BUCKET": "catalog",
            "TENON_TABLE_NAME": "state",
            **self.options,
        }
        return runtime.Runtime(environ=environ, now=lambda: self.now, sleep=self.turn, cache=self.warm)

    def pods(self) -> list[Obj]:
        return self.store.list(kinds.PODS)

    def nodes(self) -> list[Obj]:
        return self.store.list(kinds.NODES)

    def claims(self) -> list[Obj]:
        return self.store.list(self.store.kind("karpenter.sh/v1", "NodeClaim"))

    def stored_claim(self, name: str) -> Obj:
        return self.store.get(self.store.kind("karpenter.sh/v1", "NodeClaim"), name)

    def events(self, reason: str = "") -> list[Obj]:
        return [e for e in self.store.list(kinds.EVENTS) if reason in ("", e["reason"])]


def ready_by_app(env: Environment) -> Counter[str]:
    return Counter(
        p["metadata"]["labels"]["app"]
        for p in env.pods()
        if "deletionTimestamp" not in p["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))
    )


def evictions(env: Environment) -> int:
    """How many evictions were requested."""
    return sum("eviction" in path for _, path in env.requests)


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_DEFAULT_REGION", REGION)):
        monkeypatch.setenv(name, value)
    rigs: list[Environment] = []

    def now() -> datetime:
        return rigs[0].now if rigs else START

    store = Store(now=now)
    with mock_aws(), backends.on_clock(now), Server(store) as server, warnings.catch_warnings():
        # Lambda makes no error of a warning, whatever a test runner's filters say
        warnings.filterwarnings("ignore", message="No application metrics to publish")
        client = Client(configuration(server.url, server.ca_pem, lambda: ADMIN_TOKEN), sleep=lambda _: None)
        own = runtime.Runtime(environ={})
        with runtime.using(own):
            queue_url = aws.sqs().create_queue(QueueName="termination")["QueueUrl"]
            keys: Any = [("pk", "HASH"), ("sk", "RANGE")]
            aws.dynamodb_with_errors().create_table(
                TableName="state",
                KeySchema=[{"AttributeName": n, "KeyType": t} for n, t in keys],
                AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
                BillingMode="PAY_PER_REQUEST",
            )
        env = Environment(client=client, store=store, queue_url=queue_url)
        rigs.append(env)
        env.restart()
        for kind in cluster_manifests.kinds():
            store.create(store.kind(kind["apiVersion"], kind["kind"]), kind)

        def intercept(request: Request) -> None:
            env.requests.append((request.method, request.path))
            env.before_request(request)

        server.intercept = intercept
        yield env
        client.close()
