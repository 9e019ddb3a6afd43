"""All kubelets of the local world as one actor: machines become nodes, pods on them run and stop.

A kubelet learns everything from the API and its machine, as a real one does. Each machine's durations are drawn by its
place in the order of launches, so that one seed gives one course of events.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from local.kubelets import node_objects as written
from local.kubelets import pod_status as told
from local.kubelets.behavior import NORMAL, MachineBehavior, Timing
from local.kubelets.kubelet_configuration import JoinError
from local.kubelets.node_resources import allocatable, capacity
from local.kubelets.user_data import kubelet_configuration
from local.kubernetes import kinds
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.node_lifecycle import RENEWED
from local.kubernetes.controllers.object_updates import condition_status, remove, rewrite
from local.kubernetes.errors import ApiError
from shared.api.quantity import QuantityError, format_resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubelets.kubelet_configuration import KubeletConfiguration
    from local.kubelets.machine import Machine, Machines
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store
    from shared.cluster.info import ClusterInfo

INITIALIZED_AFTER = timedelta(seconds=0.5)
"""How long the cloud provider takes to look at a new node."""
INSTANCE_GONE_AFTER = timedelta(seconds=5)
"""How long the cloud provider takes to delete an unreachable node whose instance is gone."""
_MEMORY_LOST = (0.05, 0.07)
_NODE_LEASES = "kube-node-lease"
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(eq=False)
class _Kubelet:
    """One machine's kubelet. ``pods`` are those bound to its node, by uid; ``taken`` those it has begun to start."""

    machine: Machine
    index: int
    rng: random.Random
    behavior: MachineBehavior
    settings: KubeletConfiguration | None = None
    ready: bool = False
    silent: bool = False
    pods: dict[str, Obj] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    stopping: dict[str, datetime] = field(default_factory=dict)
    addresses: int = 1

    @property
    def name(self) -> str:
        return self.machine.private_dns_name


