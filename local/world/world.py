"""A whole cluster with Tenon in it, in one process: the demo and the end-to-end tests run it.

It joins the local AWS, the API server, the cluster's controllers, the kubelets and, where it is a pod, the relay to
actors of one event loop.
"""

from __future__ import annotations

import base64
import contextlib
import gc
from typing import TYPE_CHECKING, Any, Self

from infra import assembly, installation
from infra.cluster.kubernetes import cluster_manifests
from infra.options import stack_options
from local.aws.account import SERVICE_CIDR
from local.aws.cloud import Cloud
from local.clock import Clock, RealTimeClock
from local.faults import Faults
from local.kubelets.kubelets import HEARTBEAT, Kubelets
from local.kubernetes import kinds
from local.world import catalog_cache, custom_resource_definitions, foreign_objects, relays, webhook_calls
from local.world.apply import apply_object, read_objects
from local.world.control_plane import ControlPlane, EmbeddedControlPlane
from local.world.ec2_machines import KUBELET_THREADS, MACHINES_PER_THREAD, Ec2Machines, MachinesOfThread
from local.world.event_loop import DEFAULT_LIMIT, BackgroundLoop, EventLoop
from local.world.kubernetes_faults import kubernetes_requests
from local.world.managed_node_drains import ManagedNodeDrains
from local.world.options import Options
from local.world.quiescence import ActivityMonitor, unfinished
from local.world.stack_context import stack_context
from local.world.timeline import Timeline
from local.world.world_errors import DeniedRequestsError, DroppedInvocationsError
from local.world.zonal_shift_cordons import ZonalShiftCordons
from shared.cluster.connect import ClusterInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path
    from types import TracebackType

    from local.aws.sqs_queues import Message
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store
    from relay.relay import Relay


