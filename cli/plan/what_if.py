"""What-if changes to a cluster: other replica counts, other NodePools or NodeOverlays, missing capacity.

A change only affects the snapshot; the plan for it is computed as for a cluster in that state.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cli import workloads
from cli.cluster import manifest_reader, offerings
from cli.cluster.observed_cluster import with_snapshot
from cli.errors import UsageError
from shared.api.labels import offering_key
from shared.api.meta import NamedObject
from shared.api.pods import is_reschedulable
from shared.base.struct import Struct, with_fields
from shared.cluster.snapshot_reader import (
    convert_node_classes,
    convert_node_overlays,
    convert_node_pools,
    limits_of_annotations,
)
from shared.disruption.budgets import budget_problems

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.kubernetes import Pod
    from shared.snapshot import Snapshot

T = TypeVar("T", bound=NamedObject)
_KINDS = {
    "deployment": "deployment", "deploy": "deployment", "deployments": "deployment",
    "statefulset": "statefulset", "sts": "statefulset", "statefulsets": "statefulset",
    "replicaset": "replicaset", "rs": "replicaset", "replicasets": "replicaset",
}  # fmt: skip
_REPLICAS = re.compile(r"[0-9]{1,6}")
_MAX_SIMILAR = 5
_FORMS = (
    "deployment/NAME=REPLICAS, statefulset/NAME=REPLICAS (NAME may be NAMESPACE/NAME), nodepool=FILE or "
    "nodeoverlay=FILE"
)


class ScaleWorkload(Struct, kw_only=True):
    """Another number of replicas for a workload."""

    kind: str
    namespace: str
    name: str
    replicas: int


class ApplyFile(Struct, kw_only=True):
    """The NodePools, node classes and NodeOverlays of a file are applied."""

    path: Path


Change = ScaleWorkload | ApplyFile


def parse(text: str, *, namespace: str) -> Change:
    """``deployment/web=50``, ``nodepool=FILE`` or ``nodeoverlay=FILE``.

    Raises:
        UsageError: the text has neither form.
    """
    target, equals, value = text.partition("=")
    if equals and target.lower() in {"nodepool", "provisioner", "nodeoverlay"} and value:
        return ApplyFile(path=Path(value))
    kind, _, name = target.partition("/")
    if equals and name and kind.lower() in _KINDS and _REPLICAS.fullmatch(value):
        prefix, slash, name = name.rpartition("/")
        return ScaleWorkload(
            kind=_KINDS[kind.lower()], namespace=prefix if slash else namespace, name=name, replicas=int(value)
        )
    raise UsageError(f'--what-if "{text}" is not of the form {_FORMS}')


def apply(observed: ObservedCluster, changes: Iterable[Change]) -> ObservedCluster:
    """The cluster with all changes.

    Raises:
        UsageError: a workload doesn't exist, or a file has no valid NodePool, node class or NodeOverlay.
    """
    for change in changes:
        observed = _scale(observed, change) if isinstance(change, ScaleWorkload) else _apply_file(observed, change)
    return observed


def nodes_of(snapshot: Snapshot, words: Collection[str]) -> tuple[str, ...]:
    """The nodes of these capacity types, zones, instance types or families."""
    return tuple(n.metadata.name for n in snapshot.nodes if offerings.matches(words, *offering_key(n.metadata.labels)))


def _scale(observed: ObservedCluster, change: ScaleWorkload) -> ObservedCluster:
    pods = observed.snapshot.pods
    is_counted = [
        workloads.controls(change.kind, change.namespace, change.name, p) and is_reschedulable(p) for p in pods
    ]
    own_pods = [p for p, counted in zip(pods, is_counted, strict=True) if counted]
    other_pods = [p for p, counted in zip(pods, is_counted, strict=True) if not counted]
    if len(own_pods) >= change.replicas:
        own_pods = sorted(own_pods, key=_deletion_order)[: change.replicas]
    else:
        template = _pod_template(observed, change, own_pods)
        missing = change.replicas - len(own_pods)
        names = (f"{change.name}-what-if-{i}" for i in range(missing))
        own_pods += [workloads.pending_pod(template, change.namespace, name) for name in names]
    return with_snapshot(observed, with_fields(observed.snapshot, pods=(*other_pods, *own_pods)))


def _deletion_order(pod: Pod) -> tuple[bool, float, str]:
    """Pods with a node stay first, then the oldest, as the ReplicaSet controller chooses."""
    created = pod.metadata.creation_timestamp
    return not pod.spec.node_name, created.timestamp() if created is not None else 0.0, pod.key


def _pod_template(observed: ObservedCluster, change: ScaleWorkload, own_pods: list[Pod]) -> Pod:
    if own_pods:
        return own_pods[0]
    workload = observed.workloads.get((change.kind, change.namespace, change.name))
    if workload is None or workload.template is None:
        raise UsageError(
            f"there is no {change.kind} {change.namespace}/{change.name} and no pod of it"
            f"{_similar(observed, change)}; files must contain its pods or the {change.kind} itself"
        )
    return workloads.pod_of(workload)


def _similar(observed: ObservedCluster, change: ScaleWorkload) -> str:
    there = sorted({f"{namespace}/{name}" for kind, namespace, name in observed.workloads if kind == change.kind})
    if not there:
        return ""
    return f" (there: {', '.join(there[:_MAX_SIMILAR])}{', …' if len(there) > _MAX_SIMILAR else ''})"


def _apply_file(observed: ObservedCluster, change: ApplyFile) -> ObservedCluster:
    objects = manifest_reader.read_objects(change.path)
    node_pools, invalid_pools = convert_node_pools(manifest_reader.as_mappings(objects, "NodePool", "Provisioner"))
    node_classes, invalid_classes = convert_node_classes(
        manifest_reader.as_mappings(objects, "EC2NodeClass", "AWSNodeTemplate")
    )
    overlays, invalid_overlays = convert_node_overlays(manifest_reader.as_mappings(objects, "NodeOverlay"))
    invalid = (*invalid_pools, *invalid_classes, *invalid_overlays)
    if invalid:
        raise UsageError(f"{change.path}: {invalid[0].ref}: {invalid[0].problems[0]}")
    budgets = [(pool.ref, problem) for pool in node_pools for problem in budget_problems(pool)]
    if budgets:
        raise UsageError(f"{change.path}: {budgets[0][0]}: {budgets[0][1]}")
    if not node_pools and not node_classes and not overlays:
        raise UsageError(f"{change.path}: holds no NodePool, Provisioner, EC2NodeClass, AWSNodeTemplate or NodeOverlay")
    snapshot = observed.snapshot
    changed_pools = _with_changed(snapshot.node_pools, node_pools)
    statuses = {c.name: c.status for c in snapshot.node_classes}
    with_status = (with_fields(c, status=statuses.get(c.name, c.status)) for c in node_classes)
    return with_snapshot(
        observed,
        with_fields(
            snapshot,
            node_pools=changed_pools,
            cluster_limits=limits_of_annotations(pool.metadata.annotations for pool in changed_pools),
            node_classes=_with_changed(snapshot.node_classes, tuple(with_status)),
            node_overlays=_with_changed(snapshot.node_overlays, overlays),
        ),
    )


def _with_changed(current: tuple[T, ...], changed: tuple[T, ...]) -> tuple[T, ...]:
    """The objects, where those of the same name are replaced by the changed ones."""
    replaced = {obj.name for obj in changed}
    return (*(obj for obj in current if obj.name not in replaced), *changed)
