"""The pods that workloads in files ask for: Deployments, StatefulSets, ReplicaSets, Jobs and one run of CronJobs.

A workload that was read from a cluster, which its UID shows, has the pods that it has there; none are added for it. Nor
are those of its pods that are in the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import decoding, workloads
from cli.workloads import Workload
from shared.api.kubernetes import PersistentVolumeClaimSource, PodTemplate, Volume
from shared.api.meta import ApiStruct, ObjectMeta
from shared.api.storage import PersistentVolumeClaim, StorageClass
from shared.base.plurals import plural
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from cli.decoding import Raw
    from shared.api.kubernetes import Pod
    from shared.snapshot import InvalidObject


class _JobSpec(ApiStruct):
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


class _Job(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _JobSpec = _JobSpec()


class _JobTemplate(ApiStruct):
    spec: _JobSpec = _JobSpec()


class _CronJobSpec(ApiStruct):
    suspend: bool = False
    job_template: _JobTemplate = _JobTemplate()


class _CronJob(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _CronJobSpec = _CronJobSpec()


class _Ordinals(ApiStruct):
    start: int = 0


class _ReplicatedSpec(ApiStruct):
    """Of a Deployment, ReplicaSet or StatefulSet; the last two fields are a StatefulSet's."""

    replicas: int = 1
    template: PodTemplate = PodTemplate()
    volume_claim_templates: list[PersistentVolumeClaim] = []
    ordinals: _Ordinals = _Ordinals()


class _Replicated(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _ReplicatedSpec = _ReplicatedSpec()


_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
KINDS = (*workloads.KINDS, "Job", "CronJob")
USED_KINDS = frozenset(
    {
        *("Pod", "Node", "NodeClaim", "NodePool", "Provisioner", "DaemonSet", "LimitRange", "Namespace"),
        *("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSIDriver", "CSINode", "PodDisruptionBudget"),
        *("CapacityBuffer", "PodGroup", "PodTemplate", "ProvisioningRequest", "NodeOverlay", "RuntimeClass"),
    }
)
"""The kinds that a decision depends on, besides the workloads."""


class AddedPods(Struct, kw_only=True):
    """Pods of workloads with their claims, and a sentence on each kind of object without a part in the decision."""

    pods: tuple[Pod, ...]
    claims: tuple[PersistentVolumeClaim, ...]
    default_class: str
    notes: tuple[str, ...]

    def with_claims(self, listed: Sequence[PersistentVolumeClaim]) -> tuple[PersistentVolumeClaim, ...]:
        """The claims of the files, and those of StatefulSets that aren't among them, with the default class."""
        present = {(c.metadata.namespace or "default", c.metadata.name) for c in listed}
        own = (c for c in self.claims if (c.metadata.namespace, c.metadata.name) not in present)
        return tuple(_with_default_class(claim, self.default_class) for claim in (*listed, *own))


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
    claims: list[PersistentVolumeClaim] = []
    notes: list[str] = []
    classes = decoding.decode_objects(of_kind("StorageClass"), StorageClass, [])
    live = 0
    for workload, replicas, why_none, templates in _workloads(of_kind, invalid):
        if workload.is_live:
            live += 1
        elif why_none:
            notes.append(f"{workload.kind} {workload.namespace}/{workload.name}: no pods, because {why_none}")
        else:
            if templates and not classes:
                notes.append(
                    f"{workload.kind} {workload.namespace}/{workload.name}: its volumes count as possible in any zone, "
                    "because the files have no StorageClasses (kubectl get storageclasses -o yaml)"
                )
            for pod, own in _pods(workload, replicas, listed, templates if classes else ()):
                pods.append(pod)
                claims += own
    if live and not counts.get("Pod"):
        notes.append(
            f"{plural(live, 'workload')} of a cluster, but no pods: add those of `kubectl get pods -A -o json`"
        )
    notes += _left_out({kind: number for kind, number in counts.items() if kind not in used and kind not in KINDS})
    return AddedPods(pods=tuple(pods), claims=tuple(claims), default_class=_default_class(classes), notes=tuple(notes))


def _pods(
    workload: Workload, replicas: int, listed: Sequence[Pod], templates: Sequence[PersistentVolumeClaim]
) -> Iterator[tuple[Pod, tuple[PersistentVolumeClaim, ...]]]:
    """The workload's pods that aren't in the files, with the claims of each."""
    key = workload.kind, workload.namespace, workload.name
    present = {pod.metadata.name for pod in listed if workloads.controls(*key, pod)}
    template = workloads.pod_of(workload)
    first = workload.first_ordinal
    numbers = range(first, first + replicas) if workload.kind == "StatefulSet" else range(replicas - len(present))
    for name in (f"{workload.name}-{i}" for i in numbers):
        if name not in present:
            yield _with_claims(workloads.pending_pod(template, workload.namespace, name), templates)


def _left_out(ignored: dict[str, int]) -> Iterator[str]:
    """Sentences on the kinds that have no part in the decision."""
    if number := ignored.pop("NodeClass", 0):
        yield f"left out, because only EKS Auto Mode uses them: {number} NodeClass"
    if ignored:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(ignored.items()))
        yield f"left out, because scheduling doesn't depend on them: {kinds}"