class World:
    """A context manager. Time moves only in the methods that say so."""

    def __init__(
        self, *, cluster: str = "demo", region: str = "us-east-1", seed: int = 0, options: Options | None = None
    ) -> None:
        self.cluster = cluster
        self.region = region
        self.seed = seed
        self.options = options or Options()
        self.faults = Faults(seed=seed)
        self.clock: Clock
        self.control_plane: ControlPlane
        if self.options.control_plane is None:
            self.clock = Clock(self.options.start, elapsed=self.options.elapsed)
            self.control_plane = EmbeddedControlPlane(
                self.clock, self.faults, seed=seed, port=self.options.port, version=self.options.version
            )
        else:
            self.control_plane = self.options.control_plane()
            self.clock = RealTimeClock() if self.control_plane.in_real_time else Clock(self.options.start)
        self.timeline = Timeline(now=self.clock.now)
        self.store: Store
        self._activity = ActivityMonitor(now=self.clock.now)
        self._stack = contextlib.ExitStack()
        self._seen_dead_letters: set[str] = set()
        self._expected_denials: set[str] = set()
        self._expected_drops = 0
        self._loop: EventLoop
        self.aws: Cloud
        self.relay: Relay | None = None
        """The relay if it is a pod, which then runs in this process; None if it is a function."""
        self.kubelets: Sequence[Kubelets]

    # Start and end

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.control_plane)
            self.store = self.control_plane.store
            self.store.subscribe(self.timeline.change)
            self.store.subscribe(self._activity.change)
            self.aws = stack.enter_context(
                Cloud(
                    now=self.clock.now,
                    sleep=self.clock.sleep,
                    region=self.region,
                    seed=self.seed,
                    faults=self.faults,
                    concurrency=self.options.function_concurrency,
                    shared_cache=self.options.shared_cache,
                    latencies=self.options.call_latencies(self.clock, seed=self.seed),
                    clock=self.clock,
                )
            )
            self.aws.managed_hooks.drain = ManagedNodeDrains(self.store)
            self.options.apply_to(self.aws)
            stack.enter_context(kubernetes_requests(self.faults, self.aws.latencies))
            self._deploy()
            self._start_loop(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        gc.unfreeze()  # functions freeze the objects of a large cluster; this world's cycles would never be collected
        unexpected = [text for text in self.denied_requests() if text not in self._expected_denials]
        if error is None and unexpected:
            raise DeniedRequestsError("\n".join(unexpected))
        if error is None and (dropped := self.recursive_invocations_dropped()[self._expected_drops :]):
            raise DroppedInvocationsError("\n".join(dropped))

    def _deploy(self) -> None:
        self.aws.prepare(
            cluster=self.cluster,
            version=self.options.version,
            endpoint=self.control_plane.url,
            certificate_authority=self._certificate_authority(),
        )
        context = stack_context(self.cluster, self.options.context)
        self._has_relay_pod = context["relay"] == "pod"
        stack = self.aws.deploy(assembly.cached(cluster=self.cluster, root=installation.ROOT, context=context))
        self.control_plane.authenticate_functions(stack)
        for observer in (self.timeline, self._activity):
            self.aws.calls.observe(observer.call)
        self.aws.functions.observe(self.timeline.invocation)
        self.apply(cluster_manifests.access_of(stack_options.parse(context, cluster=self.cluster)))
        self.apply(
            [*custom_resource_definitions.load(), *(cluster_manifests.relay_access() if self._has_relay_pod else ())]
        )
        self.apply(webhook_calls.begin(self.aws, self.control_plane, sleep=self.clock.sleep))
        # The store of a real cluster sees the changes of a kind from its first read on.
        _ = self.nodes(), self.pods(), self.claims()
        if self.options.foreign_objects:
            foreign_objects.create(self.store, zone=next(iter(self.aws.account.subnets)), now=self.clock.now())
        if self.options.catalog:
            self._fill_catalog()

    def _certificate_authority(self) -> str:
        return base64.b64encode(self.control_plane.certificate_authority.encode()).decode()

    def _fill_catalog(self) -> None:
        bucket = self.aws.deployed.function("catalog").environ["TENON_CATALOG_BUCKET"]
        now = self.clock.now()
        if not catalog_cache.restore(bucket, region=self.region, seed=self.seed, now=now):
            self.refresh_catalog()
            catalog_cache.save_stored(bucket, region=self.region, seed=self.seed)

    def _start_loop(self, stack: contextlib.ExitStack) -> None:
        cluster = ClusterInfo(
            name=self.cluster,
            endpoint=self.control_plane.url,
            certificate_authority=self._certificate_authority(),
            version=self.options.version,
            service_cidr=SERVICE_CIDR,
            region=self.region,
        )
        self.kubelets = self._make_kubelets(cluster)
        if self._has_relay_pod:
            self.relay = relays.pod(
                stack, self.control_plane, cluster=self.cluster, now=self.clock.now, wake=self._wake_loop
            )
        in_real_time = self.control_plane.in_real_time
        for kubelets in self.kubelets if in_real_time else ():
            stack.enter_context(BackgroundLoop(self.clock, [kubelets]))
        stepped = () if in_real_time else self.kubelets
        pods = () if self.relay is None else (self.relay,)
        cordons = ZonalShiftCordons(store=self.store, shifts=self.aws.zonal_shifts)
        actors = [*self.control_plane.controllers(), *stepped, *pods, *self.aws.actors(), cordons]
        self._loop = EventLoop(
            self.clock,
            actors,
            is_busy=self._is_busy,
            is_running=lambda: bool(self.aws.functions.running),
            after_step=self._record_dead_letters,
            unfinished=lambda: unfinished(self.store),
            skips_waiting=not in_real_time,
        )
        for relay in pods:
            relay.start()
            stack.callback(relay.stop)

    def _make_kubelets(self, cluster: ClusterInfo) -> list[Kubelets]:
        """The kubelets of all machines; in real time in several threads, so that none waits for another's requests."""
        in_real_time = self.control_plane.in_real_time
        machines, threads = Ec2Machines(self.aws.instances), KUBELET_THREADS if in_real_time else 1
        return [
            Kubelets(
                self.store,
                machines if threads == 1 else MachinesOfThread(machines, thread, threads),
                cluster,
                seed=self.seed,
                timing=self.options.machine_timing,
                behavior=self.options.behavior,
                store_of_node=self.control_plane.store_of_node,
                heartbeat=HEARTBEAT if in_real_time else None,
                first_index=thread * MACHINES_PER_THREAD,
            )
            for thread in range(threads)
        ]

    # Time

    def run_until(self, condition: Callable[[], bool], *, limit: timedelta = DEFAULT_LIMIT) -> None:
        """Run until the condition holds; it is checked whenever all actors were stepped.

        Raises:
            StuckError: it doesn't hold within that much cluster time.
        """
        self._loop.run_until(condition, limit=limit)

    def run_for(self, duration: timedelta) -> None:
        """Run for that much cluster time."""
        self._loop.run_for(duration)

    def run_until_idle(self, *, limit: timedelta = DEFAULT_LIMIT) -> None:
        """Run until nothing but periodic sweeps has happened for long enough, and nothing is unfinished.

        Raises:
            StuckError: it isn't idle within that much cluster time; the text tells what is unfinished.
        """
        self._loop.run_until(self.is_idle, limit=limit)

    def run_in_real_time(self) -> None:
        """Run forever without skipping time, for people with kubectl; ends by an exception."""
        self._loop.run_in_real_time()

    def settle(self) -> None:
        """Do everything that is due now and its consequences, without moving time."""
        self._loop.settle()

    def is_idle(self) -> bool:
        """Whether nothing but periodic sweeps has happened for long enough, and nothing is unfinished."""
        is_quiet = self._activity.is_quiet(self.store, in_real_time=self.control_plane.in_real_time)
        # A function that runs in a thread may just have taken the last message, and not have written anything yet.
        return is_quiet and self.aws.queues.empty() and not self.aws.functions.running

    @property
    def last_activity(self) -> datetime:
        """When something other than leases, events and heartbeats last changed in the cluster or on EC2."""
        return self._activity.last

    @property
    def is_watched(self) -> bool:
        """Whether the relay, if there is one, watches; a function's first invocation is at the first whole minute."""
        return self.relay is not None or relays.is_function_settled(self.aws.functions)

    def _wake_loop(self) -> None:
        self._loop.wake()

    def _is_busy(self) -> bool:
        if self.control_plane.in_real_time:
            return False  # the loop doesn't need to know that nothing can happen before it skips time
        running = relays.of_function(self.aws.functions) if self.relay is None else [self.relay]
        return bool(self.aws.functions.running) or not relays.have_observed(running, self.store)

    # What users do

    def apply(self, source: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Obj]:
        """``kubectl apply``: a file of YAML documents, one object, or several. Returns them as stored.

        In a file, the word CLUSTER stands for the cluster's name.

        Raises:
            ApiError: the API refuses an object; those before it are applied.
        """
        return [apply_object(self.store, obj) for obj in read_objects(source, cluster=self.cluster)]

    def scale(self, namespace: str, deployment: str, replicas: int) -> None:
        """``kubectl scale deployment``.

        Raises:
            ApiError: 404, there is no such Deployment.
        """
        self.store.patch(kinds.DEPLOYMENTS, deployment, {"spec": {"replicas": replicas}}, namespace=namespace)

    def kubectl_config(self) -> str:
        """The text of a kubeconfig, for kubectl while the world runs."""
        return self.control_plane.kubeconfig()

    def refresh_catalog(self) -> None:
        """Run the catalog function now, as after a deployment.

        Raises:
            RuntimeError: it failed; the text has its error and its logs.
        """
        for part in ("types", "prices"):
            invocation = self.aws.functions.invoke("catalog", {"refresh": part}, trigger="deployment")
            if not invocation.ok:
                why = f"{invocation.error}\n{invocation.traceback}{invocation.output}"
                raise RuntimeError(f"the catalog was not refreshed: {why}")

    # The state

    def nodes(self, pool: str = "") -> list[Obj]:
        """The nodes, or those of one NodePool; without those of other node-class groups."""
        selector = f"karpenter.sh/nodepool={pool}" if pool else ""
        return foreign_objects.without_foreign(self.store.list(kinds.NODES, labels=selector))

    def pods(self, *, node: str | None = None, phase: str = "") -> list[Obj]:
        """The pods; on a node ("" for none), or in a phase."""
        on_node = [p for p in self.store.list(kinds.PODS) if node is None or p["spec"].get("nodeName", "") == node]
        return [p for p in on_node if not phase or p.get("status", {}).get("phase") == phase]

    def claims(self) -> list[Obj]:
        """The NodeClaims, without those of other node-class groups."""
        return foreign_objects.without_foreign(self.store.list(self.store.kind("karpenter.sh/v1", "NodeClaim")))

    def instances(self) -> list[Any]:
        """Moto's EC2 instances that are pending or running."""
        return [instance for instance in self.aws.instances.all if instance.state in ("pending", "running")]

    def pending(self) -> list[Obj]:
        """Pods without a node that are not being deleted."""
        return [pod for pod in self.pods(node="") if not pod["metadata"].get("deletionTimestamp")]

    def dead_letters(self) -> list[Message]:
        """All messages in dead-letter queues."""
        return self.aws.dead_letters()

    def denied_requests(self) -> list[str]:
        """The requests to AWS and Kubernetes that IAM or RBAC denied, one text each."""
        denied = [*map(str, self.aws.enforcement.denied), *self.control_plane.denied_requests()]
        return list(dict.fromkeys(denied))

    def recursive_invocations_dropped(self) -> list[str]:
        """The invocations that recursive loop detection dropped, one text each."""
        return [f"{i.function} ({i.trigger}): {i.error}" for i in self.aws.functions.recursive_invocations_dropped]

    def failures(self) -> list[str]:
        """The failed invocations, one text each: function, trigger, time, error and traceback."""
        return [
            f"{invocation.function} ({invocation.trigger}) at {invocation.at:%H:%M:%S}: {invocation.error}\n"
            f"{invocation.traceback}"
            for invocation in self.aws.functions.invocations
            if not invocation.ok
        ]

    # What goes wrong

    def interrupt_spot(self, instance_ids: Sequence[str]) -> None:
        """Interrupt spot instances: the warning now, the termination in two minutes."""
        for instance_id in instance_ids:
            self.timeline.add("interruption", instance_id, kind="spot")
        with self.aws.lock:
            self.aws.instances.interrupt(list(instance_ids))

    def send_malformed_message(self, queue: str, body: str = "{not a hint") -> None:
        """Send a message that no function can parse. ``queue`` is part of the queue's name, such as "provisioning"."""
        for mapping in self.aws.deployed.event_source_mappings:
            if queue.lower() in mapping.queue_name.lower():
                group_id = self.cluster if mapping.queue_name.endswith(".fifo") else ""
                self.aws.queues.send(mapping.queue_name, body, group_id=group_id)
                return
        raise KeyError(queue)

    def redeliver(self) -> int:
        """Deliver every message and event so far once more. Returns how many."""
        messages = list(self.aws.queues.delivered)
        to_functions = [d for d in self.aws.event_buses.deliveries if ":lambda:" in d.target_arn]
        for message in messages:
            self.aws.queues.send(message.queue, message.body, group_id=message.group_id)
        for delivery in to_functions:
            self.aws.event_buses.redeliver(delivery)
        return len(messages) + len(to_functions)

    def expect_denials(self) -> None:
        """Accept the denials so far: they raise no error at the end."""
        self._expected_denials.update(self.denied_requests())

    def expect_dropped_invocations(self) -> None:
        """Accept the invocations dropped so far: they raise no error at the end."""
        self._expected_drops = len(self.recursive_invocations_dropped())

    def _record_dead_letters(self) -> None:
        for letter in self.aws.dead_letters():
            if letter.message_id not in self._seen_dead_letters:
                self._seen_dead_letters.add(letter.message_id)
                reason = letter.attributes.get("reason", "")
                self.timeline.add("dead letter", letter.queue, body=letter.body[:200], reason=reason)
