"""Disruption candidates: the rules that every voluntary disruption checks, and why a node isn't a candidate.

A candidate is an initialized node (:func:`initialized_nodes`) of a valid NodePool (:func:`all_candidates`); for node
repair it needn't be initialized (:func:`registered_candidates`). Even so, it may be blocked
(:func:`disruption_blocker`): by a nomination, a do-not-disrupt annotation, a PodDisruptionBudget, or, where its
NodePool says so, a pod without a controller. Reference: docs/facts/karpenter.md, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true
from shared.api.nodeclaim import is_rebooting
from shared.api.pods import controller, is_mirror, is_protected, is_terminal, pod_group_key
from shared.base.struct import Struct
from shared.disruption.command import BlockedCandidate, Blocker, Removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.api.pod_references import PodGroupKey
    from shared.disruption.disruption_state import DisruptionState
    from shared.snapshot import Snapshot


PODS_WITHOUT_CONTROLLER = "tenon.sh/pods-without-controller"
"""Annotation on a NodePool: "block" keeps nodes with a pod that nothing would recreate. By default such pods are
evicted like all others, as by Karpenter."""


class Candidate(Struct, kw_only=True):
    """A node of a valid NodePool that isn't being disrupted.

    ``pods`` are the reschedulable pods on it.
    """

    claim: NodeClaim
    node: Node
    pool: NodePool
    pods: tuple[Pod, ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    def removal(self, *, reason: str, message: str) -> Removal:
        """Its removal, with the pods that move."""
        pods = tuple(p.key for p in self.pods)
        return Removal(claim=self.claim.name, node=self.name, reason=reason, message=message, pods=pods)

    def blocked(self, blocker: Blocker, *, reason: str, savings: float | None = None) -> BlockedCandidate:
        """The candidate as blocked; ``savings`` is USD per hour that its removal would save."""
        return BlockedCandidate(
            claim=self.claim.name,
            node=self.name,
            reason=reason,
            blocker=blocker,
            savings=savings,
            pods=len(self.pods),
        )


def initialized_nodes(state: DisruptionState) -> Iterator[tuple[NodeClaim, Node]]:
    """The initialized claims that are neither deleted, disrupted nor rebooting, each with its node, sorted by claim."""
    return _nodes_with_condition(state, nodeclaim.INITIALIZED)


def all_candidates(state: DisruptionState) -> Iterator[Candidate]:
    """All candidates, sorted by claim, blocked ones too; none of paused NodePools and of zones shifted away."""
    return _candidates(state, initialized_nodes(state))


def registered_candidates(state: DisruptionState) -> Iterator[Candidate]:
    """As :func:`all_candidates`, with nodes that have registered and aren't initialized, or no longer."""
    return _candidates(state, _nodes_with_condition(state, nodeclaim.REGISTERED))


def _nodes_with_condition(state: DisruptionState, condition: str) -> Iterator[tuple[NodeClaim, Node]]:
    nodes = {n.spec.provider_id: n for n in state.snapshot.nodes if n.metadata.deletion_timestamp is None}
    for claim in sorted(state.snapshot.node_claims, key=lambda c: c.name):
        node = nodes.get(claim.status.provider_id)
        is_deleted = claim.metadata.deletion_timestamp is not None
        if node is None or is_deleted or state.is_disrupting(claim) or is_rebooting(claim):
            continue
        if is_true(claim.status.conditions, condition):
            yield claim, node


def _candidates(state: DisruptionState, nodes: Iterable[tuple[NodeClaim, Node]]) -> Iterator[Candidate]:
    for claim, node in nodes:
        pool = state.pools.get(node.metadata.labels.get(names.NODEPOOL, ""))
        if pool is None or pool.metadata.deletion_timestamp is not None or pool.name in state.paused:
            continue
        if node.metadata.labels.get(names.ZONE) in state.snapshot.shifted_zones:
            continue
        yield Candidate(claim=claim, node=node, pool=pool, pods=state.reschedulable_pods.get(node.metadata.name, ()))


