"""A node and what stands on it: what is left of it, in exact integers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.api.quantity import parse_resources

if TYPE_CHECKING:
    from local.kubernetes.scheduler.pod_signature import Port, Shape
    from shared.api.kubernetes import Node
    from shared.api.quantity import Resources


@dataclass(frozen=True, eq=False)
class Tenant:
    """A pod that has a node, or is about to."""

    uid: str
    shape: Shape
    terminating: bool = False


@dataclass(eq=False)
class Place:
    """One node; ``order`` says when it came, and decides ties."""

    node: Node
    order: int
    allocatable: Resources = field(init=False)
    requested: Counter[str] = field(default_factory=Counter)
    ports: Counter[Port] = field(default_factory=Counter)
    tenants: dict[str, Tenant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.allocatable = parse_resources(self.node.status.allocatable)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return self.node.metadata.labels

    def renew(self, node: Node) -> None:
        """Take the node's new state, keeping what stands on it."""
        self.node = node
        self.allocatable = parse_resources(node.status.allocatable)

    def add(self, tenant: Tenant) -> None:
        """Put a pod there."""
        self.tenants[tenant.uid] = tenant
        self.requested.update(tenant.shape.requests)
        self.ports.update(tenant.shape.ports)

    def drop(self, uid: str) -> Tenant:
        """Take a pod away."""
        tenant = self.tenants.pop(uid)
        self.requested.subtract(tenant.shape.requests)
        self.ports.subtract(tenant.shape.ports)
        return tenant
