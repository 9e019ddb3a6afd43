"""What a question is answered from: one look at a cluster, what could be bought for it, and what was decided before.

The same value comes from a live cluster and from files, so every command works on both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from shared.api import labels as names
from shared.api.nodepool import node_class_for
from shared.disruption import disruption_queue
from shared.disruption.cluster_state import ClusterState
from shared.launch.node_class.readiness import node_class_of
from shared.scheduling.decision import SchedulingPolicies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Node, PodTemplate
    from shared.api.meta import ObjectRef
    from shared.api.nodeclaim import NodeClaim
    from shared.decision_log import DecisionRecord
    from shared.launch.resolved_node_pools import ResolvedNodePools
    from shared.scheduling.decision import UnschedulableReason
    from shared.snapshot import Snapshot

MANAGED_CAPACITY = "eks.amazonaws.com/capacityType"
"""What nodes of EKS managed node groups say instead of Karpenter's label: SPOT or ON_DEMAND."""


class Stock(Protocol):
    """What the pools of a snapshot could buy."""

    def offers(self, snapshot: Snapshot) -> ResolvedNodePools:
        """Instance types and prices by pool, and why a pool can't launch."""
        ...


@dataclass(frozen=True, kw_only=True)
class Said:
    """Something that was said about an object before: an event, or a row of the decision log."""

    at: datetime | None
    reason: str
    message: str
    by: str = ""


class History(Protocol):
    """What was said before. A cluster read from files has none."""

    def events(self, ref: ObjectRef) -> tuple[Said, ...]:
        """The events on an object, newest first."""
        ...

    def decisions(self, node: str) -> tuple[DecisionRecord, ...]:
        """The decision log's rows on a node, newest first."""
        ...

    def since(self, moment: datetime) -> tuple[DecisionRecord, ...]:
        """The decision log after a moment, oldest first."""
        ...


class NoHistory:
    """Of files: nothing was said that isn't in them."""

    def events(self, ref: ObjectRef) -> tuple[Said, ...]:  # noqa: ARG002 (the protocol's)
        """None."""
        return ()

    def decisions(self, node: str) -> tuple[DecisionRecord, ...]:  # noqa: ARG002 (the protocol's)
        """None."""
        return ()

    def since(self, moment: datetime) -> tuple[DecisionRecord, ...]:  # noqa: ARG002 (the protocol's)
        """None."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A Deployment, ReplicaSet or StatefulSet: whose pods they are, and what a new one looks like."""

    kind: str
    namespace: str
    name: str
    template: PodTemplate | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """``name`` says what was looked at, ``notes`` what a reader must know of where it comes from.

    ``unreadable`` are pods (namespace/name) that mean nothing. ``workloads`` are by kind in lower case, namespace and
    name. ``look`` reads pods, claims and nodes anew; files have none.
    """

    name: str
    now: datetime
    snapshot: Snapshot
    stock: Stock
    history: History = field(default_factory=NoHistory)
    notes: tuple[str, ...] = ()
    unreadable: Mapping[str, UnschedulableReason] = field(default_factory=dict)
    workloads: Mapping[tuple[str, str, str], Workload] = field(default_factory=dict)
    policies: SchedulingPolicies = field(default_factory=SchedulingPolicies)
    look: Callable[[], Snapshot] | None = None


Prices = dict[tuple[str, str, str], float]
"""USD per hour by instance type, zone and capacity type."""


def prices_of(resolved_pools: ResolvedNodePools) -> Prices:
    """What machines cost now, whichever pool they are of."""
    return {
        (t.name, o.zone, o.capacity_type): o.price
        for types in resolved_pools.instance_types.values()
        for t in types
        for o in t.offerings
    }


def offering_of(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Instance type, zone and capacity type of a node or claim, empty where its labels don't say."""
    managed = labels.get(MANAGED_CAPACITY, "").lower().replace("_", "-")
    kind = labels.get(names.CAPACITY_TYPE) or managed or names.ON_DEMAND
    return labels.get(names.INSTANCE_TYPE, ""), labels.get(names.ZONE, ""), kind


def cost(nodes: Iterable[Node], prices: Prices) -> tuple[float, int]:
    """USD per hour of the nodes, and how many of them have no known price."""
    known = [prices.get(offering_of(n.metadata.labels)) for n in nodes]
    return sum(p for p in known if p is not None), sum(p is None for p in known)


def running_cost(snapshot: Snapshot, resolved_pools: ResolvedNodePools) -> tuple[float, int]:
    """USD per hour of everything that runs or boots, and how many machines have no known price."""
    prices = prices_of(resolved_pools)
    total, unknown = cost(snapshot.nodes, prices)
    for claim in on_their_way(snapshot):
        price = prices.get(offering_of(claim.metadata.labels))
        total += price or 0.0
        unknown += price is None
    return total, unknown


def on_their_way(snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """The claims whose machines run, and whose nodes haven't joined yet."""
    there = {n.spec.provider_id for n in snapshot.nodes}
    return tuple(c for c in snapshot.node_claims if c.status.provider_id and c.status.provider_id not in there)


def view_of(facts: Facts, resolved_pools: ResolvedNodePools) -> ClusterState:
    """The cluster as disruption sees it."""
    snapshot = facts.snapshot
    classes = {p.name: node_class_of(p, snapshot.node_classes) for p in snapshot.node_pools}
    stated = {p.name: node_class_for(p, c) for p in snapshot.node_pools if (c := classes[p.name]) is not None}
    return ClusterState(
        snapshot=snapshot,
        now=facts.now,
        nominated=disruption_queue.replacement_names(snapshot.node_claims),
        instance_types=resolved_pools.instance_types,
        not_ready=resolved_pools.not_ready,
        node_classes={**stated, **resolved_pools.node_classes},
    )


def with_snapshot(facts: Facts, snapshot: Snapshot) -> Facts:
    """The same facts of another cluster."""
    return replace(facts, snapshot=snapshot)
