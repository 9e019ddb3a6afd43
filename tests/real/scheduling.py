"""A scheduler's cluster without kubelets, either embedded in virtual time or real, for problems that both solve.

Nodes are objects that report Ready. They join with a taint, which is removed when a problem says so, because the real
node lifecycle controller needs a moment for its own taint.
"""

from __future__ import annotations

import contextlib
import random
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from local.kubernetes import kinds
from local.kubernetes.control_plane import controllers
from local.kubernetes.errors import ApiError
from local.kubernetes.objects import timestamp
from local.kubernetes.registry.store import Store
from local.kubernetes.scheduler.scheduler import VERSION
from shared.api.labels import HOSTNAME, ZONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from local.kubernetes.kinds import Kind
Json = dict[str, Any]

HELD = {"key": "example.com/held", "effect": "NoSchedule"}
START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
_SECONDS_QUIET = 1.5
"""How long no pod of a real cluster must change for its scheduler to be done."""
_SECONDS_TO_SETTLE = 60


class Cluster(Protocol):
    """A cluster with a scheduler."""

    store: Store

    def settle(self) -> None:
        """Until the scheduler has tried every pod that it tries without a further change."""
        ...

    def wait(self, seconds: float) -> None:
        """Let that much of the cluster's time pass."""
        ...


class EmbeddedCluster:
    """The local world's scheduler and controllers on a clock of their own."""

    def __init__(self, seed: int = 0, *, version: str = VERSION) -> None:
        self._now = START
        self.store = Store(now=lambda: self._now, rng=random.Random(seed))  # noqa: S311 (uids of a test)
        self._actors = controllers(self.store, seed=seed, version=version)

    def settle(self) -> None:
        """Step everything that is due within a few seconds."""
        self.wait(3)

    def wait(self, seconds: float) -> None:
        """Step everything that is due until then."""
        end = self._now + timedelta(seconds=seconds)
        while True:
            stepped = [actor.step(self._now) for actor in self._actors]
            if any(stepped):
                continue
            due = min((time for actor in self._actors if (time := actor.due()) is not None), default=end)
            if due > end:
                break
            self._now = max(self._now + timedelta(milliseconds=1), due)
            if self._now > end:
                break
        self._now = end


class RealCluster:
    """A real control plane behind the store's interface; its scheduler has no nodes or pods of others."""

    def __init__(self, store: Store, version: str, pending_pods: Callable[[], dict[str, int]]) -> None:
        self.store = store
        self.version = version
        self._pending_pods = pending_pods

    def settle(self) -> None:
        """Until each pod is bound or unschedulable, none is in backoff, and nothing has changed for a while."""
        end = time.monotonic() + _SECONDS_TO_SETTLE
        seen, since = "", time.monotonic()
        while time.monotonic() < end:
            pods = self.store.list(kinds.PODS)
            now_seen = str([obj["metadata"]["resourceVersion"] for obj in [*pods, *self.store.list(kinds.NODES)]])
            if now_seen != seen:
                seen, since = now_seen, time.monotonic()
            if all(map(_is_tried, pods)) and time.monotonic() - since > _SECONDS_QUIET and not self._is_to_try_pods():
                return
            time.sleep(0.05)
        raise TimeoutError("the real scheduler is not done")

    def _is_to_try_pods(self) -> bool:
        waiting = self._pending_pods()
        return waiting["active"] + waiting["backoff"] > 0

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def clear(self) -> None:
        """Delete all workloads, pods and nodes."""
        self._delete_all(kinds.DEPLOYMENTS, kinds.REPLICA_SETS)
        until(lambda: not self.store.list(kinds.REPLICA_SETS))
        self._delete_all(kinds.PODS, kinds.NODES)
        until(lambda: not self.store.list(kinds.PODS) and not self.store.list(kinds.NODES))
        self._delete_all(kinds.PERSISTENT_VOLUME_CLAIMS, kinds.PERSISTENT_VOLUMES)
        until(lambda: not self.store.list(kinds.PERSISTENT_VOLUMES))

    def _delete_all(self, *of_kinds: Kind) -> None:
        for kind in of_kinds:
            for obj in self.store.list(kind):
                meta = obj["metadata"]
                with contextlib.suppress(ApiError):  # the garbage collector was first
                    namespace = meta.get("namespace", "")
                    self.store.delete(kind, meta["name"], namespace=namespace, grace_period_seconds=0)


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait in real time until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)


