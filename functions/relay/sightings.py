"""What the relay reads of each object, and how it learns of it.

Only these fields are decoded, so that watching 100,000 pods costs little, and no spec or secret can leave by mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api.meta import ObjectMeta, Struct
from shared.cluster import resources

if TYPE_CHECKING:
    from shared.cluster.resources import Resource

_FINISHED = frozenset({"Succeeded", "Failed"})
_DAEMON_OWNERS = frozenset({"DaemonSet", "Node"})


class Owner(Struct):
    """Who a pod belongs to."""

    kind: str = ""


class PodMetadata(Struct):
    """A pod's metadata, as far as the relay looks."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None
    owner_references: list[Owner] = []


class SightedCondition(Struct):
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
    conditions: list[SightedCondition] = []


class SightedPod(Struct):
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
        counts = not self.is_daemon and self.metadata.deletion_timestamp is None and self.status.phase not in _FINISHED
        return self.spec.node_name if counts else ""


class SightedTaint(Struct):
    """A taint."""

    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(Struct):
    """A node's taints."""

    taints: list[SightedTaint] = []


class NodeStatus(Struct):
    """A node's health and size."""

    conditions: list[SightedCondition] = []
    allocatable: dict[str, str | int | float] = {}


class SightedNode(Struct):
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


class SightedObject(Struct):
    """A claim, a pool or a class: only its metadata matters."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """The object's name."""
        return self.metadata.name


Sighted = SightedPod | SightedNode | SightedObject

POOL_KINDS = (resources.NODE_POOLS, resources.NODE_CLASSES, resources.PROVISIONERS, resources.NODE_TEMPLATES)

KINDS: dict[Resource, type[Sighted]] = {
    resources.PODS: SightedPod,
    resources.NODES: SightedNode,
    resources.NODE_CLAIMS: SightedObject,
    **dict.fromkeys(POOL_KINDS, SightedObject),
}
"""What is watched, and how it is decoded."""


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One object of a kind was added, changed or (``gone``) deleted."""

    resource: Resource
    object: Sighted
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Listed:
    """All objects of a kind: at the start, and after a watch fell too far behind."""

    resource: Resource
    objects: tuple[Sighted, ...]


Change = Changed | Listed


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """An object's version."""

    resource_version: str = ""


class Versioned(msgspec.Struct, frozen=True):
    """Reads only the version of an object, for bookmarks and for objects that can't be decoded."""

    metadata: Version = Version()
