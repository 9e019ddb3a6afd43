"""The kinds that the relay watches, the fields that it decodes of each, and the changes that a watcher reports.

Only these fields are decoded, so watching 100,000 pods is cheap, and no spec or secret can leave by mistake. The
first list holds all pods at once, so equal label values share one string, and unused conditions are dropped.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from relay.watched_room import WatchedBuffer, WatchedRequest
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import ApiStruct, LabelSelector, ObjectMeta
from shared.base.struct import Struct, WireStruct
from shared.cluster import resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shared.cluster.resources import Resource

_USED_CONDITIONS = frozenset({"PodScheduled", "Ready"})
_FINISHED = frozenset({"Succeeded", "Failed"})
_DAEMON_OWNERS = frozenset({"DaemonSet", "Node"})


class Owner(ApiStruct):
    """An owner reference of a pod."""

    kind: str = ""


class DoNotDisrupt(ApiStruct, rename=None):
    """The values of the annotations that protect a pod from disruption: the current one and two legacy ones."""

    current: str = msgspec.field(name=names.DO_NOT_DISRUPT, default="")
    evict: str = msgspec.field(name=names.LEGACY_DO_NOT_DISRUPT[0], default="")
    consolidate: str = msgspec.field(name=names.LEGACY_DO_NOT_DISRUPT[1], default="")


class PodMetadata(ApiStruct):
    """The metadata of a pod."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: DoNotDisrupt = DoNotDisrupt()
    owner_references: list[Owner] = []

    def __post_init__(self) -> None:
        """Intern the label values: many pods have the same ones."""
        for key, value in self.labels.items():
            self.labels[key] = sys.intern(value)


class WatchedCondition(ApiStruct):
    """A condition without message and times."""

    type: str = ""
    status: str = ""
    reason: str = ""


class PodSpec(ApiStruct):
    """The node that a pod is bound to."""

    node_name: str = ""


class PodStatus(ApiStruct):
    """The phase, the nominated node and the used conditions of a pod."""

    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[WatchedCondition] = []

    def __post_init__(self) -> None:
        """Drop unused conditions."""
        self.conditions[:] = [c for c in self.conditions if c.type in _USED_CONDITIONS]


class WatchedPod(ApiStruct):
    """A pod."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_unschedulable(self) -> bool:
        """Whether the scheduler marked it Unschedulable, and a new node might help: not for DaemonSet pods.

        A pod that is nominated for a node waits for that one. SchedulerError may be a PodGroup's (shared.api.pods).
        """
        return (
            not self.spec.node_name
            and not self.status.nominated_node_name
            and self.metadata.deletion_timestamp is None
            and not self.is_daemon
            and any(
                c.type == "PodScheduled" and c.status == "False" and c.reason in {"Unschedulable", "SchedulerError"}
                for c in self.status.conditions
            )
        )

    @property
    def nominated_node(self) -> str:
        """The node that it is nominated for while it has none; "" for bound, terminating and other pods."""
        is_pending = not self.spec.node_name and self.metadata.deletion_timestamp is None
        return self.status.nominated_node_name if is_pending else ""

    @property
    def is_daemon(self) -> bool:
        """Whether a DaemonSet or a node (static pods) owns the pod."""
        return any(owner.kind in _DAEMON_OWNERS for owner in self.metadata.owner_references)

    @property
    def occupied_node(self) -> str:
        """The node that isn't empty because of this pod, even a terminating one; "" for DaemonSet and finished pods."""
        return "" if self.is_daemon or self.is_finished else self.spec.node_name

    @property
    def load_node(self) -> str:
        """The node whose load it is part of: ``occupied_node`` until it begins to terminate."""
        return self.occupied_node if self.metadata.deletion_timestamp is None else ""

    @property
    def is_finished(self) -> bool:
        """Whether its phase is Succeeded or Failed."""
        return self.status.phase in _FINISHED

    @property
    def is_ready(self) -> bool:
        """Whether its Ready condition is true; unready pods may be evicted where ready ones may not."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)


class WatchedTaint(ApiStruct):
    """A taint."""

    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(ApiStruct):
    """The taints of a node."""

    taints: list[WatchedTaint] = []


class NodeStatus(ApiStruct):
    """The conditions and allocatable resources of a node."""

    conditions: list[WatchedCondition] = []
    allocatable: dict[str, str | int | float] = {}


_CLOSING_TAINTS = frozenset({names.PODS_NOT_NOMINATED_TAINT, names.REBOOTING_TAINT})


class WatchedNode(ApiStruct):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def key(self) -> str:
        """The node's name."""
        return self.metadata.name

    @property
    def is_managed(self) -> bool:
        """Whether the node belongs to a NodePool, or to a NodeClaim without one."""
        return names.NODEPOOL in self.metadata.labels or names.NODECLASS in self.metadata.labels

    @property
    def is_ready(self) -> bool:
        """Whether its Ready condition is true."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def is_closed(self) -> bool:
        """Whether the node is Ready, but closed until its planned pods are nominated, or until it has rebooted."""
        return self.is_ready and any(taint.key in _CLOSING_TAINTS for taint in self.spec.taints)

    @property
    def is_initialized(self) -> bool:
        """Whether the node is Ready and has the Initialized label."""
        return self.is_ready and self.metadata.labels.get(names.INITIALIZED) == "true"

    @property
    def is_standby(self) -> bool:
        """Whether the node is kept stopped, or on its way there: it isn't initialized until a decision needs it."""
        return names.STANDBY in self.metadata.labels

    @property
    def is_deleting(self) -> bool:
        """Whether the node is being deleted and the termination function must drain it."""
        return self.metadata.deletion_timestamp is not None and (
            self.is_managed or names.TERMINATION_FINALIZER in self.metadata.finalizers
        )


