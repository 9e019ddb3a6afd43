"""What all methods decide from: a snapshot, what can be bought, and the figures that each of them needs of both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true
from shared.api.pods import is_daemon, is_mirror, is_terminal
from shared.disruption.disruption_queue import is_queued
from shared.disruption.pod_disruption_budgets import PodDisruptionBudgets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.disruption.command import MethodResult
    from shared.instance_types.instance_type import InstanceType
    from shared.snapshot import Snapshot


def workload_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods that hold a node: not finished, not a daemon's, not the node's own. One that is going still holds it."""
    return tuple(p for p in pods if not (is_terminal(p) or is_daemon(p) or is_mirror(p)))


@dataclass(frozen=True, kw_only=True)
class InstanceNetwork:
    """Where an instance stands: ids of its subnet and of its security groups; empty: not known."""

    subnet: str = ""
    security_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """A snapshot at ``now``.

    ``chosen`` names claims that this look has already decided to give up. ``awaited`` names nodes and claims that pods
    are about to use. ``instance_types`` and ``not_ready`` are as in :class:`~shared.scheduling.decision.Problem`;
    ``node_classes`` are by pool, as AWS has them now; ``networks`` are by provider id, of the instances that are known.
    """

    snapshot: Snapshot
    now: datetime
    selected: frozenset[str] = frozenset()
    nominated: frozenset[str] = frozenset()
    instance_types: Mapping[str, tuple[InstanceType, ...]] = field(default_factory=dict)
    not_ready: Mapping[str, str] = field(default_factory=dict)
    node_classes: Mapping[str, EC2NodeClass] = field(default_factory=dict)
    instance_networks: Mapping[str, InstanceNetwork] = field(default_factory=dict)

    @cached_property
    def pools(self) -> Mapping[str, NodePool]:
        """The valid pools, by name."""
        return {p.name: p for p in self.snapshot.node_pools}

    @cached_property
    def pods(self) -> Mapping[str, tuple[Pod, ...]]:
        """The unfinished pods of each node, by its name."""
        found: dict[str, list[Pod]] = {}
        for pod in self.snapshot.pods:
            if pod.spec.node_name and not is_terminal(pod):
                found.setdefault(pod.spec.node_name, []).append(pod)
        return {name: tuple(pods) for name, pods in found.items()}

    @cached_property
    def initialized(self) -> tuple[tuple[NodeClaim, Node], ...]:
        """Initialized claims that aren't going and aren't about to, each with its node, by name."""
        nodes = {n.spec.provider_id: n for n in self.snapshot.nodes if n.metadata.deletion_timestamp is None}
        return tuple(
            (claim, nodes[claim.status.provider_id])
            for claim in sorted(self.snapshot.node_claims, key=lambda c: c.name)
            if claim.metadata.deletion_timestamp is None
            and not self._goes(claim)
            and claim.status.provider_id in nodes
            and is_true(claim.status.conditions, nodeclaim.INITIALIZED)
        )

    @cached_property
    def disrupting_nodes(self) -> frozenset[str]:
        """Nodes that are about to go: nothing is placed there, and their pods need their places elsewhere."""
        return frozenset(c.status.node_name for c in self.snapshot.node_claims if self._goes(c) and c.status.node_name)

    def _goes(self, claim: NodeClaim) -> bool:
        return claim.name in self.selected or is_queued(claim)

    def with_selected(self, command: MethodResult) -> ClusterState:
        """The view once a command of this look is decided: its nodes are about to go."""
        return replace(self, selected=self.selected | {r.claim for a in command.commands for r in a.removals})

    @cached_property
    def _bought(self) -> Mapping[str, datetime]:
        """By pool: when it last bought a machine that replaces none."""
        found: dict[str, datetime] = {}
        for claim in self.snapshot.node_claims:
            pool, created = claim.metadata.labels.get(names.NODEPOOL, ""), claim.metadata.creation_timestamp
            if created is not None and names.REPLACES not in claim.metadata.annotations:
                found[pool] = max(created, found.get(pool, created))
        return found

    def time_since_launch(self, pool: str) -> timedelta:
        """For how long the pool has bought no machine but replacements."""
        return self.now - self._bought[pool] if pool in self._bought else timedelta.max

    @cached_property
    def pod_disruption_budgets(self) -> PodDisruptionBudgets:
        """The PodDisruptionBudgets."""
        return PodDisruptionBudgets(self.snapshot.pod_disruption_budgets)

    @cached_property
    def _prices(self) -> Mapping[tuple[str, str, str, str], float]:
        return {
            (pool, t.name, o.zone, o.capacity_type): o.price
            for pool, types in self.instance_types.items()
            for t in types
            for o in t.offerings
        }

    def price(self, claim: NodeClaim) -> float | None:
        """USD per hour of the claim's machine as it is sold now; None where nobody knows."""
        labels = claim.metadata.labels
        pool = labels.get(names.NODEPOOL, "")
        kind = labels.get(names.INSTANCE_TYPE, ""), labels.get(names.ZONE, ""), labels.get(names.CAPACITY_TYPE, "")
        return self._prices.get((pool, *kind))
