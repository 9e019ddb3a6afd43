"""All kubelets of the local world as one actor: machines register as nodes, and their pods start and stop.

A kubelet knows only the API and its machine, as a real one does. The durations of a machine are drawn from a seed and
its place in the order of launches, so that one seed gives one sequence of events.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from local.kubelets import devices, node_objects, pod_status
from local.kubelets.behavior import NORMAL, MachineBehavior, Timing
from local.kubelets.kubelet_configuration import JoinError
from local.kubelets.node_resources import allocatable, capacity
from local.kubelets.pod_resize import PodResizes
from local.kubelets.user_data import kubelet_configuration
from local.kubernetes import kinds
from local.kubernetes.agenda import Agenda
from local.kubernetes.conditions import condition_status
from local.kubernetes.errors import ApiError
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import delete, update
from shared.api.quantity import QuantityError
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubelets.kubelet_configuration import KubeletConfiguration
    from local.kubelets.machine import Machine, Machines
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store
    from shared.cluster.connect import ClusterInfo

INITIALIZATION_DELAY = timedelta(seconds=0.5)
"""How long the cloud provider takes to initialize a new node."""
NODE_DELETION_DELAY = timedelta(seconds=5)
"""How long the cloud provider takes to delete an unreachable node without an instance."""
HEARTBEAT = timedelta(seconds=10)
"""How often a kubelet renews its node's lease."""
_MEMORY_OVERHEAD = (0.05, 0.07)
_NODE_LEASES = "kube-node-lease"
_ENDED = frozenset({"Succeeded", "Failed"})


class _Kubelet(MutableStruct):
    """A machine's kubelet. ``pods`` are those bound to its node, by uid; ``started`` those it has begun to start.

    ``reboots`` is how many of EC2's reboots it has seen, ``boots`` how often its machine booted again.
    """

    machine: Machine
    store: Store
    index: int
    rng: random.Random
    behavior: MachineBehavior
    configuration: KubeletConfiguration | None = None
    ready: bool = False
    stopped: bool = False
    pods: dict[str, Obj] = {}
    started: set[str] = set()
    stopping: dict[str, datetime] = {}
    addresses: int = 1
    reboots: int = 0
    boots: int = 0

    @property
    def name(self) -> str:
        return self.machine.private_dns_name


