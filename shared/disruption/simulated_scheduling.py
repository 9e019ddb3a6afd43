"""What the pods of nodes that go need: places on other nodes and, where those don't do, new claims.

Asked of the scheduling core, so that what holds for pending pods holds for moved ones. Nodes that are about to go
already are asked for together with them, so no room is given away twice.
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
    from shared.disruption.cluster_state import ClusterState
    from shared.scheduling.decision import PlannedNodeClaim


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """Where the pods go. ``claims`` are to be asked for; ``stuck`` is why pods (namespace/name) have no place.

    ``waiting`` says that a pod's place is on a node that isn't up yet, so it isn't known to come.
    """

    node_claims: tuple[PlannedNodeClaim, ...] = ()
    unschedulable: Mapping[str, str] = field(default_factory=dict)
    needs_uninitialized_nodes: bool = False

    def blocker(self, candidate: Candidate) -> Blocker | None:
        """Which of the node's pods has no place elsewhere, and why; None when all have."""
        for pod in candidate.pods:
            if pod.key in self.unschedulable:
                message = f"pod {pod.key} has no place elsewhere: {self.unschedulable[pod.key]}"
                return Blocker(message=message, by=f"Pod {pod.key}")
        return None

    @property
    def price(self) -> float:
        """USD per hour of the new claims, if each comes up as its cheapest."""
        return sum(c.cheapest.price for c in self.node_claims)


def simulate_scheduling(view: ClusterState, leaving: Collection[Candidate]) -> SimulationResult:
    """Where the pods of these nodes go if they all leave at once."""
    nodes = frozenset(c.name for c in leaving)
    decision = schedule(
        Problem(
            snapshot=view.snapshot,
            instance_types=view.instance_types,
            not_ready=view.not_ready,
            leaving=nodes | view.disrupting_nodes,
        )
    )
    moved = {p.key for c in leaving for p in c.pods}
    ready = {n.metadata.name for n in view.snapshot.nodes if _is_up(n.metadata.labels)}
    return SimulationResult(
        node_claims=decision.new_node_claims,
        unschedulable={key: decision.pod_errors[key].message for key in sorted(moved & decision.pod_errors.keys())},
        needs_uninitialized_nodes=any(
            name not in ready and moved.intersection(pods) for name, pods in decision.existing_nodes.items()
        ),
    )


def _is_up(labels: Mapping[str, str]) -> bool:
    """Whether pods can run on the node; one that no pool made is up when it is there."""
    return names.NODEPOOL not in labels or labels.get(names.INITIALIZED) == "true"