def _is_tried(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or []
    return bool(pod["spec"].get("nodeName")) or any(c["type"] == "PodScheduled" for c in conditions)


def add_node(
    cluster: Cluster,
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    zone: str = "a",
    labels: Json | None = None,
    taints: Iterable[Json] = (),
    held: bool = False,
) -> None:
    """Add a node that reports Ready; wait until only its own taints are left, and the held one if asked for."""
    taints = list(taints)
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    create_node(cluster, name, allocatable, labels={HOSTNAME: name, ZONE: zone, **(labels or {})}, taints=taints)
    settle_node(cluster, name, len(taints))
    if not held:
        release(cluster, name)


def create_node(cluster: Cluster, name: str, allocatable: Json, *, labels: Json, taints: Iterable[Json]) -> None:
    """Create a node that reports Ready, held back from the scheduler until it is released."""
    now = timestamp(cluster.store.now())
    node = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [*taints, HELD]},
        "status": {
            "capacity": allocatable,
            "allocatable": allocatable,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
        },
    }
    cluster.store.create(kinds.NODES, node)


def settle_node(cluster: Cluster, name: str, own_taints: int) -> None:
    """Wait until the node has only its own taints and the held one."""
    wait_until(cluster, lambda: len(_taints(cluster, name)) == own_taints + 1)


def wait_until(cluster: Cluster, condition: Callable[[], bool]) -> None:
    """Let the cluster's time pass until the condition holds.

    Raises:
        TimeoutError: it doesn't hold in 20 s.
    """
    for _ in range(1000):
        if condition():
            return
        cluster.wait(0.02)
    raise TimeoutError


def release(cluster: Cluster, *names: str) -> None:
    """Remove the held taint of nodes, one right after the other."""
    for name in names:
        taints = [taint for taint in _taints(cluster, name) if taint["key"] != HELD["key"]]
        cluster.store.patch(kinds.NODES, name, {"spec": {"taints": taints or None}}, patch_type="merge")


def _taints(cluster: Cluster, name: str) -> list[Json]:
    taints: list[Json] = cluster.store.get(kinds.NODES, name)["spec"].get("taints") or []
    return taints


def add_pod(
    cluster: Cluster,
    name: str,
    *,
    cpu: str = "",
    memory: str = "",
    labels: Json | None = None,
    priority_class: str = "",
    **spec: Any,
) -> None:
    """Create a pod in the default namespace."""
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    body = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "containers": [{"name": "main", "image": "web:1", "resources": {"requests": requests}}],
            **({"priorityClassName": priority_class} if priority_class else {}),
            **spec,
        },
    }
    cluster.store.create(kinds.PODS, body, namespace="default")


def create_pod(cluster: Cluster, pod: Json) -> None:
    """Create the pod in its namespace, whose service account a real cluster makes a moment after it."""
    for _ in range(100):
        try:
            cluster.store.create(kinds.PODS, pod, namespace=pod["metadata"]["namespace"])
        except ApiError as error:
            if "service account" not in str(error):
                raise
            cluster.wait(0.05)
        else:
            return
    raise TimeoutError(pod["metadata"]["name"])


def add_deployment(cluster: Cluster, name: str, replicas: int, *, cpu: str, memory: str = "", **spec: Any) -> None:
    """Create a Deployment in the default namespace; its pods have the label app=NAME."""
    requests = {"cpu": cpu, **({"memory": memory} if memory else {})}
    container = {"name": "main", "image": "web:1", "resources": {"requests": requests}}
    body = {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}},
        },
    }
    cluster.store.create(kinds.DEPLOYMENTS, body, namespace="default")


def add_priority_class(cluster: Cluster, name: str, value: int, **fields: str) -> None:
    """Create a PriorityClass unless it exists."""
    if cluster.store.find(kinds.PRIORITY_CLASSES, name) is None:
        cluster.store.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, **fields})


def nominate(cluster: Cluster, pod: str, node: str) -> None:
    """Set the pod's ``status.nominatedNodeName``."""
    patch = {"status": {"nominatedNodeName": node}}
    cluster.store.patch(kinds.PODS, pod, patch, namespace="default", subresource="status", patch_type="merge")


def placement(cluster: Cluster) -> dict[str, str]:
    """The node of each pod by the pod's name; "" for a pending one."""
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in cluster.store.list(kinds.PODS)}


def nominations(cluster: Cluster) -> dict[str, str]:
    """The nominated node of each pending pod that has one."""
    return {
        pod["metadata"]["name"]: node
        for pod in cluster.store.list(kinds.PODS)
        if (node := pod["status"].get("nominatedNodeName")) and not pod["spec"].get("nodeName")
    }
