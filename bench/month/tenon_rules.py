"""Tenon's decisions for a simulated cluster: scheduling, emptiness and consolidation, by the code that functions run.

As in functions/disruption/controller.py: the load history gives evidence for how long savings last, a search that found
nothing isn't repeated until something may pay back, and a command is validated on the cluster as it is then. A search
evaluates four sets of nodes instead of fifteen seconds' worth, so that results repeat, and searches begin each ten
minutes instead of each minute, besides those that follow a command: a month has to be simulated in minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.month.cluster_objects import ClusterObjects
from bench.month.simulated_objects import Command, Launch, Placement
from functions.disruption.no_savings import NoSavings, fingerprint
from shared.base.struct import with_fields
from shared.disruption import consolidation, emptiness, load_history, soft_taints
from shared.disruption.budgets import BudgetTracker
from shared.disruption.disruption_state import DisruptionState
from shared.disruption.load_history import LoadHistory
from shared.disruption.savings_evidence import savings_evidence
from shared.disruption.workloads import current_workloads
from shared.launch.covered_nodes import cluster_coverage
from shared.provisioning.features.expected_growth import GrowthHistory, expected_pods
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.month.simulated_cluster import SimulatedCluster
    from bench.month.simulated_objects import SimulatedNode, SimulatedPod
    from shared.api.kubernetes import Pod
    from shared.commitments.balance import Balance
    from shared.commitments.commitment import Commitments
    from shared.commitments.coverage import OwnCoverage
    from shared.disruption.command import Command as DisruptionCommand
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.snapshot import Snapshot

SETS = 4
"""Sets of nodes that each search may evaluate."""
INTERVAL = 600
"""Seconds between searches, besides those that follow a command."""


class TenonRules:
    """Tenon's decisions over one month."""

    is_concurrent = False

    def __init__(
        self,
        *,
        sets: int = SETS,
        interval: int = INTERVAL,
        eviction_cost: float = 1.0,
        commitments: Commitments | None = None,
    ) -> None:
        """``eviction_cost`` is that of each pod, times which a move costs; at least 0.1 and at most 10.

        ``commitments`` are the account's, of which the cluster is the only one; None where they don't count.
        """
        self.interval = interval
        self._sets = sets
        self._commitments = commitments
        self._objects = ClusterObjects(eviction_cost=eviction_cost)
        self._history = LoadHistory()
        self._growth = GrowthHistory()
        self._no_savings: NoSavings | None = None

    def place(self, cluster: SimulatedCluster, pods: Sequence[SimulatedPod]) -> Placement:
        """The scheduler's decision; nodes that are ready are left out, as kube-scheduler found no room on them.

        Their pods count for spread constraints, so with such pods no node is left out; nor with expected pods, as
        functions plan with all nodes.
        """
        expected = self._expected(cluster)
        all_nodes = bool(expected) or any(p.trace.zone_spread for p in pods)
        nodes = [
            n
            for n in cluster.nodes.values()
            if (all_nodes or not n.is_ready) and not n.is_leaving and not n.is_reserved
        ]
        running = [p for n in nodes for p in n.pods.values()]
        snapshot = self._objects.snapshot(cluster, nodes, [*running, *pods])
        snapshot = with_fields(snapshot, growth=expected)
        unused = self._unused(cluster)
        decision = schedule(Problem(snapshot=snapshot, instance_types=cluster.catalog.instance_types, unused=unused))
        existing = {_name(key): node for node, keys in decision.existing_nodes.items() for key in keys}
        return Placement(
            existing={pod: node for pod, node in existing.items() if node in cluster.nodes},
            launches=tuple(_launch(c) for c in decision.new_node_claims),
        )

    def _expected(self, cluster: SimulatedCluster) -> tuple[Pod, ...]:
        snapshot = self._objects.snapshot(cluster, cluster.nodes.values(), cluster.pods.values())
        expected = self._growth.expected(lambda: current_workloads(snapshot), now=snapshot.taken_at)
        return expected_pods(snapshot, expected)

    def empty_nodes(self, cluster: SimulatedCluster) -> Sequence[str]:
        """The nodes of the commands of the method Empty."""
        state = self._state(cluster)
        result = emptiness.compute(state, BudgetTracker(state.snapshot, now=state.now))
        return [node for command in result.commands for node in command.nodes]

    def soft_taints(self, cluster: SimulatedCluster) -> Iterator[tuple[SimulatedNode, int]]:
        """The nodes' soft taints, from the cluster's arrays: a snapshot each minute would take too long."""
        groups: dict[tuple[str, str], list[SimulatedNode]] = {}
        for node in cluster.nodes.values():
            if node.is_ready and not node.is_leaving and not node.is_reserved:
                groups.setdefault((node.pool, node.zone), []).append(node)
        for nodes in groups.values():
            yield from zip(nodes, _taint_counts(cluster, nodes), strict=True)

    def consolidate(self, cluster: SimulatedCluster) -> Command | None:
        """The command of the best set of nodes."""
        state = self._state(cluster)
        current = current_workloads(state.snapshot)
        self._history = load_history.updated(self._history, current, now=state.now)
        state = with_fields(state, evidence=savings_evidence(self._history, current.workloads, now=state.now))
        budgets = BudgetTracker(state.snapshot, now=state.now)
        due = consolidation.due_candidates(state)
        if not due:
            return None
        inputs = fingerprint(state, due, budgets)
        known = self._no_savings if self._no_savings is not None and self._no_savings.fingerprint == inputs else None
        if known is not None and state.now < known.until:
            return None
        left = iter(range(self._sets))
        result = consolidation.search(state, budgets, lambda: next(left, None) is None)
        if result.command is not None:
            return _command(result.command)
        self._no_savings = NoSavings(
            fingerprint=inputs,
            since=known.since if known is not None else state.now,
            searched_at=state.now,
            next_savings_at=result.next_savings_at,
        )
        return None

    def validated(self, cluster: SimulatedCluster, command: Command) -> Command | None:
        """The command, unless the method's own validation rejects it."""
        details: DisruptionCommand = command.details  # type: ignore[assignment]  # as _command wrote it
        state = self._state(cluster)
        invalid = consolidation.validate(details, state, BudgetTracker(state.snapshot, now=state.now))
        return None if invalid else command

    def _state(self, cluster: SimulatedCluster) -> DisruptionState:
        snapshot = self._objects.snapshot(cluster, cluster.nodes.values(), cluster.pods.values())
        return DisruptionState(
            snapshot=snapshot,
            now=snapshot.taken_at,
            instance_types=cluster.catalog.instance_types,
            coverage=self._coverage(snapshot),
        )

    def _coverage(self, snapshot: Snapshot) -> OwnCoverage | None:
        """What commitments pay of all running nodes, as the functions compute it."""
        return None if self._commitments is None else cluster_coverage(snapshot, self._commitments, cluster="simulated")

    def _unused(self, cluster: SimulatedCluster) -> Balance | None:
        """What is left of commitments for further nodes."""
        if self._commitments is None:
            return None
        coverage = self._coverage(self._objects.snapshot(cluster, cluster.nodes.values(), cluster.pods.values()))
        return None if coverage is None else coverage.unused


def _taint_counts(cluster: SimulatedCluster, nodes: Sequence[SimulatedNode]) -> list[int]:
    rows = np.array([n.row for n in nodes])
    counts: list[int] = soft_taints.taint_counts(
        cluster.capacity[rows] - cluster.free[rows],
        cluster.free[rows],
        may_go=np.ones(len(rows), np.bool_),
        current=cluster.soft_taints[rows],
    ).tolist()
    return counts


def _name(key: str) -> str:
    return key.partition("/")[2]


def _launch(planned: PlannedNodeClaim) -> Launch:
    best = planned.cheapest
    pods = tuple(_name(key) for key in planned.pods)
    return Launch(best.instance_type, best.zone, best.capacity_type, planned.node_pool, pods, planned.expected)


def _command(command: DisruptionCommand) -> Command:
    launches = tuple(_launch(c) for c in command.replacements)
    return Command(nodes=tuple(command.nodes), launches=launches, details=command)
