"""The snapshot of objects by kind, as files have them: a snapshot's only way from objects that no API server lists.

An object that can't be read is reported by itself; the others are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cli import decoding, manifest_pods
from cli.runtime_classes import admitted_pods, with_runtime_classes
from shared.api import nodeclaim
from shared.api.daemon_set import DaemonSet
from shared.api.kubernetes import Namespace, Node, PodDisruptionBudget
from shared.api.limit_range import LimitRange
from shared.api.nodeclaim import NodeClaim
from shared.api.runtime_class import RuntimeClass
from shared.api.storage import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from shared.cluster.node_class_groups import foreign_pools
from shared.cluster.snapshot_reader import (
    cluster_limits,
    convert_node_classes,
    convert_node_overlays,
    convert_node_pools,
)
from shared.snapshot import InvalidObject, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from cli.decoding import Raw
    from shared.scheduling.decision import UnschedulableReason

    NodeClaims = tuple[tuple[NodeClaim, ...], list[InvalidObject]]
    """The NodeClaims, and the invalid ones."""

T = TypeVar("T")


def current_node_claims(raw_objects: Iterable[Raw]) -> NodeClaims:
    """Those of the current version: others are of a cluster whose Karpenter launches its nodes."""
    invalid: list[InvalidObject] = []
    claims = decoding.decode_objects(raw_objects, NodeClaim, invalid)
    return tuple(c for c in claims if c.api_version == nodeclaim.API_VERSION), invalid


def snapshot_of(
    by_kind: Mapping[str, Sequence[Raw]],
    *,
    now: datetime,
    used: Collection[str],
    refused: dict[str, UnschedulableReason],
    node_claims: Callable[[Iterable[Raw]], NodeClaims] = current_node_claims,
) -> tuple[Snapshot, tuple[str, ...]]:
    """The snapshot of these objects with pods for their workloads, and notes on what was left out.

    Of kinds that aren't workloads, those that are ``used`` are read. Pods that can't be read are added to ``refused``.
    """
    invalid: list[InvalidObject] = []

    def all_of(kind: str) -> Sequence[Raw]:
        return by_kind.get(kind, ())

    def of(kind: str) -> Sequence[Raw]:
        return all_of(kind) if kind in used else ()

    def mappings(*kinds: str) -> list[dict[str, object]]:
        return [decoding.as_mapping(raw) for kind in kinds for raw in of(kind)]

    def objects(kind: type[T]) -> tuple[T, ...]:
        return decoding.decode_objects(of(kind.__name__), kind, invalid)

    raw_pools = mappings("NodePool", "Provisioner")
    node_pools, invalid_pools = convert_node_pools(raw_pools)
    node_classes, invalid_classes = convert_node_classes(mappings("EC2NodeClass", "AWSNodeTemplate"))
    overlays, invalid_overlays = convert_node_overlays(mappings("NodeOverlay"))
    claims, invalid_claims = node_claims(of("NodeClaim"))
    invalid += [*invalid_pools, *invalid_classes, *invalid_overlays, *invalid_claims]
    listed = decoding.decode_pods(of("Pod"), refused)
    counts = {kind: len(raw) for kind, raw in by_kind.items()}
    added = manifest_pods.added_pods(all_of, listed, counts, used, invalid)
    runtime_classes = objects(RuntimeClass)
    pods = admitted_pods((*listed, *added.pods), runtime_classes, refused)
    templates = decoding.pod_templates(all_of, invalid)
    requested = decoding.decode_requests(all_of, templates, pods, invalid, now=now)
    snapshot = Snapshot(
        taken_at=now,
        pods=pods,
        nodes=objects(Node),
        node_claims=claims,
        node_pools=node_pools,
        node_classes=node_classes,
        node_overlays=overlays,
        daemon_sets=with_runtime_classes(objects(DaemonSet), runtime_classes),
        limit_ranges=objects(LimitRange),
        namespaces=objects(Namespace),
        persistent_volumes=objects(PersistentVolume),
        persistent_volume_claims=added.with_claims(objects(PersistentVolumeClaim)),
        storage_classes=objects(StorageClass),
        csi_nodes=objects(CSINode),
        csi_drivers=objects(CSIDriver),
        volume_attachments=objects(VolumeAttachment),
        pod_disruption_budgets=objects(PodDisruptionBudget),
        capacity_buffers=(*decoding.decode_buffers(all_of, templates, invalid), *requested.buffers),
        pod_groups={**decoding.decode_pod_groups(all_of, invalid), **requested.pod_groups},
        invalid=tuple(invalid),
        foreign_pools=foreign_pools(raw_pools),
        cluster_limits=cluster_limits(raw_pools),
    )
    return snapshot, added.notes
