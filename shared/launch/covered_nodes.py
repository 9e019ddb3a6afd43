"""Which of a cluster's nodes commitments cover, and what is left for its next ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pods import is_daemon, is_mirror, is_terminal
from shared.commitments.coverage import own_coverage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.commitments.commitment import Commitments, InstanceKind
    from shared.commitments.coverage import OwnCoverage
    from shared.snapshot import Snapshot

_EKS_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"


def cluster_coverage(
    snapshot: Snapshot, commitments: Commitments, *, cluster: str, share: float | None = None
) -> OwnCoverage:
    """The coverage of the cluster's nodes, by the names of NodeClaims and of nodes without one.

    Nodes that Tenon doesn't manage are covered first, then those with the most pods: they stay the longest. NodeClaims
    that aren't launched yet count as the first instance type that they list, if they may only be on demand.
    """
    pods = _pod_counts(snapshot)
    claimed = {c.status.node_name for c in snapshot.node_claims if c.status.node_name}
    unmanaged = [(n.metadata.name, _kind(n.metadata.labels)) for n in snapshot.nodes if n.metadata.name not in claimed]
    own = [
        (claim.name, _kind(claim.metadata.labels) or _kind_to_launch(claim))
        for claim in sorted(snapshot.node_claims, key=lambda c: (-pods.get(c.status.node_name, 0), c.name))
    ]
    nodes = [(name, kind) for name, kind in (*sorted(unmanaged), *own) if kind is not None]
    return own_coverage(commitments, nodes, cluster=cluster, share=share)


def _pod_counts(snapshot: Snapshot) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for pod in snapshot.pods:
        if pod.spec.node_name and not (is_terminal(pod) or is_daemon(pod) or is_mirror(pod)):
            counts[pod.spec.node_name] = counts.get(pod.spec.node_name, 0) + 1
    return counts


def _kind(labels: Mapping[str, str]) -> InstanceKind | None:
    """The type and zone of an instance with these labels; None for spot instances, and where no type is known."""
    capacity_type = labels.get(names.CAPACITY_TYPE) or labels.get(_EKS_CAPACITY_TYPE, "")
    instance_type = labels.get(names.INSTANCE_TYPE, "")
    if not instance_type or capacity_type.lower() == names.SPOT:
        return None
    return instance_type, labels.get(names.ZONE, "")


def _kind_to_launch(claim: NodeClaim) -> InstanceKind | None:
    values = {r.key: r.values for r in claim.spec.requirements if r.operator == "In"}
    types, zones = values.get(names.INSTANCE_TYPE, []), values.get(names.ZONE, [])
    if values.get(names.CAPACITY_TYPE) != [names.ON_DEMAND] or not types:
        return None
    return types[0], zones[0] if len(zones) == 1 else ""
