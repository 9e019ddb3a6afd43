"""A cluster of the local world without its API server: the store, its controllers, kubelets and test machines."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import yaml

from local.kubelets.behavior import NORMAL, MachineBehavior, Timing
from local.kubelets.kubelets import Kubelets
from local.kubelets.machine import Machine
from local.kubernetes import kinds
from local.kubernetes.control_plane import controllers
from local.kubernetes.registry.store import Store
from shared.cluster.connect import ClusterInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.kinds import Kind

Json = dict[str, Any]

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
CLUSTER = ClusterInfo(
    name="demo",
    endpoint="https://127.0.0.1:6443",
    certificate_authority="Q0E=",
    version="1.34",
    service_cidr="10.100.0.0/16",
    region="us-east-1",
)


def node_config(
    *, name: str = "demo", endpoint: str = CLUSTER.endpoint, flags: tuple[str, ...] = (), **config: object
) -> str:
    cluster = {
        "name": name,
        "apiServerEndpoint": endpoint,
        "certificateAuthority": CLUSTER.certificate_authority,
        "cidr": CLUSTER.service_cidr,
    }
    spec = {"cluster": cluster, "kubelet": {"flags": list(flags), "config": config}}
    return yaml.safe_dump({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec})


class Cloud:
    """Machines that a test starts and stops."""

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self.stopped: set[str] = set()
        self.rebooted: dict[str, int] = {}

    def running(self) -> list[Machine]:
        return self.machines

    def is_stopped(self, instance_id: str) -> bool:
        return instance_id in self.stopped

    def reboots(self) -> dict[str, int]:
        return self.rebooted


class Environment:
    """One cluster on a clock that skips to the next due time."""

    def __init__(
        self, *, behavior: Callable[[Machine], MachineBehavior] = lambda _machine: NORMAL, seed: int = 0
    ) -> None:
        self.now = START
        self.store = Store(now=lambda: self.now, rng=random.Random(seed))  # noqa: S311 (uids of a test)
        self.cloud = Cloud()
        timing = Timing(boot=(20, 35), ready=(3, 6), pull=(1, 2), stop=(1, 1))
        self.kubelets = Kubelets(self.store, self.cloud, CLUSTER, seed=seed, timing=timing, behavior=behavior)
        self.actors = [*controllers(self.store, seed=seed), self.kubelets]

    def settle(self, *, limit: timedelta = timedelta(minutes=10)) -> None:
        """Until nothing is due within the limit."""
        self.run(until=self.now + limit, stay=True)

    def run(self, *, until: datetime | None = None, seconds: float = 0, stay: bool = False) -> None:
        """Run for that long; with ``stay`` the clock stays at the last action."""
        end = until or self.now + timedelta(seconds=seconds)
        while True:
            stepped = [actor.step(self.now) for actor in self.actors]
            if any(stepped):
                continue
            due = min((d for actor in self.actors if (d := actor.due()) is not None), default=None)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
        if not stay:
            self.now = end

    def machine(self, name: str, **fields: Any) -> Machine:
        zone = fields.pop("zone", "us-east-1a")
        user_data = fields.pop("user_data", node_config())
        values: Json = {
            "instance_type": "m5.large",
            "image_id": "ami-1",
            "vcpus": 2,
            "memory_mib": 8192,
            "max_pods": 29,
            **fields,
        }
        machine = Machine(
            instance_id=f"i-{name}",
            zone=zone,
            user_data=user_data,
            private_dns_name=f"{name}.ec2.internal",
            launched_at=self.now,
            **values,
        )
        self.cloud.machines.append(machine)
        return machine

    def stop(self, name: str) -> None:
        self.cloud.machines = [m for m in self.cloud.machines if m.instance_id != f"i-{name}"]

    def node(
        self, name: str, *, zone: str = "us-east-1a", taints: list[Json] | None = None, gpus: int = 0, **size: str
    ) -> Json:
        """A Ready node without a machine."""
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "kubernetes.io/os": "linux"}
        allocatable = {"cpu": "2", "memory": "8Gi", "pods": "29", "nvidia.com/gpu": str(gpus), **size}
        node = self.store.create(
            kinds.NODES,
            {
                "metadata": {"name": name, "labels": labels},
                "status": {
                    "capacity": allocatable,
                    "allocatable": allocatable,
                    "conditions": [
                        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T08:00:00Z"},
                    ],
                },
            },
        )
        return self.store.patch(kinds.NODES, node["metadata"]["name"], {"spec": {"taints": taints}})

    def pod(self, name: str, *, labels: Json | None = None, cpu: str = "100m", **spec: Any) -> Json:
        namespace = spec.pop("namespace", "default")
        annotations = spec.pop("annotations", {})
        container = {"name": "main", "image": "web:1", "resources": {"requests": {"cpu": cpu}}}
        container |= spec.pop("container", {})
        body = {
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations},
            "spec": {"containers": [container], **spec},
        }
        return self.store.create(kinds.PODS, body, namespace=namespace)

    def workload(
        self,
        kind: Kind,
        name: str,
        *,
        template: Json | None = None,
        annotations: Json | None = None,
        **spec: object,
    ) -> Json:
        """Create a workload; ``template`` are fields of its pods' spec, ``annotations`` the pods'."""
        pod = {"containers": [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "100m"}}}]}
        body = {
            "metadata": {"name": name},
            "spec": {
                **({} if kind == kinds.JOBS else {"selector": {"matchLabels": {"app": name}}}),
                "template": {
                    "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                    "spec": {**pod, **(template or {})},
                },
                **spec,
            },
        }
        return self.store.create(kind, body, namespace="default")

    def get(self, kind: Kind, name: str, namespace: str = "default") -> Json:
        return self.store.get(kind, name, namespace=namespace if kind.namespaced else "")

    def patch(self, kind: Kind, name: str, patch: Json, namespace: str = "default") -> Json:
        return self.store.patch(kind, name, patch, namespace=namespace if kind.namespaced else "", patch_type="merge")

    def pods(self, app: str = "") -> list[Json]:
        return self.store.list(kinds.PODS, labels=f"app={app}" if app else "")

    def node_of(self, pod: str) -> str:
        name: str = self.get(kinds.PODS, pod)["spec"].get("nodeName", "")
        return name

    def unschedulable_reason(self, pod: str) -> tuple[str, str]:
        """Reason and message of the pod's PodScheduled=False."""
        conditions = self.get(kinds.PODS, pod)["status"].get("conditions", [])
        condition = next(c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False")
        return condition["reason"], condition["message"].partition(". preemption:")[0]

    def taints(self, node: str) -> set[tuple[str, str]]:
        return {(t["key"], t["effect"]) for t in self.get(kinds.NODES, node)["spec"].get("taints", [])}

    def exists(self, kind: Kind, name: str, namespace: str = "default") -> bool:
        return self.store.find(kind, name, namespace=namespace if kind.namespaced else "") is not None
