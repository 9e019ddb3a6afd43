"""What the relay reads of each object, and how it learns of it.

Only these fields are decoded, so that watching 100,000 pods costs little, and no spec or secret can leave by mistake. A
list holds all pods at once: what many of them have in common is kept once, and what nobody asks for is dropped at once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import LabelSelector, ObjectMeta, Struct
from shared.cluster import resources

if TYPE_CHECKING:
    from shared.cluster.resources import Resource

_ASKED_FOR = frozenset({"PodScheduled", "Ready"})
_FINISHED = frozenset({"Succeeded", "Failed"})
_DAEMON_OWNERS = frozenset({"DaemonSet", "Node"})


class Owner(Struct):
    """Who a pod belongs to."""

    kind: str = ""


class Protection(Struct, rename=None):
    """The annotations that keep a pod from being disrupted, as they stand."""

    current: str = msgspec.field(name=names.DO_NOT_DISRUPT, default="")
    evict: str = msgspec.field(name=names.LEGACY_DO_NOT_DISRUPT[0], default="")
    consolidate: str = msgspec.field(name=names.LEGACY_DO_NOT_DISRUPT[1], default="")


class PodMetadata(Struct):
    """A pod's metadata, as far as the relay looks."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: Protection = Protection()
    owner_references: list[Owner] = []

    def __post_init__(self) -> None:
        """Share the labels' texts."""
        for key, value in self.labels.items():
            self.labels[key] = sys.intern(value)


class WatchedCondition(Struct):
    """A condition without its texts."""

    type: str = ""
    status: str = ""
    reason: str = ""


class PodSpec(Struct):
    """Where a pod is."""

    node_name: str = ""


class PodStatus(Struct):
    """How a pod is."""

    phase: str = ""
    conditions: list[WatchedCondition] = []

    def __post_init__(self) -> None:
        """Keep the conditions that somebody asks for."""
        self.conditions[:] = [c for c in self.conditions if c.type in _ASKED_FOR]


class WatchedPod(Struct):
    """A pod, as far as the relay looks."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_unschedulable(self) -> bool:
        """Whether the scheduler has found no place for it, and a new node might be one."""
        return (
            not self.spec.node_name
            and self.metadata.deletion_timestamp is None
            and not self.is_daemon
            and any(
                c.type == "PodScheduled" and c.status == "False" and c.reason == "Unschedulable"
                for c in self.status.conditions
            )
        )

    @property
    def is_daemon(self) -> bool:
        """Whether it belongs to its node: a DaemonSet's pod, or a static one."""
        return any(owner.kind in _DAEMON_OWNERS for owner in self.metadata.owner_references)

    @property
    def occupies(self) -> str:
        """The node that isn't empty because of this pod; "" when it is none's."""
        counts = not self.is_daemon and self.metadata.deletion_timestamp is None and not self.is_finished
        return self.spec.node_name if counts else ""

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.status.phase in _FINISHED

    @property
    def is_ready(self) -> bool:
        """Whether it counts as healthy: one that doesn't may be evicted where a healthy one may not."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)


class WatchedTaint(Struct):
    """A taint."""

    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(Struct):
    """A node's taints."""

    taints: list[WatchedTaint] = []


class NodeStatus(Struct):
    """A node's health and size."""

    conditions: list[WatchedCondition] = []
    allocatable: dict[str, str | int | float] = {}


class WatchedNode(Struct):
    """A node, as far as the relay looks."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def key(self) -> str:
        """The node's name."""
        return self.metadata.name

    @property
    def is_ours(self) -> bool:
        """Whether a NodePool made it."""
        return names.NODEPOOL in self.metadata.labels

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet says so."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to come of its start."""
        return self.is_ready and self.metadata.labels.get(names.INITIALIZED) == "true"

    @property
    def is_deleting(self) -> bool:
        """Whether somebody asked for its deletion, and termination has to see to it."""
        return self.metadata.deletion_timestamp is not None and (
            self.is_ours or names.TERMINATION_FINALIZER in self.metadata.finalizers
        )


class ClaimStatus(Struct):
    """A claim's node, and how far it is."""

    node_name: str = ""
    conditions: list[WatchedCondition] = []


class WatchedNodeClaim(Struct):
    """A claim, as far as the relay looks."""

    metadata: ObjectMeta = ObjectMeta()
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> str:
        """The claim's name."""
        return self.metadata.name

    @property
    def has_drain(self) -> bool:
        """Whether its drain has begun."""
        return self.metadata.deletion_timestamp is not None and any(
            c.type == nodeclaim.DRAINED for c in self.status.conditions
        )


class BudgetSpec(Struct):
    """Which pods a budget is for."""

    selector: LabelSelector | None = None


class BudgetStatus(Struct):
    """How many of them may go now."""

    disruptions_allowed: int = 0
    observed_generation: int = 0


class WatchedBudget(Struct):
    """A PodDisruptionBudget, as far as the relay looks."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def has_room(self) -> bool:
        """Whether it would let a pod go: the eviction API trusts no status that is older than the spec."""
        return self.status.disruptions_allowed > 0 and self.status.observed_generation >= self.metadata.generation


class WatchedObject(Struct):
    """A pool or a class: only its metadata matters."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """The object's name."""
        return self.metadata.name


Watched = WatchedPod | WatchedNode | WatchedNodeClaim | WatchedBudget | WatchedObject

POOL_KINDS = (resources.NODE_POOLS, resources.NODE_CLASSES, resources.PROVISIONERS, resources.NODE_TEMPLATES)

KINDS: dict[Resource, type[Watched]] = {
    resources.PODS: WatchedPod,
    resources.NODES: WatchedNode,
    resources.NODE_CLAIMS: WatchedNodeClaim,
    resources.POD_DISRUPTION_BUDGETS: WatchedBudget,
    **dict.fromkeys(POOL_KINDS, WatchedObject),
}
"""What is watched, and how it is decoded."""


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One object of a kind was added, changed or (``gone``) deleted."""

    resource: Resource
    object: Watched
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Listed:
    """All objects of a kind: at the start, and after a watch fell too far behind."""

    resource: Resource
    objects: tuple[Watched, ...]


Change = Changed | Listed


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """An object's version."""

    resource_version: str = ""


class Versioned(msgspec.Struct, frozen=True):
    """Reads only the version of an object, for bookmarks and for objects that can't be decoded."""

    metadata: Version = Version()
