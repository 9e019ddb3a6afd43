"""Which pods may not be spot, so that no more of a workload's pods than its share are (``tenon.sh/spot-share``).

Of all pods of a workload, the share rounded down may be spot. Those that run on spot nodes, or are planned for them,
use it up; of the pods that need a node now, the first by name may have the rest, and the others get nodes that aren't
spot. So a pod that replaces an interrupted one is spot again, and one that consolidation moves stays on-demand where
the share is used up. Pods that may be spot needn't be: where spot has no capacity, they run on-demand.

Pure; imported only where a pod that needs a node has the annotation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pods import is_terminal, is_terminating
from shared.api.spot_share import spot_share, workload_key
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.kubernetes import Pod
    from shared.api.spot_share import WorkloadKey
    from shared.scheduling.state.state_nodes import StateNode
    from shared.snapshot import Snapshot


class SpotUse(Struct, kw_only=True):
    """A workload's pods, how many of them are spot, and how many may be."""

    pods: int
    spot: int
    most: int


def pods_not_on_spot(
    snapshot: Snapshot,
    scheduled: Iterable[Pod],
    planned: Mapping[str, Sequence[str]],
    nodes: Iterable[StateNode],
) -> frozenset[str]:
    """Those of the pods (namespace/name) that get a node which isn't spot.

    ``scheduled`` need a node now, also those of leaving nodes. ``planned`` are pods by the name of the node that an
    earlier decision planned for them; ``nodes`` have those that are coming.
    """
    by_workload: dict[WorkloadKey, list[Pod]] = {}
    shares: dict[WorkloadKey, int] = {}
    for pod in scheduled:
        workload, percent = workload_key(pod), spot_share(pod)
        if workload is not None and percent is not None:
            by_workload.setdefault(workload, []).append(pod)
            shares[workload] = min(percent, shares.get(workload, percent))
    coming = {node.name: node for node in nodes if node.name in planned}
    planned_spot = {
        key for name, keys in planned.items() if name in coming and _may_be_spot(coming[name]) for key in keys
    }
    moved = {pod.key for pods in by_workload.values() for pod in pods}
    uses = _uses(snapshot, shares, without=moved, planned_spot=planned_spot)
    restricted: set[str] = set()
    for workload, pods in by_workload.items():
        use = uses[workload]
        keys = sorted(pod.key for pod in pods)
        restricted.update(keys[max(0, use.most - use.spot) :])
    return frozenset(restricted)


def spot_use(snapshot: Snapshot, pod: Pod) -> SpotUse | None:
    """What runs now of the pod's workload; None if the pod has no valid share."""
    workload, percent = workload_key(pod), spot_share(pod)
    if workload is None or percent is None:
        return None
    return _uses(snapshot, {workload: percent}, without=(), planned_spot=())[workload]


def _uses(
    snapshot: Snapshot, shares: Mapping[WorkloadKey, int], *, without: Iterable[str], planned_spot: Iterable[str]
) -> dict[WorkloadKey, SpotUse]:
    """The workloads' pods; of those ``without`` it doesn't count where they run."""
    spot_nodes = {n.metadata.name for n in snapshot.nodes if names.offering_key(n.metadata.labels)[2] == names.SPOT}
    moved, on_coming_spot = frozenset(without), frozenset(planned_spot)
    pods: Counter[WorkloadKey] = Counter()
    spot: Counter[WorkloadKey] = Counter()
    for pod in snapshot.pods:
        workload = workload_key(pod)
        if workload not in shares or workload is None or is_terminal(pod) or is_terminating(pod):
            continue
        pods[workload] += 1
        if pod.key not in moved:
            spot[workload] += pod.spec.node_name in spot_nodes or pod.key in on_coming_spot
    return {
        workload: SpotUse(pods=pods[workload], spot=spot[workload], most=pods[workload] * percent // 100)
        for workload, percent in shares.items()
    }


def _may_be_spot(node: StateNode) -> bool:
    """Whether the node is spot, or a NodeClaim that isn't launched yet and may become spot."""
    if node.node_pool and names.CAPACITY_TYPE not in node.labels:
        return True
    return names.offering_key(node.labels)[2] == names.SPOT