class Kubelets:
    """Nodes for the machines; ``failures`` says of each machine that never became a node, why."""

    def __init__(
        self,
        store: Store,
        machines: Machines,
        cluster: ClusterInfo,
        *,
        seed: int = 0,
        timing: Timing | None = None,
        behavior: Callable[[Machine], MachineBehavior] = lambda _machine: NORMAL,
    ) -> None:
        """``behavior`` is asked once for each machine, when it is first seen."""
        self.failures: dict[str, str] = {}
        self._store = store
        self._machines = machines
        self._cluster = cluster
        self._seed = seed
        self._timing = timing or Timing()
        self._behavior = behavior
        self._feed = Informer(store, kinds.NODES, kinds.PODS)
        self._by_instance: dict[str, _Kubelet] = {}
        self._by_node: dict[str, _Kubelet] = {}
        self._unclaimed: dict[str, dict[str, Obj]] = {}
        self._agenda: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self._entries = 0
        self._seen = 0

    def due(self) -> datetime | None:
        """When the next thing that takes its time is done."""
        return self._agenda[0][0] if self._agenda else None

    def step(self, now: datetime) -> bool:
        """See which machines there are, what changed in the API, and do what is due."""
        before, entries = self._store.version, self._entries
        self._meet(now)
        for change in self._feed.take():
            self._learn(change, now)
        while self._agenda and self._agenda[0][0] <= now:
            heapq.heappop(self._agenda)[2](now)
        return self._store.version != before or self._entries != entries

    def set_ready(self, node: str, now: datetime, *, ready: bool) -> None:
        """Make a registered node Ready or NotReady, as a broken network plugin does.

        Raises:
            KeyError: no kubelet has that node.
        """
        self._report(self._by_node[node], now, ready=ready)

    def stop_heartbeat(self, node: str, now: datetime) -> None:
        """Make a node's kubelet fall silent while its machine runs on.

        Raises:
            KeyError: no kubelet has that node.
        """
        self._fall_silent(self._by_node[node], now)

    def _later(self, when: datetime, do: Callable[[datetime], None]) -> None:
        self._entries += 1
        heapq.heappush(self._agenda, (when, self._entries, do))

    # Machines

    def _meet(self, now: datetime) -> None:
        running = self._machines.running()
        present = {machine.instance_id for machine in running}
        for instance_id in [known for known in self._by_instance if known not in present]:
            self._fall_silent(self._by_instance.pop(instance_id), now)
        for machine in running:
            if machine.instance_id not in self._by_instance:
                self._seen += 1
                rng = random.Random(f"{self._seed}/{self._seen}")  # noqa: S311 (durations of a simulation)
                kubelet = _Kubelet(machine, self._seen, rng, self._behavior(machine))
                self._by_instance[machine.instance_id] = kubelet
                self._boot(kubelet, now)

    def _boot(self, kubelet: _Kubelet, now: datetime) -> None:
        machine = kubelet.machine
        if kubelet.behavior.never_joins:
            self.failures[machine.instance_id] = "the machine was told never to join"
            return
        try:
            kubelet.settings = kubelet_configuration(machine.user_data, self._cluster)
        except JoinError as error:
            self.failures[machine.instance_id] = str(error)
            return
        boot = Timing.draw(self._timing.boot, kubelet.rng) + kubelet.behavior.join_delay
        self._later(max(machine.launched_at + boot, now), lambda at: self._register(kubelet, at))

    def _fall_silent(self, kubelet: _Kubelet, now: datetime) -> None:
        if kubelet.silent:
            return
        kubelet.silent = True

        def change(lease: Obj) -> Obj:
            annotations = {k: v for k, v in lease["metadata"].get("annotations", {}).items() if k != RENEWED}
            return {
                **lease,
                "metadata": {**lease["metadata"], "annotations": annotations},
                "spec": {**lease["spec"], "renewTime": written.micro_time(now)},
            }

        lease = self._store.find(kinds.LEASES, kubelet.name, namespace=_NODE_LEASES)
        if lease is not None and self._by_node.get(kubelet.name) is kubelet:
            rewrite(self._store, kinds.LEASES, lease, change)

    # The node

    def _register(self, kubelet: _Kubelet, now: datetime) -> None:
        machine, settings = kubelet.machine, kubelet.settings
        if kubelet.silent or settings is None:
            return
        lost = Fraction(int(kubelet.rng.uniform(*_MEMORY_LOST) * 10_000), 10_000) + kubelet.behavior.missing_memory
        size = capacity(machine, settings, memory_lost=lost)
        try:
            usable = allocatable(size, machine, settings)
            node = self._store.create(
                kinds.NODES,
                written.registration(
                    machine, settings, capacity=size, allocatable=usable, version=self._cluster.version, now=now
                ),
            )
        except (ApiError, QuantityError) as error:
            self.failures[machine.instance_id] = f"the node can't register: {error}"
            return
        self._store.create(kinds.LEASES, written.lease(node, now), namespace=_NODE_LEASES)
        self._store.create(kinds.CSI_NODES, written.csi_node(machine, node))
        self._by_node[kubelet.name] = kubelet
        for pod in self._unclaimed.pop(kubelet.name, {}).values():
            self._take(kubelet, pod, now)
        self._later(now + INITIALIZED_AFTER, lambda _at: self._initialize(node))
        if not kubelet.behavior.never_ready:
            ready = Timing.draw(self._timing.ready, kubelet.rng)
            self._later(now + ready, lambda at: self._report(kubelet, at, ready=True))

    def _initialize(self, node: Obj) -> None:
        """The cloud provider has seen the node, and takes its taint away."""

        def change(latest: Obj) -> Obj:
            taints = [t for t in latest["spec"].get("taints") or [] if t["key"] != written.UNINITIALIZED]
            return {**latest, "spec": {**latest["spec"], "taints": taints}}

        rewrite(self._store, kinds.NODES, node, change)

    def _report(self, kubelet: _Kubelet, now: datetime, *, ready: bool) -> None:
        """Post the node's Ready condition; devices are reported with the first that is True."""
        node = self._store.find(kinds.NODES, kubelet.name)
        if kubelet.silent or node is None or node["spec"].get("providerID") != kubelet.machine.provider_id:
            return
        devices = format_resources(kubelet.machine.devices) if ready else {}

        def change(latest: Obj) -> Obj:
            status = latest["status"]
            wanted = written.ready_condition(now, ready=ready)
            conditions = [
                wanted if c["type"] == "Ready" and c["status"] != wanted["status"] else c for c in status["conditions"]
            ]
            return {
                **latest,
                "status": {
                    **status,
                    "conditions": conditions,
                    "capacity": {**status["capacity"], **devices},
                    "allocatable": {**status["allocatable"], **devices},
                },
            }

        rewrite(self._store, kinds.NODES, node, change)
        kubelet.ready = ready
        for pod in list(kubelet.pods.values()):
            self._take(kubelet, pod, now)

    # What the API says

    def _learn(self, change: Change, now: datetime) -> None:
        obj = change.object
        if change.kind.plural == "nodes":
            self._learn_node(obj, now, gone=change.type == "DELETED")
            return
        node = obj["spec"].get("nodeName")
        if not node:
            return
        uid = obj["metadata"]["uid"]
        kubelet = self._by_node.get(node)
        if change.type == "DELETED" or obj["status"].get("phase") in _ENDED:
            self._unclaimed.get(node, {}).pop(uid, None)
            if kubelet is not None:
                kubelet.pods.pop(uid, None)
                kubelet.taken.discard(uid)
                kubelet.stopping.pop(uid, None)
        if change.type == "DELETED":
            return
        if kubelet is None:
            self._unclaimed.setdefault(node, {})[uid] = obj
        else:
            self._take(kubelet, obj, now)

    def _learn_node(self, node: Obj, now: datetime, *, gone: bool) -> None:
        name = node["metadata"]["name"]
        kubelet = self._by_node.get(name)
        if kubelet is None or node["spec"].get("providerID") != kubelet.machine.provider_id:
            return
        if (
            kubelet.silent
            and not gone
            and kubelet.machine.instance_id not in self._by_instance
            and condition_status(node, "Ready") == "Unknown"
            and "deletionTimestamp" not in node["metadata"]
        ):
            self._later(now + INSTANCE_GONE_AFTER, lambda _at: remove(self._store, kinds.NODES, node))

    # Pods

    def _take(self, kubelet: _Kubelet, pod: Obj, now: datetime) -> None:
        """Start or stop the pod, whichever it needs; a silent kubelet does neither."""
        uid = pod["metadata"]["uid"]
        if pod["status"].get("phase") not in _ENDED:
            kubelet.pods[uid] = pod
        if kubelet.silent:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._stop(kubelet, pod, now)
        elif uid not in kubelet.taken and uid in kubelet.pods and (kubelet.ready or not told.needs_network(pod)):
            kubelet.taken.add(uid)
            if pod["status"].get("phase") == "Pending":
                pull = Timing.draw(self._timing.pull, kubelet.rng)
                self._later(now + pull, lambda at: self._start(kubelet, pod, now, at))

    def _start(self, kubelet: _Kubelet, pod: Obj, arrived: datetime, now: datetime) -> None:
        uid = pod["metadata"]["uid"]
        if kubelet.silent or uid not in kubelet.pods or "deletionTimestamp" in kubelet.pods[uid]["metadata"]:
            return
        host_ip = kubelet.machine.private_ip
        kubelet.addresses += 1
        pod_ip = host_ip if not told.needs_network(pod) else self._pod_ip(kubelet)
        rewrite(
            self._store,
            kinds.PODS,
            pod,
            lambda latest: told.running(latest, host_ip=host_ip, pod_ip=pod_ip, started=arrived, now=now),
        )
        runs_for = told.seconds(pod, told.RUNS_FOR)
        if runs_for is not None:
            self._later(now + timedelta(seconds=runs_for), lambda at: self._end(kubelet, pod, at))

    @staticmethod
    def _pod_ip(kubelet: _Kubelet) -> str:
        """An address nobody else has: a /22 of 100.64.0.0/10 for each machine, in order of arrival."""
        number = (kubelet.index << 10) + kubelet.addresses
        return f"100.{64 + (number >> 16) % 64}.{(number >> 8) & 255}.{number & 255}"

    def _end(self, kubelet: _Kubelet, pod: Obj, now: datetime) -> None:
        if not kubelet.silent and pod["metadata"]["uid"] in kubelet.pods:
            rewrite(self._store, kinds.PODS, pod, lambda latest: told.succeeded(latest, now=now))

    def _stop(self, kubelet: _Kubelet, pod: Obj, now: datetime) -> None:
        """Confirm the deletion once the containers have stopped, at the end of the grace period at the latest."""
        uid = pod["metadata"]["uid"]
        own = told.seconds(pod, told.STOPS_AFTER)
        known = kubelet.stopping.get(uid)
        if known is None:
            taken = Timing.draw(self._timing.stop, kubelet.rng) if own is None else timedelta(seconds=own)
            known = now + taken
        when = max(min(known, told.killed_at(pod)), now)
        if kubelet.stopping.get(uid) != when:
            kubelet.stopping[uid] = when
            self._later(when, lambda _at: self._confirm(kubelet, pod))

    def _confirm(self, kubelet: _Kubelet, pod: Obj) -> None:
        if not kubelet.silent and pod["metadata"]["uid"] in kubelet.stopping:
            remove(self._store, kinds.PODS, pod, grace=0)
