"""Simulated scheduling: where the pods of removed nodes would go, on other nodes or new NodeClaims.

It calls the scheduler itself, so the rules for pending pods hold for moved ones. Nodes that are already being disrupted
are part of each simulation, so no capacity is promised twice. The room of CapacityBuffers is part of it, too: a removal
may not leave chunks without room that have some now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.nodeclaim import rebooting_nodes
from shared.base.struct import Struct, with_fields
from shared.disruption.command import Blocker
from shared.scheduling.buffers.chunks import chunk_pods
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState
    from shared.scheduling.decision import Decision, PlannedNodeClaim
    from shared.snapshot import Snapshot


class SimulationResult(Struct, kw_only=True):
    """The new ``node_claims`` that are needed, and why pods (namespace/name) are ``unschedulable``.

    ``uninitialized_nodes``: pods would go to these nodes, which aren't initialized yet, and may never be.
    ``nodes_with_chunks``: the removed nodes that have room of CapacityBuffers, if no other node would have it.
    """

    node_claims: tuple[PlannedNodeClaim, ...] = ()
    unschedulable: Mapping[str, str] = {}
    uninitialized_nodes: tuple[str, ...] = ()
    nodes_with_chunks: frozenset[str] = frozenset()

    @property
    def all_scheduled(self) -> bool:
        """Whether all pods and chunks have a node that is initialized or will be launched for them."""
        return not (self.unschedulable or self.uninitialized_nodes or self.nodes_with_chunks)

    def blocker(self, candidate: Candidate) -> Blocker | None:
        """The first of the candidate's pods that can't be scheduled elsewhere, and why; None when all can.

        Where that is no pod, the CapacityBuffers whose room only the candidate has.
        """
        for pod in candidate.pods:
            if pod.key in self.unschedulable:
                message = f"pod {pod.key} can't be scheduled on another node: {self.unschedulable[pod.key]}"
                return Blocker(message=message, by=f"Pod {pod.key}")
        if candidate.name in self.nodes_with_chunks:
            return Blocker(message="no other node has room for the CapacityBuffers that it has", by="CapacityBuffers")
        return None

    @property
    def price(self) -> float:
        """USD per hour of the new claims, each at its cheapest offering."""
        return sum(c.cheapest.effective_price for c in self.node_claims)


def simulate_scheduling(state: DisruptionState, candidates: Collection[Candidate]) -> SimulationResult:
    """Schedule the pods of these candidates as if all of the nodes were removed at once."""
    removed_nodes = frozenset(c.name for c in candidates)
    decision = schedule(
        Problem(
            snapshot=state.snapshot,
            instance_types=state.instance_types,
            not_ready=state.not_ready,
            leaving=removed_nodes | state.disrupting_nodes,
            unused=state.unused_without([c.claim.name for c in candidates]),
        )
    )
    moved_pods = {p.key for c in candidates for p in c.pods}
    initialized = initialized_node_names(state.snapshot)
    loses_chunks = _missing_chunks(decision, initialized) > state.missing_chunks
    errors = decision.pod_errors
    return SimulationResult(
        node_claims=decision.new_node_claims,
        unschedulable={key: errors[key].message for key in sorted(moved_pods & errors.keys())},
        uninitialized_nodes=tuple(
            name
            for name, pods in sorted(decision.existing_nodes.items())
            if name not in initialized and moved_pods.intersection(pods)
        ),
        nodes_with_chunks=removed_nodes & state.chunks.keys() if loses_chunks else frozenset(),
    )


def with_chunks(state: DisruptionState, decision: Decision) -> DisruptionState:
    """The state with the chunks of CapacityBuffers where a decision without launches places them."""
    chunks = chunk_pods(state.snapshot) if state.snapshot.capacity_buffers else {}
    return with_fields(
        state,
        chunks={name: tuple(chunks[key] for key in keys) for name, keys in decision.chunks.items()},
        missing_chunks=_missing_chunks(decision, initialized_node_names(state.snapshot)),
    )


def initialized_node_names(snapshot: Snapshot) -> frozenset[str]:
    """The names of the nodes that pods can run on; nodes that reboot are only expected back."""
    ready = frozenset(n.metadata.name for n in snapshot.nodes if _is_initialized(n.metadata.labels))
    return ready - rebooting_nodes(snapshot.node_claims)


def _missing_chunks(decision: Decision, initialized: Collection[str]) -> int:
    """How many chunks have room neither on an initialized node nor on a new one."""
    on_their_way = sum(len(keys) for name, keys in decision.chunks.items() if name not in initialized)
    return len(decision.chunk_errors) + on_their_way


def _is_initialized(labels: Mapping[str, str]) -> bool:
    """Whether pods can run on the node; nodes without a NodePool count as initialized."""
    return names.NODEPOOL not in labels or labels.get(names.INITIALIZED) == "true"
