"""Simulated scheduling: where the pods of removed nodes would go, on other nodes or new NodeClaims.

It calls the scheduler itself, so the rules for pending pods hold for moved ones. Nodes that are already being disrupted
are part of each simulation, so no capacity is promised twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.disruption.command import Blocker
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState
    from shared.scheduling.decision import PlannedNodeClaim


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """The new ``node_claims`` that are needed, and why pods (namespace/name) are ``unschedulable``.

    ``needs_uninitialized_nodes``: a pod would go to a node that isn't initialized yet, and may never be.
    """

    node_claims: tuple[PlannedNodeClaim, ...] = ()
    unschedulable: Mapping[str, str] = field(default_factory=dict)
    needs_uninitialized_nodes: bool = False

    @property
    def all_scheduled(self) -> bool:
        """Whether all pods have a node that is initialized or will be launched for them."""
        return not self.unschedulable and not self.needs_uninitialized_nodes

    def blocker(self, candidate: Candidate) -> Blocker | None:
        """The first of the candidate's pods that can't be scheduled elsewhere, and why; None when all can."""
        for pod in candidate.pods:
            if pod.key in self.unschedulable:
                message = f"pod {pod.key} can't be scheduled on another node: {self.unschedulable[pod.key]}"
                return Blocker(message=message, by=f"Pod {pod.key}")
        return None

    @property
    def price(self) -> float:
        """USD per hour of the new claims, each at its cheapest offering."""
        return sum(c.cheapest.price for c in self.node_claims)


def simulate_scheduling(state: DisruptionState, candidates: Collection[Candidate]) -> SimulationResult:
    """Schedule the pods of these candidates as if all of the nodes were removed at once."""
    removed_nodes = frozenset(c.name for c in candidates)
    decision = schedule(
        Problem(
            snapshot=state.snapshot,
            instance_types=state.instance_types,
            not_ready=state.not_ready,
            leaving=removed_nodes | state.disrupting_nodes,
        )
    )
    moved_pods = {p.key for c in candidates for p in c.pods}
    initialized = {n.metadata.name for n in state.snapshot.nodes if _is_initialized(n.metadata.labels)}
    errors = decision.pod_errors
    return SimulationResult(
        node_claims=decision.new_node_claims,
        unschedulable={key: errors[key].message for key in sorted(moved_pods & errors.keys())},
        needs_uninitialized_nodes=any(
            name not in initialized and moved_pods.intersection(pods) for name, pods in decision.existing_nodes.items()
        ),
    )


def _is_initialized(labels: Mapping[str, str]) -> bool:
    """Whether pods can run on the node; nodes without a NodePool count as initialized."""
    return names.NODEPOOL not in labels or labels.get(names.INITIALIZED) == "true"