def _workloads(
    of_kind: Callable[[str], Iterable[Raw]], invalid: list[InvalidObject]
) -> Iterator[tuple[Workload, int, str, Sequence[PersistentVolumeClaim]]]:
    """Each workload with the number of its pods, if that is none the reason, and the claims of each pod."""
    for kind in workloads.KINDS:
        for owner in decoding.decode_objects(of_kind(kind), _Replicated, invalid):
            replicas = owner.spec.replicas
            why = "" if replicas else "it has 0 replicas"
            workload = _workload(kind, owner.metadata, owner.spec.template)
            yield (
                with_fields(workload, first_ordinal=owner.spec.ordinals.start),
                replicas,
                why,
                owner.spec.volume_claim_templates,
            )
    for job in decoding.decode_objects(of_kind("Job"), _Job, invalid):
        why = "it is suspended" if job.spec.suspend else "" if job.spec.pods else "its parallelism or completions is 0"
        yield _workload("Job", job.metadata, job.spec.template), job.spec.pods, why, ()
    for cron in decoding.decode_objects(of_kind("CronJob"), _CronJob, invalid):
        job_spec = cron.spec.job_template.spec
        why = "it is suspended" if cron.spec.suspend else "" if job_spec.pods else "its jobs have none"
        yield _workload("CronJob", cron.metadata, job_spec.template), job_spec.pods, why, ()


def _default_class(classes: Iterable[StorageClass]) -> str:
    """The newest of the default StorageClasses, as the API server chooses it; empty if there is none."""
    defaults = [c for c in classes if c.metadata.annotations.get(_DEFAULT_CLASS) == "true"]
    newest_last = sorted(defaults, key=lambda c: str(c.metadata.creation_timestamp or ""))
    return newest_last[-1].metadata.name if newest_last else ""


def _with_default_class(claim: PersistentVolumeClaim, name: str) -> PersistentVolumeClaim:
    if not name or claim.spec.storage_class_name is not None or claim.spec.volume_name:
        return claim
    spec = with_fields(claim.spec, storage_class_name=name)
    return with_fields(claim, spec=spec)


def _with_claims(pod: Pod, templates: Sequence[PersistentVolumeClaim]) -> tuple[Pod, tuple[PersistentVolumeClaim, ...]]:
    """The pod with the volumes of a StatefulSet's claims, and these; they take the place of volumes of their name."""
    if not templates:
        return pod, ()
    claims = tuple(
        with_fields(
            template,
            metadata=with_fields(
                template.metadata,
                name=f"{template.metadata.name}-{pod.metadata.name}",
                namespace=pod.metadata.namespace,
            ),
        )
        for template in templates
    )
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    for template, claim in zip(templates, claims, strict=True):
        source = PersistentVolumeClaimSource(claim_name=claim.metadata.name)
        volumes[template.metadata.name] = Volume(name=template.metadata.name, persistent_volume_claim=source)
    spec = with_fields(pod.spec, volumes=list(volumes.values()))
    return with_fields(pod, spec=spec), claims


def _workload(kind: str, metadata: ObjectMeta, template: PodTemplate) -> Workload:
    return Workload(
        kind=kind,
        namespace=metadata.namespace or "default",
        name=metadata.name,
        template=template,
        is_live=bool(metadata.uid),
    )
