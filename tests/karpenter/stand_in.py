"""What Karpenter's suites want of Karpenter itself: a Deployment in kube-system, on a node that was there before.

Specs change the Deployment's environment and wait until a new pod holds Karpenter's Lease; those of the performance
suite read the metrics of that pod's process. Nothing of Tenon runs in the pod, and its environment changes nothing:
what Karpenter's feature gates turn on for all NodePools, annotations turn on for a NodePool of Tenon's.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Self
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, make_wsgi_app

from local.aws.account import SERVICE_CIDR
from local.kubelets.kubelets import HEARTBEAT, Kubelets
from local.kubelets.machine import Machine
from local.kubernetes import kinds
from local.kubernetes.conditions import condition_status
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import update_status
from local.world.event_loop import BackgroundLoop
from shared.api.yaml_documents import writer
from shared.cluster.connect import ClusterInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store
    from local.world import World

NAMESPACE, LEASE, NODE = "kube-system", "karpenter-leader-election", "system"
METRICS_PORT = 8080
_LIMIT = timedelta(minutes=5)
_INSTANCE = "app.kubernetes.io/instance"
_LABELS = {_INSTANCE: "karpenter", "app.kubernetes.io/name": "karpenter"}
_NODE_GROUP = {"eks.amazonaws.com/nodegroup": NODE}
_TAINT = {"key": "CriticalAddonsOnly", "effect": "NoSchedule"}
_ELSEWHERE = ("192.0.2.1", 9)


class StandIn:
    """A context manager: while entered, the world has the node, the Deployment and the Lease.

    With ``port_forward``, the binary of tests/karpenter/suite/port_forward, the pod serves metrics on port 8080 of this
    machine, to which the API server proxies and forwards. One cluster at a time can have them.
    """

    def __init__(self, world: World, *, port_forward: Path | None = None) -> None:
        self._world = world
        self._port_forward = port_forward
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        world, address = self._world, own_address()
        cluster = _cluster_info(world)
        machine = _machine(cluster, address=address, now=world.clock.now())
        kubelets = Kubelets(
            world.store,
            _OneMachine(machine),
            cluster,
            store_of_node=world.control_plane.store_of_node,
            heartbeat=HEARTBEAT,
        )
        with contextlib.ExitStack() as stack:
            port = None
            if self._port_forward is not None:
                stack.enter_context(_served_metrics(address))
                port = stack.enter_context(_forwarded_ports(self._port_forward, address))
            election = _Election(world.store, kubelet_port=port)
            stack.enter_context(BackgroundLoop(world.clock, [kubelets, election]))
            world.apply(deployment())
            world.run_until(
                lambda: world.store.find(kinds.LEASES, LEASE, namespace=NAMESPACE) is not None, limit=_LIMIT
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Election:
    """An actor that has the newest Ready pod of the Deployment hold the Lease, as its leader election would."""

    def __init__(self, store: Store, *, kubelet_port: int | None) -> None:
        self._store = store
        self._informer = Informer(store, kinds.PODS, kinds.NODES)
        self._kubelet_port = kubelet_port
        self._pods: dict[str, Obj] = {}
        self._holder = ""

    def due(self) -> datetime | None:
        """Never: it acts on changes only."""
        return None

    def step(self, now: datetime) -> bool:
        """Take in changes of pods, and change the Lease's holder if it is gone."""
        del now
        changes = self._informer.pop_changes()
        for change in changes:
            meta = change.object["metadata"]
            if change.kind.resource == kinds.NODES.resource:
                self._point_to_kubelet(change.object)
            elif (meta.get("labels") or {}).get(_INSTANCE) == "karpenter":
                self._pods.pop(meta["name"], None)
                if change.type != "DELETED" and _is_running(change.object):
                    self._pods[meta["name"]] = change.object
        if self._pods and self._holder not in self._pods:
            self._hold(max(self._pods.values(), key=lambda pod: str(pod["metadata"]["creationTimestamp"])))
        return bool(changes)

    def _hold(self, pod: Obj) -> None:
        self._holder = pod["metadata"]["name"]
        spec = {"holderIdentity": f"{self._holder}_{pod['metadata']['uid']}"}
        if self._store.find(kinds.LEASES, LEASE, namespace=NAMESPACE) is None:
            self._store.create(kinds.LEASES, {"metadata": {"name": LEASE}, "spec": spec}, namespace=NAMESPACE)
        else:
            self._store.patch(kinds.LEASES, LEASE, {"spec": spec}, namespace=NAMESPACE)

    def _point_to_kubelet(self, node: Obj) -> None:
        """Say in the node's status where the API server finds its kubelet: by address, as no DNS knows the name."""
        if self._kubelet_port is None or node["metadata"]["name"] != NODE:
            return
        endpoints = {"kubeletEndpoint": {"Port": self._kubelet_port}}
        if node["status"].get("daemonEndpoints") != endpoints:
            addresses = [address for address in node["status"]["addresses"] if address["type"] == "InternalIP"]
            update_status(self._store, kinds.NODES, node, daemonEndpoints=endpoints, addresses=addresses)


