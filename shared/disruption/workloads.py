"""Workloads: the Deployments, StatefulSets, Jobs and so on that a snapshot's pods belong to, and their load.

Pods name their owners, so no other object has to be read. Their number is what was desired of a workload, except while
it is being updated.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.meta import ApiStruct
from shared.api.pods import controller, is_daemon, is_mirror, is_terminal, is_terminating, requests
from shared.api.quantity import QuantityError
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.kubernetes import Pod
    from shared.snapshot import Snapshot

_MIB = 2**20
_TEMPLATE_HASHES = ("pod-template-hash", "rollouts-pod-template-hash")
"""Labels of a Deployment's pods, and of an Argo Rollout's."""
_CRON_JOB_NAME = re.compile(r"(?P<cron>.+)-\d{8,10}")
"""A CronJob's Jobs are named after it and their scheduled minute. Source: kube-controller-manager."""
_SCALED_AT_ONCE = ("Deployment ", "ReplicaSet ")
"""Workloads that create a successor as soon as a pod is deleted, so that fewer pods mean fewer desired ones."""


class Load(ApiStruct):
    """Requested resources: milli-cpu and MiB."""

    cpu: int = 0
    memory: int = 0

    def plus(self, load: Load, times: int = 1) -> Load:
        """The sum of this load and ``times`` the given one."""
        return Load(cpu=self.cpu + times * load.cpu, memory=self.memory + times * load.memory)

    def share_of(self, total: Load) -> float:
        """The larger of the shares of cpu and of memory; 0 of nothing."""
        return max(self.cpu / total.cpu if total.cpu else 0.0, self.memory / total.memory if total.memory else 0.0)


class Workload(ApiStruct):
    """A workload's pods: how many, what one of them requests, and the NodePool that most of them run on."""

    pods: int
    requests: Load = Load()
    pool: str = ""


def workload_of(pod: Pod) -> str:
    """The workload that a pod belongs to, as kind and name; empty for a pod without a controller.

    ReplicaSets with a pod-template-hash count as their Deployment, so that a rolling update is no scale-in; Jobs with a
    CronJob's name count as the CronJob, so that its next run is known as its return.
    """
    owner = controller(pod.metadata)
    if owner is None:
        return ""
    kind, name = owner.kind, owner.name
    template_hash = next((pod.metadata.labels[key] for key in _TEMPLATE_HASHES if key in pod.metadata.labels), "")
    if kind == "ReplicaSet" and template_hash and name.endswith(f"-{template_hash}"):
        kind, name = "Deployment", name.removesuffix(f"-{template_hash}")
    elif kind == "Job" and (cron := _CRON_JOB_NAME.fullmatch(name)):
        kind, name = "CronJob", cron["cron"]
    return f"{kind} {pod.metadata.namespace or 'default'}/{name}"


class CurrentWorkloads(Struct, kw_only=True):
    """All workloads of a snapshot by kind and name; ``changing`` names those whose number of pods isn't final.

    A rolling update has pods of two ReplicaSets, and more than usual. Deployments that recreate their pods have only
    terminating ones for a while; StatefulSets recreate each pod when it is gone. A Deployment with some terminating and
    some other pods, all of one ReplicaSet, was scaled in.
    """

    workloads: Mapping[str, Workload]
    changing: frozenset[str]


def current_workloads(snapshot: Snapshot) -> CurrentWorkloads:
    """The workloads now. Pending pods count: they are desired, and a moved pod is pending for a while."""
    pools = {n.metadata.name: n.metadata.labels.get(names.NODEPOOL, "") for n in snapshot.nodes}
    counts: Counter[str] = Counter()
    examples: dict[str, Pod] = {}
    owners: dict[str, str] = {}
    changing: set[str] = set()
    terminating: set[str] = set()
    pods_by_pool: dict[str, Counter[str]] = {}
    for pod in snapshot.pods:
        if is_daemon(pod) or is_mirror(pod) or is_terminal(pod) or not (workload := workload_of(pod)):
            continue
        if is_terminating(pod):
            terminating.add(workload)
            continue
        owner = controller(pod.metadata)
        if owner is not None and owners.setdefault(workload, owner.uid) != owner.uid:
            changing.add(workload)
        counts[workload] += 1
        examples.setdefault(workload, pod)
        if pool := pools.get(pod.spec.node_name, ""):
            pods_by_pool.setdefault(workload, Counter())[pool] += 1
    workloads = {
        workload: Workload(pods=count, requests=_load_of(examples[workload]), pool=_most_common(pods_by_pool, workload))
        for workload, count in counts.items()
    }
    changing |= {key for key in terminating if key not in counts or not key.startswith(_SCALED_AT_ONCE)}
    return CurrentWorkloads(workloads=workloads, changing=frozenset(changing))


def pool_loads(workloads: Mapping[str, Workload]) -> dict[str, Load]:
    """The load of each NodePool; a workload counts where most of its pods run."""
    loads: dict[str, Load] = {}
    for workload in workloads.values():
        if workload.pool:
            loads[workload.pool] = loads.get(workload.pool, Load()).plus(workload.requests, workload.pods)
    return loads


def _load_of(pod: Pod) -> Load:
    try:
        requested = requests(pod)
    except QuantityError:
        return Load()
    return Load(cpu=requested.get("cpu", 0), memory=-(-requested.get("memory", 0) // _MIB))


def _most_common(pods_by_pool: Mapping[str, Counter[str]], workload: str) -> str:
    counts = pods_by_pool.get(workload)
    return counts.most_common(1)[0][0] if counts else ""
