"""The instance types that the NodePools can launch: by a Region's catalog, or as a document lists them.

The status of a node class (Tenon's and Karpenter's controllers write it) says its subnets and whether it is ready, so
users need no permissions on EC2. A node class without a status is assumed to be ready in every zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shared.api import labels as names
from shared.api.meta import Condition
from shared.api.nodeclass import READY, EC2NodeClass, ResolvedSubnet
from shared.api.nodepool import node_class_for
from shared.api.pause import paused_pools
from shared.base import runtime
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import ResolvedNodePools
from shared.instance_types.provider import InstanceTypeCache
from shared.launch.overlaid_pools import with_overlays
from shared.launch.resolved_node_pools import LaunchConditions, resolve_node_pools

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import InstanceType
    from shared.snapshot import Snapshot


class OfferingSource(Protocol):
    """What the NodePools of a snapshot can launch."""

    def resolve_pools(self, snapshot: Snapshot) -> ResolvedNodePools:
        """Instance types with prices by NodePool, and why a NodePool can't launch."""
        ...


class CatalogOfferings(Struct, kw_only=True):
    """A Region's catalog, and the ``conditions`` of launches that the deployment's functions know of."""

    raw: InstanceTypeCatalog
    conditions: LaunchConditions = LaunchConditions()

    def resolve_pools(self, snapshot: Snapshot) -> ResolvedNodePools:
        """What the NodePools can launch, by their node classes' status."""
        zones = _zones(snapshot, self.raw)
        resolved = resolve_node_pools(
            snapshot,
            [_with_status(c, zones) for c in snapshot.node_classes],
            self.raw,
            self.conditions,
            cache=InstanceTypeCache.of(runtime.current()),
            now=snapshot.taken_at,
        )
        return resolved.paused(paused_pools(snapshot.node_pools, snapshot.pause, now=snapshot.taken_at))


class DocumentOfferings(Struct, kw_only=True):
    """Instance types as a document lists them; ``for_pool`` replaces them for a NodePool."""

    types: tuple[InstanceType, ...]
    for_pool: Mapping[str, tuple[InstanceType, ...]] = {}

    def resolve_pools(self, snapshot: Snapshot) -> ResolvedNodePools:
        """Every NodePool can launch; node classes don't matter."""
        classes = {c.name: c for c in snapshot.node_classes}
        resolved = ResolvedNodePools(
            instance_types={p.name: self.for_pool.get(p.name, self.types) for p in snapshot.node_pools},
            not_ready={},
            node_classes={
                p.name: node_class_for(p, classes[name])
                for p in snapshot.node_pools
                if (name := p.spec.template.spec.node_class_ref.name) in classes
            },
        )
        cache = InstanceTypeCache.of(runtime.current())
        return with_overlays(resolved, snapshot.node_pools, snapshot.node_overlays, cache)


def has_status(node_class: EC2NodeClass) -> bool:
    """Whether a controller wrote the node class's status."""
    return any(c.type == READY for c in node_class.status.conditions)


def _with_status(node_class: EC2NodeClass, zones: Iterable[str]) -> EC2NodeClass:
    """The node class; if it has no status, it is ready and has a subnet in each zone."""
    if has_status(node_class):
        return node_class
    status = with_fields(
        node_class.status,
        subnets=node_class.status.subnets or [ResolvedSubnet(id=f"subnet-{z}", zone=z) for z in zones],
        conditions=[Condition(type=READY, status="True", reason="Assumed")],
    )
    return with_fields(node_class, status=status)


def _zones(snapshot: Snapshot, raw: InstanceTypeCatalog) -> tuple[str, ...]:
    """The zones that have nodes; without nodes, all zones of the Region."""
    node_zones = {n.metadata.labels.get(names.ZONE, "") for n in snapshot.nodes} & set(raw.zones)
    return tuple(sorted(node_zones or raw.zones))


def without(resolved_pools: ResolvedNodePools, words: Collection[str]) -> ResolvedNodePools:
    """The same with all offerings of these capacity types, zones, instance types or families unavailable."""
    return with_fields(
        resolved_pools,
        instance_types={pool: _without(types, words) for pool, types in resolved_pools.instance_types.items()},
    )


def _without(types: tuple[InstanceType, ...], words: Collection[str]) -> tuple[InstanceType, ...]:
    return tuple(
        with_fields(
            t,
            offerings=tuple(
                with_fields(o, available=o.available and not matches(words, t.name, o.zone, o.capacity_type))
                for o in t.offerings
            ),
        )
        for t in types
    )


def matches(words: Collection[str], instance_type: str, zone: str, capacity_type: str) -> bool:
    """Whether one of the words names this offering: "spot", "us-east-1a", "m5.large" or "m5"."""
    return not {instance_type, instance_type.partition(".")[0], zone, capacity_type}.isdisjoint(words)
