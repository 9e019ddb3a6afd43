"""A whole cluster with Tenon in it, in one process: what the demo runs and the end-to-end tests use.

The world is a loop over actors. It steps them until none has anything to do, the relay has seen every change and no
function runs; then it turns the clock to the next moment at which something is due. Work takes its time, waiting none.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import random
import re
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import boto3
import msgspec
import yaml

from infra import assembly, cluster_manifests
from local.aws.account import ROLE, SERVICE_CIDR
from local.aws.cloud import Cloud
from local.aws.iam_enforcement import credentials
from local.clock import Clock
from local.faults import Faults, InjectionPoint
from local.kubelets.behavior import NORMAL, MachineBehavior, Timing
from local.kubelets.kubelets import Kubelets
from local.kubernetes import kinds
from local.kubernetes.apiserver.http import Response
from local.kubernetes.apiserver.rbac import Rbac
from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.control_plane import controllers
from local.kubernetes.errors import ApiError
from local.kubernetes.registry.store import Store
from local.world import catalog_cache
from local.world.authentication import RELAY_TOKEN, TokenAuthenticator
from local.world.client_crashes import kubernetes_client_crashes
from local.world.ec2_machines import Ec2Machines
from local.world.quiescence import Activity, quiet_time, unfinished
from local.world.timeline import Timeline
from relay.relay import Relay
from shared.cluster.connect import ClusterInfo, to_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from local.actor import Actor
    from local.aws.sqs_queues import Message
    from local.kubelets.machine import Machine
    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.objects import Obj
    from shared.cluster.resources import Resource

CHECKOUT = Path(__file__).resolve().parent.parent.parent
LIMIT = timedelta(hours=2)
_CLUSTER = re.compile(r"\bCLUSTER\b")
_LOOK_AGAIN = 0.002
"""Seconds of real time between looks at threads that are still working."""
_LOOK_AT_LEAST = 0.2
_FRAME = timedelta(seconds=1)
_RELAY_PATIENCE = 0.05


class DeniedRequestsError(RuntimeError):
    """A function or the relay asked for what its role doesn't allow; the text says what, of AWS and of the cluster."""


class StuckError(RuntimeError):
    """What was waited for didn't happen within the limit; the text says what is unfinished."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a world differs from the usual one.

    ``version`` is Kubernetes'; ``start`` the first moment of its clock, ``elapsed`` what work takes on it
    (:class:`local.clock.Clock`).
    """

    version: str = "1.34"
    concurrency: int = 1
    timing: Timing | None = None
    behavior: Callable[[Machine], MachineBehavior] = lambda _machine: NORMAL
    start: datetime | None = None
    elapsed: Callable[[], float] = time.monotonic
    port: int = 0
    catalog: bool = True
    context: Mapping[str, str] = field(default_factory=dict)