class Kubelets:
    """The kubelets of all machines; ``failures`` has the reason for each machine that did not become a node."""

    def __init__(
        self,
        store: Store,
        machines: Machines,
        cluster: ClusterInfo,
        *,
        seed: int = 0,
        timing: Timing | None = None,
        behavior: Callable[[Machine], MachineBehavior] = lambda _machine: NORMAL,
        store_of_node: Callable[[str], Store] | None = None,
        heartbeat: timedelta | None = None,
        first_index: int = 0,
    ) -> None:
        """``behavior`` is called once for each machine.

        ``store_of_node`` gives the store that the kubelet of a node writes to, if that is another. ``heartbeat`` is
        the interval at which leases are renewed; without one they count as renewed until a kubelet stops.
        Pods' addresses follow from the number of their machine, which begins at ``first_index``.
        """
        self.failures: dict[str, str] = {}
        self._store = store
        self._machines = machines
        self._cluster = cluster
        self._seed = seed
        self._timing = timing or Timing()
        self._behavior = behavior
        self._store_of_node = store_of_node or (lambda _node: store)
        self._heartbeat = heartbeat
        self._informer = Informer(store, kinds.NODES, kinds.PODS)
        self._by_instance: dict[str, _Kubelet] = {}
        self._by_node: dict[str, _Kubelet] = {}
        self._stopped: dict[str, _Kubelet] = {}
        self._pods_of_unknown_nodes: dict[str, dict[str, Obj]] = {}
        self._agenda = Agenda()
        self._at = self._agenda.at
        self._machines_seen = first_index
        self._resizes = PodResizes(self._at)

    def due(self) -> datetime | None:
        """When the next delayed action is due."""
        return self._agenda.due()

    def step(self, now: datetime) -> bool:
        """Take in new machines and changes in the API, and do what is due."""
        before, added = self._store.version, self._agenda.added
        self._update_machines(now)
        for change in self._informer.pop_changes():
            self._handle(change, now)
        self._agenda.run(now)
        return self._store.version != before or self._agenda.added != added

    def set_ready(self, node: str, now: datetime, *, ready: bool) -> None:
        """Set a registered node Ready or NotReady, as a failing network plugin does.

        Raises:
            KeyError: no kubelet has registered that node.
        """
        self._set_ready(self._by_node[node], now, ready=ready)

    def stop_heartbeat(self, node: str, now: datetime) -> None:
        """Stop a node's kubelet while its machine keeps running.

        Raises:
            KeyError: no kubelet has registered that node.
        """
        self._stop_kubelet(self._by_node[node], now)

    # Machines

    def _update_machines(self, now: datetime) -> None:
        running = self._machines.running()
        present = {machine.instance_id for machine in running}
        for instance_id in [instance_id for instance_id in self._by_instance if instance_id not in present]:
            kubelet = self._by_instance.pop(instance_id)
            self._stop_kubelet(kubelet, now)
            if self._machines.is_stopped(instance_id):
                self._stopped[instance_id] = kubelet
        for machine in running:
            if machine.instance_id in self._stopped:
                kubelet = self._by_instance[machine.instance_id] = self._stopped.pop(machine.instance_id)
                self._restart(kubelet, now)
            elif machine.instance_id not in self._by_instance:
                self._machines_seen += 1
                rng = random.Random(f"{self._seed}/{self._machines_seen}")  # noqa: S311 (durations of a simulation)
                store = self._store_of_node(machine.private_dns_name)
                kubelet = _Kubelet(machine, store, self._machines_seen, rng, self._behavior(machine))
                self._by_instance[machine.instance_id] = kubelet
                self._boot(kubelet, now)
        for instance_id, reboots in self._machines.reboots().items():
            rebooting = self._by_instance.get(instance_id)
            if rebooting is not None and rebooting.reboots != reboots:
                self._stop_kubelet(rebooting, now)
                self._restart(rebooting, now)
                rebooting.reboots = reboots

    def _restart(self, kubelet: _Kubelet, now: datetime) -> None:
        """The machine boots again: its containers are gone, and its kubelet starts them once it is back."""
        kubelet.ready, kubelet.started = False, set()
        kubelet.boots += 1
        if self._by_node.get(kubelet.name) is not kubelet:
            kubelet.stopped = False
            self._boot(kubelet, now)  # it was stopped before it had joined
        elif not kubelet.behavior.never_returns:
            restart = Timing.draw(self._timing.restart, kubelet.rng)
            self._at(now + restart, partial(self._rejoin, kubelet, kubelet.boots))

    def _boot(self, kubelet: _Kubelet, now: datetime) -> None:
        machine = kubelet.machine
        if kubelet.behavior.never_joins:
            self.failures[machine.instance_id] = "the machine's behavior is never to join"
            return
        try:
            kubelet.configuration = kubelet_configuration(machine.user_data, self._cluster)
        except JoinError as error:
            self.failures[machine.instance_id] = str(error)
            return
        boot = Timing.draw(self._timing.boot, kubelet.rng) + kubelet.behavior.join_delay
        self._at(max(machine.launched_at + boot, now), lambda at: self._register(kubelet, at))

    def _stop_kubelet(self, kubelet: _Kubelet, now: datetime) -> None:
        if kubelet.stopped:
            return
        kubelet.stopped = True
        if self._heartbeat is not None:
            return
        lease = self._store.find(kinds.LEASES, kubelet.name, namespace=_NODE_LEASES)
        if lease is not None and self._by_node.get(kubelet.name) is kubelet:
            update(self._store, kinds.LEASES, lease, partial(node_objects.renewed, now=now, continuously=False))

    # The node

    def _register(self, kubelet: _Kubelet, now: datetime) -> None:
        machine, configuration = kubelet.machine, kubelet.configuration
        if kubelet.stopped or configuration is None:
            return
        drawn = Fraction(int(kubelet.rng.uniform(*_MEMORY_OVERHEAD) * 10_000), 10_000)
        node_capacity = capacity(machine, configuration, memory_overhead=drawn + kubelet.behavior.missing_memory)
        try:
            node_allocatable = allocatable(node_capacity, machine, configuration)
            node = kubelet.store.create(
                kinds.NODES,
                node_objects.registration(
                    machine,
                    configuration,
                    capacity=node_capacity,
                    allocatable=node_allocatable,
                    version=machine.kubernetes_version or self._cluster.version,
                    now=now,
                ),
            )
        except (ApiError, QuantityError) as error:
            self.failures[machine.instance_id] = f"the node can't register: {error}"
            return
        kubelet.store.create(
            kinds.LEASES,
            node_objects.lease(node, now, continuously=self._heartbeat is None),
            namespace=_NODE_LEASES,
        )
        kubelet.store.create(kinds.CSI_NODES, node_objects.csi_node(machine, node))
        if self._heartbeat is not None:
            self._at(now + self._heartbeat, lambda at: self._renew_lease(kubelet, at))
        self._by_node[kubelet.name] = kubelet
        for pod in self._pods_of_unknown_nodes.pop(kubelet.name, {}).values():
            self._sync_pod(kubelet, pod, now)
        self._at(now + INITIALIZATION_DELAY, lambda _at: self._initialize(node))
        if not kubelet.behavior.never_ready:
            ready = Timing.draw(self._timing.ready, kubelet.rng)
            self._at(now + ready, lambda at: self._set_ready(kubelet, at, ready=True))

    def _renew_lease(self, kubelet: _Kubelet, now: datetime) -> None:
        lease = self._store.find(kinds.LEASES, kubelet.name, namespace=_NODE_LEASES)
        if kubelet.stopped or lease is None or self._heartbeat is None:
            return
        update(kubelet.store, kinds.LEASES, lease, partial(node_objects.renewed, now=now, continuously=False))
        self._at(now + self._heartbeat, lambda at: self._renew_lease(kubelet, at))

    def _set_ready(self, kubelet: _Kubelet, now: datetime, *, ready: bool) -> None:
        """Update the node's Ready condition; its devices are reported once it is True."""
        node = self._own_node(kubelet)
        if kubelet.stopped or node is None:
            return
        reported = devices.registered_devices(kubelet.store, node, kubelet.machine, kubelet.behavior) if ready else {}
        change = partial(node_objects.with_ready, now=now, ready=ready, devices=reported)
        update(kubelet.store, kinds.NODES, node, change)
        kubelet.ready = ready
        for pod in list(kubelet.pods.values()):
            self._sync_pod(kubelet, pod, now)

    def _initialize(self, node: Obj) -> None:
        update(self._store, kinds.NODES, node, node_objects.initialized)

    def _own_node(self, kubelet: _Kubelet) -> Obj | None:
        """The kubelet's node; None if there is none, or another machine's by that name."""
        node = self._store.find(kinds.NODES, kubelet.name)
        return node if node is not None and node["spec"].get("providerID") == kubelet.machine.provider_id else None

    def _rejoin(self, kubelet: _Kubelet, boot: int, now: datetime) -> None:
        """The kubelet updates the node that it registered, where its options (taints) no longer apply, or a new one."""
        if kubelet.machine.instance_id not in self._by_instance or kubelet.boots != boot:
            return  # stopped or rebooted again meanwhile
        kubelet.stopped = False
        node = self._own_node(kubelet)
        if node is None:
            kubelet.pods, kubelet.stopping = {}, {}
            self._register(kubelet, now)
            return
        update(kubelet.store, kinds.NODES, node, partial(node_objects.booted, boot=boot))
        if (lease := self._store.find(kinds.LEASES, kubelet.name, namespace=_NODE_LEASES)) is not None:
            renew = partial(node_objects.renewed, now=now, continuously=self._heartbeat is None)
            update(kubelet.store, kinds.LEASES, lease, renew)
        if self._heartbeat is not None:
            self._at(now + self._heartbeat, lambda at: self._renew_lease(kubelet, at))
        self._set_ready(kubelet, now, ready=False)
        if not kubelet.behavior.never_ready:
            ready = Timing.draw(self._timing.ready, kubelet.rng)
            self._at(now + ready, lambda at: self._set_ready(kubelet, at, ready=True))

    # Changes in the API

    def _handle(self, change: Change, now: datetime) -> None:
        obj = change.object
        if change.kind.plural == "nodes":
            self._handle_node(obj, now, deleted=change.type == "DELETED")
            return
        node = obj["spec"].get("nodeName")
        if not node:
            return
        uid = obj["metadata"]["uid"]
        kubelet = self._by_node.get(node)
        if change.type == "DELETED" or obj["status"].get("phase") in _ENDED:
            self._pods_of_unknown_nodes.get(node, {}).pop(uid, None)
            if kubelet is not None:
                kubelet.pods.pop(uid, None)
                kubelet.started.discard(uid)
                kubelet.stopping.pop(uid, None)
                self._resizes.remove_pod(kubelet, uid, now)
        if change.type == "DELETED":
            return
        if kubelet is None:
            self._pods_of_unknown_nodes.setdefault(node, {})[uid] = obj
        else:
            self._sync_pod(kubelet, obj, now)

    def _handle_node(self, node: Obj, now: datetime, *, deleted: bool) -> None:
        name = node["metadata"]["name"]
        kubelet = self._by_node.get(name)
        if kubelet is None or node["spec"].get("providerID") != kubelet.machine.provider_id:
            return
        if (
            kubelet.stopped
            and not deleted
            and kubelet.machine.instance_id not in self._by_instance
            and condition_status(node, "Ready") == "Unknown"
            and "deletionTimestamp" not in node["metadata"]
        ):
            self._at(now + NODE_DELETION_DELAY, lambda _at: self._remove_node(kubelet, node))

    def _remove_node(self, kubelet: _Kubelet, node: Obj) -> None:
        """Delete an unreachable node, or taint it while its instance is stopped, as the cloud provider does."""
        if self._machines.is_stopped(kubelet.machine.instance_id):
            update(self._store, kinds.NODES, node, node_objects.shut_down)
        elif kubelet.machine.instance_id not in self._by_instance:
            delete(self._store, kinds.NODES, node)

    # Pods

    def _sync_pod(self, kubelet: _Kubelet, pod: Obj, now: datetime) -> None:
        """Start or stop the pod, unless the kubelet has stopped."""
        uid = pod["metadata"]["uid"]
        if pod["status"].get("phase") not in _ENDED:
            kubelet.pods[uid] = pod
        if kubelet.stopped:
            return
        self._resizes.sync(kubelet, pod, now)
        if "deletionTimestamp" in pod["metadata"]:
            self._stop(kubelet, pod, now)
        elif (
            uid not in kubelet.started and uid in kubelet.pods and (kubelet.ready or not pod_status.needs_network(pod))
        ):
            kubelet.started.add(uid)
            if pod["status"].get("phase") in ("Pending", "Running"):
                pull = Timing.draw(self._timing.pull, kubelet.rng)
                self._at(now + pull, lambda at: self._start(kubelet, pod, now, at))

    def _start(self, kubelet: _Kubelet, pod: Obj, arrived: datetime, now: datetime) -> None:
        uid = pod["metadata"]["uid"]
        if kubelet.stopped or uid not in kubelet.pods or "deletionTimestamp" in kubelet.pods[uid]["metadata"]:
            return
        host_ip = kubelet.machine.private_ip
        kubelet.addresses += 1
        pod_ip = host_ip if not pod_status.needs_network(pod) else pod_status.address(kubelet.index, kubelet.addresses)
        update(
            kubelet.store,
            kinds.PODS,
            pod,
            lambda latest: pod_status.running(latest, host_ip=host_ip, pod_ip=pod_ip, started=arrived, now=now),
        )
        runs_for = pod_status.runs_for(pod)
        if runs_for is not None:
            self._at(now + timedelta(seconds=runs_for), lambda at: self._complete(kubelet, pod, at))

    def _complete(self, kubelet: _Kubelet, pod: Obj, now: datetime) -> None:
        if not kubelet.stopped and pod["metadata"]["uid"] in kubelet.pods:
            update(kubelet.store, kinds.PODS, pod, lambda latest: pod_status.ended(latest, now=now))

    def _stop(self, kubelet: _Kubelet, pod: Obj, now: datetime) -> None:
        """Remove the pod once its containers have stopped, at the latest at the end of its grace period."""
        uid = pod["metadata"]["uid"]
        own_seconds = pod_status.seconds(pod, pod_status.STOPS_AFTER)
        stops_at = kubelet.stopping.get(uid)
        if stops_at is None:
            drawn = Timing.draw(self._timing.stop, kubelet.rng) if own_seconds is None else None
            stops_at = now + timedelta(seconds=pod_status.pre_stop_seconds(pod))
            stops_at += drawn or timedelta(seconds=own_seconds or 0)
        stops_at = max(min(stops_at, pod_status.killed_at(pod)), now)
        if kubelet.stopping.get(uid) != stops_at:
            kubelet.stopping[uid] = stops_at
            self._at(stops_at, lambda _at: self._remove_pod(kubelet, pod))

    def _remove_pod(self, kubelet: _Kubelet, pod: Obj) -> None:
        if not kubelet.stopped and pod["metadata"]["uid"] in kubelet.stopping:
            delete(kubelet.store, kinds.PODS, pod, grace_period=0)
