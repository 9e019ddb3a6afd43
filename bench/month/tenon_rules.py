"""Tenon's own decisions for a played cluster: scheduling, emptiness and consolidation, by the code that functions run.

As in functions/disruption/controller.py: the load history gives evidence for how long savings last, a search that found
nothing isn't repeated until something may pay back, and a command is validated on the cluster as it is then. A search
evaluates four sets of nodes instead of fifteen seconds' worth, so that results repeat, and searches begin each ten
minutes instead of each minute, besides those that follow a command: a month has to be played in minutes.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace as with_fields

from bench.month.catalog import GPU, GPU_POOL, GPU_TAINT, GPU_TOLERATION, START
from bench.month.simulated_fleet import Command, Launch, Placement
from functions.disruption.no_savings import NoSavings, fingerprint
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.containers import Container, ResourceRequirements
from shared.api.kubernetes import (
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    TopologySpreadConstraint,
)
from shared.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.quantity import format_resources
from shared.disruption import consolidation, emptiness, load_history, soft_taints
from shared.disruption.budgets import BudgetTracker
from shared.disruption.disruption_state import DisruptionState
from shared.disruption.load_history import LoadHistory
from shared.disruption.savings_evidence import savings_evidence
from shared.disruption.workloads import current_workloads
from shared.launch.covered_nodes import cluster_coverage
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from bench.month.catalog import Catalog
    from bench.month.load_trace import TracePod
    from bench.month.simulated_cluster import PlayedCluster
    from bench.month.simulated_fleet import PlayedNode, PlayedPod
    from shared.commitments.balance import Balance
    from shared.commitments.commitment import Commitments
    from shared.commitments.coverage import OwnCoverage
    from shared.disruption.command import Command as DisruptionCommand
    from shared.scheduling.decision import PlannedNodeClaim

SETS = 4
"""Sets of nodes that each search may evaluate."""
INTERVAL = 600
"""Seconds between searches, besides those that follow a command."""
_NAMESPACE = "default"
_WAITING = PodStatus(
    phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]
)


class TenonRule:
    """Tenon's decisions over one month."""

    is_concurrent = False

    def __init__(self, *, sets: int = SETS, interval: int = INTERVAL, commitments: Commitments | None = None) -> None:
        """``commitments`` are the account's, of which the cluster is the only one; None where they don't count."""
        self.interval = interval
        self._sets = sets
        self._commitments = commitments
        self._objects = ClusterObjects()
        self._history = LoadHistory()
        self._no_savings: NoSavings | None = None
        self.searches = 0
        self.evaluated = 0

    def place(self, cluster: PlayedCluster, pods: Sequence[PlayedPod]) -> Placement:
        """The scheduler's decision; nodes that are ready are left out, as kube-scheduler found no room on them.

        Their pods count for spread constraints, so with such pods no node is left out.
        """
        all_nodes = any(p.trace.zone_spread for p in pods)
        nodes = [
            n
            for n in cluster.nodes.values()
            if (all_nodes or not n.is_ready) and not n.is_leaving and not n.is_reserved
        ]
        running = [p for n in nodes for p in n.pods.values()]
        snapshot = self._objects.snapshot(cluster, nodes, [*running, *pods])
        unused = self._unused(cluster)
        decision = schedule(Problem(snapshot=snapshot, instance_types=cluster.catalog.instance_types, unused=unused))
        existing = {_name(key): node for node, keys in decision.existing_nodes.items() for key in keys}
        return Placement(
            existing={pod: node for pod, node in existing.items() if node in cluster.nodes},
            launches=tuple(_launch(c) for c in decision.new_node_claims),
        )

    def empty_nodes(self, cluster: PlayedCluster) -> Sequence[str]:
        """The nodes of the commands of the method Empty."""
        state = self._state(cluster)
        result = emptiness.compute(state, BudgetTracker(state.snapshot, now=state.now))
        return [node for command in result.commands for node in command.nodes]

    def avoided(self, cluster: PlayedCluster) -> Sequence[PlayedNode]:
        """The nodes that get soft taints, from the cluster's arrays: a snapshot each minute would take too long."""
        groups: dict[tuple[str, str], list[PlayedNode]] = {}
        for node in cluster.nodes.values():
            if node.is_ready and not node.is_leaving and not node.is_reserved:
                groups.setdefault((node.pool, node.zone), []).append(node)
        return [node for nodes in groups.values() for node in _avoided(cluster, nodes)]

    def consolidate(self, cluster: PlayedCluster) -> Command | None:
        """The command of the best set of nodes."""
        state = self._state(cluster)
        current = current_workloads(state.snapshot)
        self._history = load_history.updated(self._history, current, now=state.now)
        state = replace(state, evidence=savings_evidence(self._history, current.workloads, now=state.now))
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
        self.searches += 1
        self.evaluated += result.evaluated
        if result.command is not None:
            return _command(result.command)
        self._no_savings = NoSavings(
            fingerprint=inputs,
            since=known.since if known is not None else state.now,
            searched_at=state.now,
            next_savings_at=result.next_savings_at,
        )
        return None

    def validated(self, cluster: PlayedCluster, command: Command) -> Command | None:
        """The command, unless the method's own validation rejects it."""
        details: DisruptionCommand = command.details  # type: ignore[assignment]  # as _command wrote it
        state = self._state(cluster)
        invalid = consolidation.validate(details, state, BudgetTracker(state.snapshot, now=state.now))
        return None if invalid else command

    def _state(self, cluster: PlayedCluster) -> DisruptionState:
        snapshot = self._objects.snapshot(cluster, cluster.nodes.values(), cluster.pods.values())
        return DisruptionState(
            snapshot=snapshot,
            now=snapshot.taken_at,
            instance_types=cluster.catalog.instance_types,
            coverage=self._coverage(snapshot),
        )

    def _coverage(self, snapshot: Snapshot) -> OwnCoverage | None:
        """What commitments pay of all running nodes, as the functions compute it."""
        return None if self._commitments is None else cluster_coverage(snapshot, self._commitments, cluster="played")

    def _unused(self, cluster: PlayedCluster) -> Balance | None:
        """What is left of commitments for further nodes."""
        if self._commitments is None:
            return None
        coverage = self._coverage(self._objects.snapshot(cluster, cluster.nodes.values(), cluster.pods.values()))
        return None if coverage is None else coverage.unused