class NodeClaimStatus(ApiStruct):
    """The node name and the conditions of a NodeClaim."""

    node_name: str = ""
    conditions: list[WatchedCondition] = []


class WatchedNodeClaim(ApiStruct):
    """A NodeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def key(self) -> str:
        """The NodeClaim's name."""
        return self.metadata.name

    @property
    def waits_for_launch(self) -> bool:
        """Whether somebody created it without a NodePool, and nothing has tried to launch it yet."""
        return names.NODEPOOL not in self.metadata.labels and not any(
            c.type == nodeclaim.LAUNCHED for c in self.status.conditions
        )

    @property
    def is_rebooting(self) -> bool:
        """Whether a reboot of its node was requested and hasn't ended."""
        return any(c.type == nodeclaim.REBOOTING and c.status == "True" for c in self.status.conditions)

    @property
    def is_draining(self) -> bool:
        """Whether its drain has started: it is being deleted and has the Drained condition."""
        return self.metadata.deletion_timestamp is not None and any(
            c.type == nodeclaim.DRAINED for c in self.status.conditions
        )


class BudgetSpec(ApiStruct):
    """The pods that a PodDisruptionBudget covers."""

    selector: LabelSelector | None = None


class BudgetStatus(ApiStruct):
    """How many of them may be evicted now."""

    disruptions_allowed: int = 0
    observed_generation: int = 0


class WatchedBudget(ApiStruct):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def allows_disruption(self) -> bool:
        """Whether it allows an eviction; the eviction API ignores a status that is older than the spec."""
        return self.status.disruptions_allowed > 0 and self.status.observed_generation >= self.metadata.generation


class WatchedPoolOrClass(ApiStruct):
    """A NodePool, EC2NodeClass, legacy equivalent or NodeOverlay: only its metadata matters."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """The object's name."""
        return self.metadata.name


Watched = (
    WatchedPod | WatchedNode | WatchedNodeClaim | WatchedBudget | WatchedBuffer | WatchedRequest | WatchedPoolOrClass
)

POOL_AND_CLASS_KINDS = (
    resources.NODE_POOLS,
    resources.NODE_CLASSES,
    resources.PROVISIONERS,
    resources.NODE_TEMPLATES,
    resources.NODE_OVERLAYS,
)

WATCHED_KINDS: dict[Resource, type[Watched]] = {
    resources.PODS: WatchedPod,
    resources.NODES: WatchedNode,
    resources.NODE_CLAIMS: WatchedNodeClaim,
    resources.POD_DISRUPTION_BUDGETS: WatchedBudget,
    resources.CAPACITY_BUFFERS: WatchedBuffer,
    resources.PROVISIONING_REQUESTS: WatchedRequest,
    **dict.fromkeys(POOL_AND_CLASS_KINDS, WatchedPoolOrClass),
}
"""The watched kinds, and the type that each is decoded into."""


class ObjectChanged(Struct, kw_only=True):
    """One object was added, modified or (``deleted``) deleted."""

    resource: Resource
    object: Watched
    deleted: bool = False


class KindListed(Struct, kw_only=True):
    """All objects of a kind: at the start, and after the resourceVersion of a watch expired."""

    resource: Resource
    objects: tuple[Watched, ...]


Change = ObjectChanged | KindListed


def updates(change: Change, known_keys: Callable[[Resource], set[str]]) -> Iterator[tuple[str, Watched | None]]:
    """The key and the new state of each object that the change is about; None for one that is gone.

    ``known_keys`` gives the keys of the kind's objects so far, of which those that a list leaves out are gone.
    """
    if isinstance(change, ObjectChanged):
        yield change.object.key, None if change.deleted else change.object
        return
    for key in known_keys(change.resource) - {obj.key for obj in change.objects}:
        yield key, None
    for obj in change.objects:
        yield obj.key, obj


class Version(WireStruct, rename="camel"):
    """An object's resourceVersion."""

    resource_version: str = ""


class Versioned(WireStruct):
    """Only the resourceVersion of an object, for bookmarks and for objects that can't be decoded."""

    metadata: Version = Version()
