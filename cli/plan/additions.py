"""Objects of files that are added to a cluster before it is planned for, as `kubectl apply` would create them.

Workloads get the pods that they ask for. Those that the cluster has already are refused: another number of replicas is
a change of ``--what-if``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from cli import decoding, manifest_pods, workloads
from cli.cluster import manifest_reader
from cli.errors import UsageError
from cli.object_snapshot import snapshot_of
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.decoding import Raw
    from shared.api.meta import ObjectMeta
    from shared.scheduling.decision import UnschedulableReason
    from shared.snapshot import Snapshot


class _Object(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=_Object)
_NAMESPACED = frozenset(
    {
        *manifest_pods.KINDS,
        "Pod",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "CapacityBuffer",
        "PodGroup",
        "PodTemplate",
        "ProvisioningRequest",
    }
)


def add(observed: ObservedCluster, paths: Iterable[Path], *, namespace: str) -> ObservedCluster:
    """The cluster with the objects of the files; those without a namespace are of ``namespace``.

    Raises:
        UsageError: a file can't be read, has an invalid object, or one that the cluster has already.
    """
    for path in paths:
        observed = _with_file(observed, path, namespace)
    return observed


def _with_file(observed: ObservedCluster, path: Path, namespace: str) -> ObservedCluster:
    by_kind = {
        kind: [_in_namespace(raw, namespace) if kind in _NAMESPACED else raw for raw in objects]
        for kind, objects in manifest_reader.read_objects(path).items()
    }
    _check_new(observed, by_kind, path)
    refused: dict[str, UnschedulableReason] = {}
    added, notes = snapshot_of(by_kind, now=observed.now, used=manifest_reader.USED_KINDS, refused=refused)
    problems = [f"{i.ref}: {i.problems[0]}" for i in added.invalid]
    problems += [f"Pod {key}: {reason.message}" for key, reason in refused.items()]
    if problems:
        raise UsageError(f"{path}: {problems[0]}")
    present = {pod.key for pod in observed.snapshot.pods}
    if twice := sorted(pod.key for pod in added.pods if pod.key in present):
        raise UsageError(f"{path}: the cluster has pod {twice[0]} already")
    return with_fields(
        observed,
        snapshot=_joined(observed.snapshot, added),
        notes=(*observed.notes, *(f"{path.name}: {note}" for note in notes)),
    )


def _in_namespace(raw: Raw, namespace: str) -> Raw:
    obj = decoding.as_mapping(raw)
    return {**obj, "metadata": {"namespace": namespace, **(obj.get("metadata") or {})}}


def _check_new(observed: ObservedCluster, by_kind: dict[str, list[Raw]], path: Path) -> None:
    """Refuse workloads that the cluster has."""
    for kind in workloads.KINDS:
        for raw in by_kind.get(kind, ()):
            metadata = decoding.as_mapping(raw)["metadata"]
            key = kind.lower(), str(metadata["namespace"]), str(metadata.get("name", ""))
            if key in observed.workloads or any(workloads.controls(*key, pod) for pod in observed.snapshot.pods):
                target = f"{key[0]}/{key[1]}/{key[2]}"
                raise UsageError(f"{path}: the cluster has {target} already; --what-if {target}=N changes its replicas")


def _joined(before: Snapshot, added: Snapshot) -> Snapshot:
    """The snapshot with the added objects, in place of those with the same name."""
    buffers = {b.key: b for b in (*before.capacity_buffers, *added.capacity_buffers)}
    return with_fields(
        before,
        pods=(*before.pods, *added.pods),
        node_pools=_replaced(before.node_pools, added.node_pools),
        node_classes=_replaced(before.node_classes, added.node_classes),
        node_overlays=_replaced(before.node_overlays, added.node_overlays),
        daemon_sets=_replaced(before.daemon_sets, added.daemon_sets),
        namespaces=_replaced(before.namespaces, added.namespaces),
        persistent_volumes=_replaced(before.persistent_volumes, added.persistent_volumes),
        persistent_volume_claims=_replaced(before.persistent_volume_claims, added.persistent_volume_claims),
        storage_classes=_replaced(before.storage_classes, added.storage_classes),
        pod_disruption_budgets=_replaced(before.pod_disruption_budgets, added.pod_disruption_budgets),
        capacity_buffers=tuple(buffers.values()),
        pod_groups={**before.pod_groups, **added.pod_groups},
    )


def _replaced(before: tuple[T, ...], added: tuple[T, ...]) -> tuple[T, ...]:
    by_name = {(o.metadata.namespace, o.metadata.name): o for o in (*before, *added)}
    return tuple(by_name.values())
