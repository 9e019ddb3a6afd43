"""Metrics of pods that haven't ended. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cli.export import families
from cli.export.exposition import Sample, sample
from shared.api import labels as names
from shared.api.pods import is_provisionable, is_terminal, waited

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.api.kubernetes import Node, Pod
    from shared.snapshot import Snapshot


def samples(snapshot: Snapshot, *, by_pod: bool) -> Iterator[Sample]:
    """All metrics of pods; ``by_pod``: with a sample for each pod."""
    nodes = {node.metadata.name: node for node in snapshot.nodes}
    pods = [pod for pod in snapshot.pods if not is_terminal(pod)]
    counts: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        node = nodes.get(pod.spec.node_name)
        pool = node.metadata.labels.get(names.NODEPOOL, "") if node is not None else ""
        counts[pool, pod.status.phase] += 1
        if by_pod:
            yield sample(families.PODS_STATE, 1, **_labels(pod, node))
    for (pool, phase), count in sorted(counts.items()):
        yield sample(families.PODS, count, nodepool=pool, phase=phase)
    waits = [waited(pod, now=snapshot.taken_at) for pod in pods if is_provisionable(pod)]
    yield sample(families.PENDING, len(waits))
    yield sample(families.OLDEST_PENDING, max(waits, default=0.0))


def _labels(pod: Pod, node: Node | None) -> Mapping[str, str]:
    labels = node.metadata.labels if node is not None else {}
    return {
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace or "default",
        "owner": _owner(pod),
        "node": pod.spec.node_name,
        "nodepool": labels.get(names.NODEPOOL, ""),
        "zone": labels.get(names.ZONE, ""),
        "arch": labels.get(names.ARCH, ""),
        "capacity_type": labels.get(names.CAPACITY_TYPE, ""),
        "instance_type": labels.get(names.INSTANCE_TYPE, ""),
        "phase": pod.status.phase,
    }


def _owner(pod: Pod) -> str:
    """The path of the first owner, as Karpenter writes it."""
    if not pod.metadata.owner_references:
        return ""
    owner = pod.metadata.owner_references[0]
    namespace = pod.metadata.namespace or "default"
    return f"/apis/{owner.api_version}/namespaces/{namespace}/{owner.kind.lower()}s/{owner.name}"