def dynamic_candidates(state: DisruptionState) -> Iterator[Candidate]:
    """The candidates of dynamic pools, whose size follows their pods, sorted by claim."""
    return (c for c in all_candidates(state) if c.pool.spec.replicas is None)


def static_candidates(state: DisruptionState) -> Iterator[Candidate]:
    """The candidates of static pools, which have a fixed number of nodes (``replicas``), sorted by claim."""
    return (c for c in all_candidates(state) if c.pool.spec.replicas is not None)


def do_not_disrupt_blocker(state: DisruptionState, candidate: Candidate) -> Blocker | None:
    """The do-not-disrupt annotation on the node, its claim or a pod that blocks disruption; None without one."""
    owners = ((candidate.node, f"Node {candidate.name}"), (candidate.claim, f"NodeClaim {candidate.claim.name}"))
    for owner, by in owners:
        if is_protected(owner.metadata.annotations, since=owner.metadata.creation_timestamp, now=state.now):
            return Blocker(message=f"annotation {names.DO_NOT_DISRUPT} is set", by=by)
    return _protected_pod_blocker(state, candidate)


def disruption_blocker(state: DisruptionState, candidate: Candidate) -> Blocker | None:
    """What blocks moving the node's pods; None when nothing does."""
    if {candidate.name, candidate.claim.name} & state.nominated:
        return Blocker(message="nominated for pending pods", by=f"Node {candidate.name}")
    return do_not_disrupt_blocker(state, candidate) or _eviction_blocker(state, candidate)


def pod_blocker(state: DisruptionState, candidate: Candidate) -> Blocker | None:
    """The pod of the node that blocks moving it, whatever the node and its claim say; None without one."""
    return _protected_pod_blocker(state, candidate) or _eviction_blocker(state, candidate)


def _protected_pod_blocker(state: DisruptionState, candidate: Candidate) -> Blocker | None:
    for pod in state.pods.get(candidate.name, ()):
        since = pod.status.start_time or pod.metadata.creation_timestamp
        if not is_mirror(pod) and is_protected(pod.metadata.annotations, since=since, now=state.now):
            return Blocker(message=f"pod {pod.key} has annotation {names.DO_NOT_DISRUPT}", by=f"Pod {pod.key}")
    return _gang_blocker(state, candidate) if state.snapshot.pod_groups else None


def _gang_blocker(state: DisruptionState, candidate: Candidate) -> Blocker | None:
    """The PodGroup with pods here and on other nodes that are disrupted all at once only; None without one."""
    nodes = state.snapshot.derive("nodes of PodGroups", lambda: _nodes_of_groups(state.snapshot))
    for pod in candidate.pods:
        key = pod_group_key(pod)
        if key is not None and len(nodes.get(key, ())) > 1:
            return Blocker(message=f"{key} has pods on other nodes, and disruptionMode all", by=str(key))
    return None


def _nodes_of_groups(snapshot: Snapshot) -> dict[PodGroupKey, set[str]]:
    """The nodes of the pods that are disrupted together."""
    nodes: dict[PodGroupKey, set[str]] = {k: set() for k, g in snapshot.pod_groups.items() if g.disrupted_together}
    for pod in snapshot.pods if nodes else ():
        key = pod_group_key(pod)
        if key is not None and key in nodes and pod.spec.node_name and not is_terminal(pod):
            nodes[key].add(pod.spec.node_name)
    return nodes


def _eviction_blocker(state: DisruptionState, candidate: Candidate) -> Blocker | None:
    needs_controllers = candidate.pool.metadata.annotations.get(PODS_WITHOUT_CONTROLLER) == "block"
    for pod in candidate.pods:
        if needs_controllers and controller(pod.metadata) is None:
            return Blocker(message=f"pod {pod.key} has no controller to recreate it", by=f"Pod {pod.key}")
        eviction_blocker = state.pod_disruption_budgets.eviction_blocker(pod)
        if eviction_blocker is not None:
            return eviction_blocker
    return None