class World:
    """A context manager. Inside, everything runs; nothing moves but by the methods that say so."""

    def __init__(
        self,
        *,
        cluster: str = "demo",
        region: str = "us-east-1",
        seed: int = 0,
        options: Options | None = None,
    ) -> None:
        self.cluster = cluster
        self.region = region
        self.seed = seed
        self.options = options or Options()
        self.clock = Clock(self.options.start, elapsed=self.options.elapsed)
        self.faults = Faults(seed=seed)
        self.timeline = Timeline(now=self.clock.now)
        self.store = Store(now=self.clock.now, rng=random.Random(seed))  # noqa: S311 - names of simulated objects
        self.rbac = Rbac(self.store)
        self._authenticator = TokenAuthenticator()
        self._skips_waiting = True
        self._wake = threading.Event()
        self._activity = Activity(now=self.clock.now)
        self._stack = contextlib.ExitStack()
        self._actors: list[Actor] = []
        self._dead: set[str] = set()
        self._expected: set[str] = set()
        self._passing = threading.local()
        self.server: Server
        self.aws: Cloud
        self.relay: Relay
        self.kubelets: Kubelets

    # --- life ---

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.store.subscribe(self.timeline.change)
            self.store.subscribe(self._activity.change)
            self.server = stack.enter_context(
                Server(
                    self.store,
                    port=self.options.port,
                    authenticate=self._authenticator,
                    authorize=self.rbac,
                    intercept=self._intercept,
                )
            )
            self.aws = stack.enter_context(
                Cloud(
                    now=self.clock.now,
                    sleep=self.clock.sleep,
                    region=self.region,
                    seed=self.seed,
                    faults=self.faults,
                    concurrency=self.options.concurrency,
                )
            )
            stack.enter_context(kubernetes_client_crashes(self.faults))
            self._deploy()
            self._join(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        gc.unfreeze()  # functions freeze what they list of a large cluster; this world's cycles would stay for ever
        asked = [text for text in self.denied_requests() if text not in self._expected]
        if error is None and asked:
            raise DeniedRequestsError("\n".join(asked))

    def _deploy(self) -> None:
        authority = base64.b64encode(self.server.ca_pem.encode()).decode()
        self.aws.prepare(
            cluster=self.cluster,
            version=self.options.version,
            endpoint=self.server.url,
            certificate_authority=authority,
        )
        context = {
            "bundle": "source",
            "clusterSide": "printed",
            "nodeRoles": ROLE.format(cluster=self.cluster),
            **self.options.context,
        }
        self._authenticator.register(
            self.aws.deploy(assembly.cached(cluster=self.cluster, root=CHECKOUT, context=context))
        )
        self.aws.calls.observe(self.timeline.call)
        self.aws.calls.observe(self._activity.call)
        self.aws.functions.observe(self.timeline.invocation)
        self.apply([*cluster_manifests.kinds(), *cluster_manifests.access(), *cluster_manifests.relay_access()])
        if self.options.catalog:
            self._stock_catalog()

    def _stock_catalog(self) -> None:
        bucket = self.aws.deployed.function("catalog").environ["TENON_CATALOG_BUCKET"]
        if not catalog_cache.restore(
            bucket, cluster=self.cluster, region=self.region, seed=self.seed, now=self.clock.now()
        ):
            self.refresh_catalog()
            catalog_cache.save_stored(bucket, cluster=self.cluster, region=self.region, seed=self.seed)

    def _join(self, stack: contextlib.ExitStack) -> None:
        info = ClusterInfo(
            name=self.cluster,
            endpoint=self.server.url,
            certificate_authority=base64.b64encode(self.server.ca_pem.encode()).decode(),
            version=self.options.version,
            service_cidr=SERVICE_CIDR,
            region=self.region,
        )
        self.kubelets = Kubelets(
            self.store,
            Ec2Machines(self.aws.instances),
            info,
            seed=self.seed,
            timing=self.options.timing,
            behavior=self.options.behavior,
        )
        client = to_server(self.server.url, self.server.ca_pem, lambda: RELAY_TOKEN)
        stack.callback(client.close)
        key = credentials("relay")
        self.relay = Relay(
            client,
            boto3.client("events", aws_access_key_id=key.access_key, aws_secret_access_key=key.secret_key),
            bus=cluster_manifests.bus_name(self.cluster),
            cluster=self.cluster,
            now=self.clock.now,
            max_backoff=_RELAY_PATIENCE,
            on_change=self._wake.set,
        )
        self._actors = [
            *controllers(self.store, seed=self.seed),
            self.kubelets,
            self.relay,
            *self.aws.actors(),
        ]
        self.relay.start()
        stack.callback(self.relay.stop)

    # --- time ---

    def run_until(self, predicate: Callable[[], bool], *, limit: timedelta = LIMIT) -> None:
        """Go on until the predicate holds, looked at whenever nothing is left to do at a moment.

        Raises:
            StuckError: it doesn't hold after so much cluster time.
        """
        end = self.clock.now() + limit
        while not self._advance(predicate, end):
            if self.clock.now() >= end:
                raise StuckError(f"not within {limit}; unfinished: {unfinished(self.store)}")

    def run_for(self, duration: timedelta) -> None:
        """Go on for so much cluster time."""
        end = self.clock.now() + duration
        while self.clock.now() < end:
            self._advance(lambda: False, end)

    def run_until_idle(self, *, limit: timedelta = LIMIT) -> None:
        """Go on until nothing but sweeps has happened for long enough, and nothing is half done.

        Raises:
            StuckError: that isn't so after so much cluster time; the text names what is unfinished.
        """
        self.run_until(self.is_idle, limit=limit)

    def run_in_real_time(self) -> None:
        """Go on for ever without turning the clock, for people who look on with kubectl; ends by an exception."""
        self._skips_waiting = False
        while True:
            self._advance(lambda: False, self.clock.now() + _FRAME)

    def is_idle(self) -> bool:
        """Whether nothing but sweeps has happened for long enough, and nothing is unfinished; see ``quiescence``."""
        quiet = self.clock.now() - self._activity.last
        return quiet >= quiet_time(self.store) and not unfinished(self.store) and self.aws.queues.empty()

    def settle(self) -> None:
        """Do all that is due now, and what follows from it, without moving time on."""
        self._settle(lambda: False)

    def _advance(self, predicate: Callable[[], bool], end: datetime) -> bool:
        """Settle, then move to the next moment, at most to the end. True as soon as the predicate holds."""
        if self._settle(predicate):
            return True
        due = min((moment for actor in self._actors if (moment := actor.due()) is not None), default=end)
        moment = min(due, end)
        if self._skips_waiting:
            if not self.clock.skip_to(moment):
                # Due already, but its thread or a limit holds it back.
                self._pause(_LOOK_AGAIN)
        else:
            ahead = (moment - self.clock.now()).total_seconds()
            self._pause(min(max(ahead, _LOOK_AGAIN), _LOOK_AT_LEAST))
        return False

    def _settle(self, predicate: Callable[[], bool]) -> bool:
        while True:
            did = False
            for actor in self._actors:
                did |= actor.step(self.clock.now())
            self._look_for_dead_letters()
            if predicate():
                return True
            if did:
                continue
            if self.aws.functions.running or not self.relay.has_observed(self._version_of):
                self._pause(_LOOK_AGAIN)
                continue
            return False

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _version_of(self, resource: Resource) -> int:
        try:
            return self.store.version_of(self.store.kind(resource.api_version, resource.kind))
        except ApiError:
            return 0

    # --- what people and tests do ---

    def apply(self, what: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Obj]:
        """``kubectl apply``: a file of YAML documents, one object, or several. Returns them as stored.

        In a file the word CLUSTER stands for the cluster's name.

        Raises:
            ApiError: as the API refuses one; those before it are applied.
        """
        if isinstance(what, (str, Path)):
            text = _CLUSTER.sub(self.cluster, Path(what).read_text())
            docs = [doc for doc in yaml.safe_load_all(text) if doc]
        else:
            docs = [what] if hasattr(what, "keys") else list(what)
        return [self._apply(doc) for doc in docs]

    def _apply(self, doc: Mapping[str, Any]) -> Obj:
        kind = self.store.kind(doc["apiVersion"], doc["kind"])
        name, namespace = doc["metadata"]["name"], doc["metadata"].get("namespace", "")
        if kind.namespaced:
            namespace = namespace or "default"
        there = self.store.find(kind, name, namespace=namespace)
        if there is None:
            return self.store.create(kind, doc, namespace=namespace)
        # What the document doesn't say any more goes, as with kubectl; what the cluster says of the object stays.
        metadata = {**there["metadata"], **doc["metadata"], "namespace": namespace}
        return self.store.replace(kind, {**there, **doc, "metadata": metadata})

    def scale(self, namespace: str, deployment: str, replicas: int) -> None:
        """``kubectl scale deployment``.

        Raises:
            ApiError: 404, there is no such deployment.
        """
        self.store.patch(kinds.DEPLOYMENTS, deployment, {"spec": {"replicas": replicas}}, namespace=namespace)

    def kubectl_config(self) -> str:
        """A kubeconfig's text, for kubectl from outside while the world runs."""
        return self.server.kubeconfig(ADMIN_TOKEN)

    def refresh_catalog(self) -> None:
        """Have the catalog fetched now, as after a deployment.

        Raises:
            RuntimeError: the catalog function failed; the text is its error and what it logged.
        """
        for what in ("types", "prices"):
            record = self.aws.functions.invoke("catalog", {"refresh": what}, trigger="deployment")
            if not record.ok:
                raise RuntimeError(f"the catalog was not refreshed: {record.error}\n{record.traceback}{record.output}")

    def nodes(self, pool: str = "") -> list[Obj]:
        """The nodes, or those of one pool."""
        return self.store.list(kinds.NODES, labels=f"karpenter.sh/nodepool={pool}" if pool else "")

    def pods(self, *, node: str | None = None, phase: str = "") -> list[Obj]:
        """The pods; on a node ("" for none), or in a phase."""
        return [
            pod
            for pod in self.store.list(kinds.PODS)
            if (node is None or pod["spec"].get("nodeName", "") == node)
            and (not phase or pod.get("status", {}).get("phase") == phase)
        ]

    def claims(self) -> list[Obj]:
        """The NodeClaims."""
        return self.store.list(self.store.kind("karpenter.sh/v1", "NodeClaim"))

    def instances(self) -> list[Any]:
        """EC2's instances that have not begun to stop, as moto has them."""
        return [instance for instance in self.aws.instances.all if instance.state in ("pending", "running")]

    def pending(self) -> list[Obj]:
        """Pods without a node that are not being deleted."""
        return [pod for pod in self.pods(node="") if not pod["metadata"].get("deletionTimestamp")]

    # --- what goes wrong ---

    def interrupt_spot(self, instance_ids: Sequence[str]) -> None:
        """EC2 wants instances back: the warning now, the end in two minutes."""
        for instance_id in instance_ids:
            self.timeline.add("interruption", instance_id, kind="spot")
        with self.aws.lock:
            self.aws.instances.interrupt(list(instance_ids))

    def send_malformed_message(self, queue: str, body: str = "{not a hint") -> None:
        """Put on a queue what nobody can read. ``queue`` is part of its name: "provisioning", "termination"."""
        for source in self.aws.deployed.event_source_mappings:
            if queue.lower() in source.queue_name.lower():
                self.aws.queues.send(source.queue_name, body, group_id=self._group(source.queue_name))
                return
        raise KeyError(queue)

    def redeliver(self) -> int:
        """Deliver every message and every event of the run once more. Returns how many."""
        messages, deliveries = list(self.aws.queues.delivered), list(self.aws.event_buses.deliveries)
        for message in messages:
            self.aws.queues.send(message.queue, message.body, group_id=message.group_id)
        direct = [delivery for delivery in deliveries if ":lambda:" in delivery.target_arn]
        for delivery in direct:
            self.aws.event_buses.redeliver(delivery)
        return len(messages) + len(direct)

    def dead_letters(self) -> list[Message]:
        """All messages in dead-letter queues."""
        return self.aws.dead_letters()

    def expect_denials(self) -> None:
        """What was denied so far is as it should be, and no reason for the world to end with an error."""
        self._expected.update(self.denied_requests())

    def denied_requests(self) -> list[str]:
        """What was asked of AWS and of the cluster that the asker's role doesn't allow, one text each."""
        return list(dict.fromkeys(map(str, [*self.aws.enforcement.denied, *self.rbac.denials])))

    def failures(self) -> list[str]:
        """Invocations that failed, one text each: which, when, why, and where."""
        return [
            f"{record.function} ({record.trigger}) at {record.at:%H:%M:%S}: {record.error}\n{record.traceback}"
            for record in self.aws.functions.invocations
            if not record.ok
        ]

    def _group(self, queue_name: str) -> str:
        return self.cluster if queue_name.endswith(".fifo") else ""

    def _look_for_dead_letters(self) -> None:
        for letter in self.aws.dead_letters():
            if letter.message_id in self._dead:
                continue
            self._dead.add(letter.message_id)
            self.timeline.add(
                "dead letter", letter.queue, body=letter.body[:200], reason=letter.attributes.get("reason", "")
            )

    def _serve_anyway(self, request: Request) -> None:
        """Do what was asked, so that only the answer is lost."""
        self._passing.request = True
        try:
            self.server.api.respond(request)
        finally:
            self._passing.request = False

    def _intercept(self, request: Request) -> Response | None:
        if getattr(self._passing, "request", False):
            return None
        caller = request.headers.get("user-agent", "")
        action = self.faults.next_fault(
            InjectionPoint(service="kubernetes", operation=request.method, target=request.path, caller=caller)
        )
        if action is None:
            return None
        if action.delay:
            self.clock.sleep(action.delay)
        if action.disconnect == "after":
            self._serve_anyway(request)
        if action.disconnect:
            return Response(drop=True)
        if not action.code:
            return None
        error = ApiError(action.status, action.code, action.message)
        return Response(status=action.status, body=msgspec.json.encode(error.as_json()))
