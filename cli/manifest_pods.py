"""The pods that workloads in files ask for: Deployments, StatefulSets, ReplicaSets, Jobs and one run of CronJobs.

A workload that was read from a cluster, which its UID shows, has the pods that it has there; none are added for it. Nor
are those of its pods that are in the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli import decoding, workloads
from cli.workloads import Workload
from shared.api.kubernetes import PodTemplate
from shared.api.meta import ObjectMeta, Struct
from shared.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from cli.decoding import Raw
    from shared.api.kubernetes import Pod
    from shared.snapshot import InvalidObject


class _JobSpec(Struct):
    parallelism: int = 1
    completions: int | None = None
    suspend: bool = False
    template: PodTemplate = PodTemplate()

    @property
    def pods(self) -> int:
        """How many pods run at once."""
        if self.suspend:
            return 0
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)


class _Job(Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _JobSpec = _JobSpec()


class _JobTemplate(Struct):
    spec: _JobSpec = _JobSpec()


class _CronJobSpec(Struct):
    suspend: bool = False
    job_template: _JobTemplate = _JobTemplate()


class _CronJob(Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _CronJobSpec = _CronJobSpec()


class _ReplicatedSpec(Struct):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class _Replicated(Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _ReplicatedSpec = _ReplicatedSpec()


KINDS = (*workloads.KINDS, "Job", "CronJob")
USED_KINDS = frozenset(
    {
        *("Pod", "Node", "NodeClaim", "NodePool", "Provisioner", "DaemonSet", "LimitRange", "Namespace"),
        *("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "PodDisruptionBudget"),
        *("CapacityBuffer", "PodTemplate", "NodeOverlay"),
    }
)
"""The kinds that a decision depends on, besides the workloads."""


@dataclass(frozen=True, kw_only=True)
class AddedPods:
    """Pods of workloads, and one sentence on each kind of object that has no part in the decision, and why."""

    pods: tuple[Pod, ...]
    notes: tuple[str, ...]


def added_pods(
    of_kind: Callable[[str], Iterable[Raw]],
    listed: Sequence[Pod],
    counts: Mapping[str, int],
    used: Collection[str],
    invalid: list[InvalidObject],
) -> AddedPods:
    """The pods that the workloads of the files ask for.

    ``of_kind`` gives the files' objects, ``listed`` are their pods, ``counts`` their numbers by kind, and ``used`` the
    kinds that the caller uses.
    Workloads that can't be decoded are appended to ``invalid``.
    """
    pods: list[Pod] = []
    notes: list[str] = []
    live = 0
    for workload, replicas, why_none in _workloads(of_kind, invalid):
        if workload.is_live:
            live += 1
        elif why_none:
            notes.append(f"{workload.kind} {workload.namespace}/{workload.name}: no pods, because {why_none}")
        else:
            key = workload.kind, workload.namespace, workload.name
            present = sum(workloads.controls(*key, pod) for pod in listed)
            template = workloads.pod_of(workload)
            names = (f"{workload.name}-{i}" for i in range(replicas - present))
            pods.extend(workloads.pending_pod(template, workload.namespace, name) for name in names)
    if live and not counts.get("Pod"):
        notes.append(
            f"{plural(live, 'workload')} of a cluster, but no pods: add those of `kubectl get pods -A -o json`"
        )
    ignored = {kind: number for kind, number in counts.items() if kind not in used and kind not in KINDS}
    if ignored:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(ignored.items()))
        notes.append(f"left out, because scheduling doesn't depend on them: {kinds}")
    return AddedPods(pods=tuple(pods), notes=tuple(notes))


def _workloads(
    of_kind: Callable[[str], Iterable[Raw]], invalid: list[InvalidObject]
) -> Iterator[tuple[Workload, int, str]]:
    """Each workload with the number of its pods and, if that is none, the reason."""
    for kind in workloads.KINDS:
        for owner in decoding.decode_objects(of_kind(kind), _Replicated, invalid):
            replicas = owner.spec.replicas
            why = "" if replicas else "it has 0 replicas"
            yield (
                _workload(kind, owner.metadata, owner.spec.template),
                replicas,
                "" if replicas else "it has 0 replicas",
            )
    for job in decoding.decode_objects(of_kind("Job"), _Job, invalid):
        why = "it is suspended" if job.spec.suspend else "" if job.spec.pods else "its parallelism or completions is 0"
        yield _workload("Job", job.metadata, job.spec.template), job.spec.pods, why
    for cron in decoding.decode_objects(of_kind("CronJob"), _CronJob, invalid):
        job_spec = cron.spec.job_template.spec
        why = "it is suspended" if cron.spec.suspend else "" if job_spec.pods else "its jobs have none"
        yield _workload("CronJob", cron.metadata, job_spec.template), job_spec.pods, why


def _workload(kind: str, metadata: ObjectMeta, template: PodTemplate) -> Workload:
    return Workload(
        kind=kind,
        namespace=metadata.namespace or "default",
        name=metadata.name,
        template=template,
        is_live=bool(metadata.uid),
    )