def _avoided(cluster: PlayedCluster, nodes: Sequence[PlayedNode]) -> list[PlayedNode]:
    rows = np.array([n.row for n in nodes])
    chosen = soft_taints.avoided(
        cluster.capacity[rows] - cluster.free[rows],
        cluster.free[rows],
        may_go=np.ones(len(rows), np.bool_),
        is_tainted=cluster.is_tainted[rows],
    )
    return [node for node, is_chosen in zip(nodes, chosen.tolist(), strict=True) if is_chosen]


def _name(key: str) -> str:
    return key.partition("/")[2]


def _launch(planned: PlannedNodeClaim) -> Launch:
    best = planned.cheapest
    pods = tuple(_name(key) for key in planned.pods)
    return Launch(best.instance_type, best.zone, best.capacity_type, planned.node_pool, pods)


def _command(command: DisruptionCommand) -> Command:
    launches = tuple(_launch(c) for c in command.replacements)
    return Command(nodes=tuple(command.nodes), launches=launches, details=command)


class ClusterObjects:
    """Pods, nodes and NodeClaims of a played cluster as Kubernetes' objects, kept while they don't change."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, int, Pod]] = {}
        self._nodes: dict[str, tuple[tuple[object, ...], NodeClaim, Node]] = {}

    def snapshot(self, cluster: PlayedCluster, nodes: Iterable[PlayedNode], pods: Iterable[PlayedPod]) -> Snapshot:
        """These nodes and pods."""
        self._forget(cluster)
        pairs = [self._node(cluster.catalog, n) for n in nodes]
        return Snapshot(
            taken_at=_time(cluster.now),
            pods=tuple(self._pod(p) for p in pods),
            nodes=tuple(node for _, node in pairs),
            node_claims=tuple(claim for claim, _ in pairs),
            node_pools=cluster.catalog.pools,
        )

    def _forget(self, cluster: PlayedCluster) -> None:
        """Drop objects that are gone, now and then."""
        if len(self._pods) > 2 * len(cluster.pods) + 1000:
            self._pods = {name: kept for name, kept in self._pods.items() if name in cluster.pods}
            self._nodes = {name: kept for name, kept in self._nodes.items() if name in cluster.nodes}

    def _pod(self, pod: PlayedPod) -> Pod:
        name = pod.trace.name
        kept = self._pods.get(name)
        if kept is not None and kept[:2] == (pod.node, pod.since):
            return kept[2]
        new = _pending(pod.trace) if kept is None else kept[2]
        status = _WAITING
        if pod.node:
            status = PodStatus(phase="Running", start_time=_time(pod.since))
        new = with_fields(new, spec=with_fields(new.spec, node_name=pod.node), status=status)
        self._pods[name] = (pod.node, pod.since, new)
        return new

    def _node(self, catalog: Catalog, node: PlayedNode) -> tuple[NodeClaim, Node]:
        key = (node.is_ready, node.is_leaving, node.empty_since)
        kept = self._nodes.get(node.name)
        if kept is None or kept[0] != key:
            kept = (key, *_node_objects(catalog, node))
            self._nodes[node.name] = kept
        return kept[1], kept[2]


def _time(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def _pending(trace: TracePod) -> Pod:
    """The pod without a node. A pod without a workload belongs to a Job of its own."""
    kind, _, rest = (trace.workload or f"Job/{trace.name}").partition("/")
    workload, _, revision = rest.partition("/")
    labels = {"app": workload}
    owner = workload
    if revision:
        kind, owner = "ReplicaSet", f"{workload}-{revision}"
        labels["pod-template-hash"] = revision
    requests: dict[str, str | int | float] = {"cpu": f"{trace.cpu}m", "memory": f"{trace.memory}Mi"}
    if trace.gpus:
        requests[GPU] = trace.gpus
    spread = TopologySpreadConstraint(
        topology_key=names.ZONE, max_skew=trace.zone_spread, label_selector=LabelSelector(match_labels=labels)
    )
    return Pod(
        metadata=ObjectMeta(
            name=trace.name,
            namespace=_NAMESPACE,
            uid=trace.name,
            owner_references=[
                OwnerReference(api_version="v1", kind=kind, name=owner, uid=f"{kind}/{owner}", controller=True)
            ],
            labels=labels,
            creation_timestamp=_time(trace.created),
        ),
        spec=PodSpec(
            containers=[Container(resources=ResourceRequirements(requests=requests))],
            priority=trace.priority,
            tolerations=[GPU_TOLERATION] if trace.gpus else [],
            topology_spread_constraints=[spread] if trace.zone_spread else [],
        ),
    )


def _node_objects(catalog: Catalog, node: PlayedNode) -> tuple[NodeClaim, Node]:
    """A NodeClaim and its node; they are initialized once the node is ready."""
    offerings = catalog.offerings[node.pool]
    type_ = offerings.types[offerings.row[node.instance_type]]
    labels = {
        **type_.labels,
        names.NODEPOOL: node.pool,
        names.ZONE: node.zone,
        names.CAPACITY_TYPE: node.capacity_type,
        names.HOSTNAME: node.name,
        **({names.INITIALIZED: "true", names.REGISTERED: "true"} if node.is_ready else {}),
    }
    conditions = []
    if node.is_ready:
        conditions.append(_condition(nodeclaim.INITIALIZED, node.initialized))
    if node.empty_since is not None:
        conditions.append(_condition(nodeclaim.EMPTY, node.empty_since))
    if node.is_leaving:
        conditions.append(_condition(nodeclaim.DISRUPTION_REASON, node.launched))
    taints = [GPU_TAINT] if node.pool == GPU_POOL else []
    provider = f"aws:///{node.zone}/i-{node.name}"
    created = _time(node.launched)
    capacity: dict[str, str | int | float] = {**format_resources(type_.capacity)}
    allocatable: dict[str, str | int | float] = {**format_resources(type_.allocatable)}
    claim = NodeClaim(
        metadata=ObjectMeta(
            name=node.name,
            uid=node.name,
            labels=labels,
            creation_timestamp=created,
            annotations={names.REPLACES: "earlier"} if node.is_replacement else {},
        ),
        spec=NodeClaimSpec(expire_after="Never", taints=taints),
        status=NodeClaimStatus(
            node_name=node.name,
            provider_id=provider,
            conditions=conditions,
            capacity=capacity,
            allocatable=allocatable,
        ),
    )
    ready = Condition(type="Ready", status="True" if node.is_ready else "False")
    return claim, Node(
        metadata=ObjectMeta(name=node.name, labels=labels, creation_timestamp=created),
        spec=NodeSpec(provider_id=provider, taints=taints),
        status=NodeStatus(allocatable=allocatable, capacity=capacity, conditions=[ready]),
    )


def _condition(type_: str, since: int) -> Condition:
    return Condition(type=type_, status="True", last_transition_time=_time(since))
