from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.containers import Container, ResourceRequirements
from shared.api.kubernetes import (
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodStatus,
)
from shared.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec
from shared.api.quantity import format_resources
from shared.base.struct import with_fields
from shared.disruption.budgets import BudgetTracker
from shared.disruption.disruption_state import DisruptionState
from shared.instance_types.instance_type import InstanceType, Offering
from shared.launch.drift import node_class_drift
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
GIB = 2**30
ZONES = ("a", "b")


def _type(cpu: int, price: float, spot: float) -> InstanceType:
    name = f"m.{cpu}x"
    return InstanceType(
        name=name,
        labels={names.INSTANCE_TYPE: name, names.ARCH: "amd64", names.OS: "linux"},
        capacity={"cpu": cpu * 1000, "memory": 4 * cpu * GIB, "pods": 50},
        overhead={},
        offerings=tuple(
            Offering(zone=z, capacity_type=c, price=p)
            for z in ZONES
            for c, p in ((names.ON_DEMAND, price), (names.SPOT, spot))
        ),
    )


TYPES = tuple(_type(cpu, cpu * 0.05, cpu * 0.02) for cpu in (1, 2, 4, 8))


@dataclass
class Cluster:
    """A cluster that is built up call by call; ``state`` is the methods' input."""

    pool: NodePool = field(
        default_factory=lambda: NodePool(
            metadata=ObjectMeta(name="default", uid="pool"),
            spec=NodePoolSpec(disruption=Disruption(budgets=[Budget(nodes="100%")])),
        )
    )
    nodes: list[Node] = field(default_factory=list)
    claims: list[NodeClaim] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    pod_disruption_budgets: list[PodDisruptionBudget] = field(default_factory=list)
    types: tuple[InstanceType, ...] = TYPES

    def disruption(self, **fields: Any) -> None:
        self.pool = NodePool(
            metadata=self.pool.metadata,
            spec=NodePoolSpec(disruption=Disruption(**{"budgets": [Budget(nodes="100%")], **fields})),
        )

    def node(
        self,
        name: str,
        cpu: int,
        *,
        spot: bool = False,
        age: timedelta = timedelta(hours=6),
        annotations: dict[str, str] | None = None,
        spec: NodeClaimSpec | None = None,
    ) -> None:
        (kind,) = (t for t in self.types if t.capacity["cpu"] == cpu * 1000)
        labels = {
            names.NODEPOOL: "default",
            names.INSTANCE_TYPE: kind.name,
            names.ZONE: "a",
            names.CAPACITY_TYPE: names.SPOT if spot else names.ON_DEMAND,
            names.ARCH: "amd64",
            names.OS: "linux",
        }
        created = NOW - age
        size = {**format_resources(kind.allocatable)}
        self.claims.append(
            NodeClaim(
                metadata=ObjectMeta(
                    name=f"claim-{name}", uid=f"claim-{name}", labels=labels, creation_timestamp=created
                ),
                spec=spec or NodeClaimSpec(expire_after="Never"),
                status=NodeClaimStatus(
                    node_name=name,
                    provider_id=f"aws:///a/i-{name}",
                    conditions=[
                        Condition(type=type_, status="True", last_transition_time=created)
                        for type_ in (nodeclaim.REGISTERED, nodeclaim.INITIALIZED)
                    ],
                ),
            )
        )
        self.nodes.append(
            Node(
                metadata=ObjectMeta(
                    name=name,
                    labels={**labels, names.INITIALIZED: "true", names.HOSTNAME: name},
                    annotations=annotations or {},
                    creation_timestamp=created,
                ),
                spec=NodeSpec(provider_id=f"aws:///a/i-{name}"),
                status=NodeStatus(
                    allocatable={**size}, capacity={**size}, conditions=[Condition(type="Ready", status="True")]
                ),
            )
        )

    def pod(
        self,
        name: str,
        node: str,
        cpu: int = 1000,
        *,
        owned: bool = True,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="rs", controller=True)
        self.pods.append(
            Pod(
                metadata=ObjectMeta(
                    name=name,
                    namespace="default",
                    uid=name,
                    labels={"app": "web"},
                    annotations=annotations or {},
                    owner_references=[owner] if owned else [],
                    creation_timestamp=NOW - timedelta(hours=6),
                ),
                spec=PodSpec(
                    node_name=node,
                    containers=[Container(resources=ResourceRequirements(requests={"cpu": f"{cpu}m"}))],
                    **spec,
                ),
                status=PodStatus(phase="Running"),
            )
        )

    def pod_budget(self, allowed: int) -> None:
        self.pod_disruption_budgets.append(
            PodDisruptionBudget(
                metadata=ObjectMeta(name="web", namespace="default"),
                spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "web"})),
                status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            )
        )

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(
            taken_at=NOW,
            pods=tuple(self.pods),
            nodes=tuple(self.nodes),
            node_claims=tuple(self.claims),
            node_pools=(self.pool,),
            pod_disruption_budgets=tuple(self.pod_disruption_budgets),
        )

    def state(self, *, later: timedelta = timedelta(0), nominated: frozenset[str] = frozenset()) -> DisruptionState:
        snapshot = with_fields(self.snapshot, taken_at=NOW + later)
        return DisruptionState(
            snapshot=snapshot,
            now=NOW + later,
            instance_types={"default": self.types},
            nominated=nominated,
            is_drifted=node_class_drift,
        )

    def budget_tracker(self) -> BudgetTracker:
        return BudgetTracker(self.snapshot, now=NOW)


@pytest.fixture
def cluster() -> Cluster:
    """An empty cluster with one pool that consolidates at once and has no effective budget."""
    return Cluster()


@pytest.fixture
def make() -> Callable[[], Cluster]:
    """Creates such clusters, for property tests."""
    return Cluster