class _OneMachine:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def running(self) -> Sequence[Machine]:
        return (self._machine,)

    def is_stopped(self, instance_id: str) -> bool:
        del instance_id
        return False

    def reboots(self) -> Mapping[str, int]:
        return {}


def deployment() -> Obj:
    """Karpenter's Deployment, as far as its suites read it: its name, one container and their environment."""
    container = {"name": "controller", "image": "stand-in", "env": []}
    pod = {
        "containers": [container],
        "hostNetwork": True,
        "nodeSelector": _NODE_GROUP,
        "tolerations": [{"key": _TAINT["key"], "operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": NAMESPACE, "labels": _LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def own_address() -> str:
    """This machine's address to others: the API server proxies to no loopback address. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)
        return str(probe.getsockname()[0])


def _is_running(pod: Obj) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and condition_status(pod, "Ready") == "True"


def _cluster_info(world: World) -> ClusterInfo:
    return ClusterInfo(
        name=world.cluster,
        endpoint=world.control_plane.url,
        certificate_authority=base64.b64encode(world.control_plane.certificate_authority.encode()).decode(),
        version=world.options.version,
        service_cidr=SERVICE_CIDR,
        region=world.region,
    )


def _machine(cluster: ClusterInfo, *, address: str, now: datetime) -> Machine:
    """A machine of a node group that keeps all pods away but those of the system."""
    labels = ",".join(f"{key}={value}" for key, value in _NODE_GROUP.items())
    config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": cluster.name,
                "apiServerEndpoint": cluster.endpoint,
                "certificateAuthority": cluster.certificate_authority,
                "cidr": cluster.service_cidr,
            },
            "kubelet": {"config": {"registerWithTaints": [_TAINT]}, "flags": [f"--node-labels={labels}"]},
        },
    }
    return Machine(
        instance_id="i-0000000000000000a",
        instance_type="m5.large",
        zone=f"{cluster.region}a",
        image_id="ami-0000000000000000a",
        user_data=writer.text(config),
        private_dns_name=NODE,
        private_ip=address,
        launched_at=now,
        vcpus=2,
        memory_mib=8192,
    )


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """A scrape isn't news."""


@contextlib.contextmanager
def _served_metrics(address: str) -> Iterator[None]:
    """The metrics of this process, which is Tenon's functions, the kubelets and the local AWS together.

    Specs want the live heap of a Go process, too. The whole resident memory is in its place.
    """
    registry = CollectorRegistry()
    process = ProcessCollector(registry=registry)
    heap = Gauge("go_gc_heap_live_bytes", "The resident memory of a process that isn't Go's.", registry=registry)
    heap.set_function(
        lambda: next(m.samples[0].value for m in process.collect() if m.name == "process_resident_memory_bytes")
    )
    server = make_server(address, METRICS_PORT, make_wsgi_app(registry), handler_class=_Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _forwarded_ports(binary: Path, address: str) -> Iterator[int]:
    """The port of the process that forwards connections to ports of this machine; it ends with the context."""
    process = subprocess.Popen([binary, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
