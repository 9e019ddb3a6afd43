"""Which nodes may be chosen at all: the rules that hold for every voluntary disruption.

Reference: karpenter.md, section 5. A node without a valid pool is nobody's to decide about; what is told to users is
what they can change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pods import controller, is_mirror, is_protected, is_reschedulable
from shared.disruption.command import Blocker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.disruption.cluster_state import ClusterState


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A node that is in use or could be: initialized, not going, of a valid pool.

    ``pods`` are those that need a place elsewhere when it goes.
    """

    claim: NodeClaim
    node: Node
    pool: NodePool
    pods: tuple[Pod, ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name


def all_candidates(view: ClusterState) -> Iterator[Candidate]:
    """All candidates, by claim; nothing is said yet about what stands in their way."""
    for claim, node in view.initialized:
        pool = view.pools.get(node.metadata.labels.get(names.NODEPOOL, ""))
        if pool is None or pool.metadata.deletion_timestamp is not None:
            continue
        pods = view.pods.get(node.metadata.name, ())
        yield Candidate(claim=claim, node=node, pool=pool, pods=tuple(p for p in pods if is_reschedulable(p)))


def dynamic_candidates(view: ClusterState) -> Iterator[Candidate]:
    """Those whose pools follow pods, by claim."""
    return (c for c in all_candidates(view) if c.pool.spec.replicas is None)


def static_candidates(view: ClusterState) -> Iterator[Candidate]:
    """Those whose pools have a fixed number of nodes (``replicas``), by claim."""
    return (c for c in all_candidates(view) if c.pool.spec.replicas is not None)


def do_not_disrupt_blocker(view: ClusterState, candidate: Candidate) -> Blocker | None:
    """By which annotation a user keeps the node; None when by none."""
    for o, by in ((candidate.node, f"Node {candidate.name}"), (candidate.claim, f"NodeClaim {candidate.claim.name}")):
        if is_protected(o.metadata.annotations, since=o.metadata.creation_timestamp, now=view.now):
            return Blocker(message=f"annotation {names.DO_NOT_DISRUPT} is set", by=by)
    for pod in view.pods.get(candidate.name, ()):
        since = pod.status.start_time or pod.metadata.creation_timestamp
        if not is_mirror(pod) and is_protected(pod.metadata.annotations, since=since, now=view.now):
            return Blocker(message=f"pod {pod.key} has annotation {names.DO_NOT_DISRUPT}", by=f"Pod {pod.key}")
    return None


def disruption_blocker(view: ClusterState, candidate: Candidate) -> Blocker | None:
    """What stands in the way of moving the node's pods; None when nothing does."""
    if {candidate.name, candidate.claim.name} & view.nominated:
        return Blocker(message="pods are about to use it", by=f"Node {candidate.name}")
    kept = do_not_disrupt_blocker(view, candidate)
    if kept is not None:
        return kept
    for pod in candidate.pods:
        if controller(pod.metadata) is None:
            message = f"pod {pod.key} has no controller, so nobody would bring it back"
            return Blocker(message=message, by=f"Pod {pod.key}")
        held = view.pod_disruption_budgets.eviction_blocker(pod)
        if held is not None:
            return held
    return None
