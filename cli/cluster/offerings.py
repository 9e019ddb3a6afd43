"""What could be bought: from a Region's catalog and the classes' own statuses, or as a document lists it.

A class that says of itself which subnets and images it has (Tenon's and Karpenter's controllers both write that) is
believed; that spares an operator all permissions on EC2. One that says nothing is taken to be ready in every zone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api.meta import Condition
from shared.api.nodeclass import READY, EC2NodeClass, ResolvedSubnet
from shared.api.nodepool import node_class_for
from shared.launch import resolved_node_pools
from shared.launch.resolved_node_pools import ResolvedNodePools

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import InstanceType
    from shared.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Sold:
    """A Region's catalog. ``unavailable`` are (capacity type, instance type, zone) without capacity a moment ago."""

    raw: InstanceTypeCatalog
    unavailable: Collection[tuple[str, str, str]] = ()

    def offers(self, snapshot: Snapshot) -> ResolvedNodePools:
        """What the pools could launch, by what their classes say of themselves."""
        zones = _zones(snapshot, self.raw)
        return resolved_node_pools.node_pools_by_status(
            snapshot.node_pools,
            [_stated(c, zones) for c in snapshot.node_classes],
            self.raw,
            unavailable=self.unavailable,
            nodes=snapshot.nodes,
            claims=snapshot.node_claims,
        )


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Instance types as a document lists them, some pools with a choice of their own."""

    types: tuple[InstanceType, ...]
    for_pool: Mapping[str, tuple[InstanceType, ...]] = field(default_factory=dict)

    def offers(self, snapshot: Snapshot) -> ResolvedNodePools:
        """Every pool may launch; its class is not asked."""
        classes = {c.name: c for c in snapshot.node_classes}
        return ResolvedNodePools(
            instance_types={p.name: self.for_pool.get(p.name, self.types) for p in snapshot.node_pools},
            not_ready={},
            node_classes={
                p.name: node_class_for(p, classes[name])
                for p in snapshot.node_pools
                if (name := p.spec.template.spec.node_class_ref.name) in classes
            },
        )


def is_stated(node_class: EC2NodeClass) -> bool:
    """Whether the class says of itself what it is on AWS."""
    return any(c.type == READY for c in node_class.status.conditions)


def _stated(node_class: EC2NodeClass, zones: Iterable[str]) -> EC2NodeClass:
    """The class; ready, with a subnet in each zone, if it says nothing of itself."""
    if is_stated(node_class):
        return node_class
    status = msgspec.structs.replace(
        node_class.status,
        subnets=node_class.status.subnets or [ResolvedSubnet(id=f"subnet-{z}", zone=z) for z in zones],
        conditions=[Condition(type=READY, status="True", reason="Assumed")],
    )
    return msgspec.structs.replace(node_class, status=status)


def _zones(snapshot: Snapshot, raw: InstanceTypeCatalog) -> tuple[str, ...]:
    """Where the cluster's nodes are; without nodes, everywhere in the Region."""
    there = {n.metadata.labels.get(names.ZONE, "") for n in snapshot.nodes} & set(raw.zones)
    return tuple(sorted(there or raw.zones))


def without(resolved_pools: ResolvedNodePools, what: Collection[str]) -> ResolvedNodePools:
    """The same with nothing to be had of these capacity types, zones, instance types or families."""
    return replace(
        resolved_pools,
        instance_types={pool: _marked(types, what) for pool, types in resolved_pools.instance_types.items()},
    )


def _marked(types: tuple[InstanceType, ...], what: Collection[str]) -> tuple[InstanceType, ...]:
    return tuple(
        replace(
            t,
            offerings=tuple(
                replace(o, available=o.available and not is_named(what, t.name, o.zone, o.capacity_type))
                for o in t.offerings
            ),
        )
        for t in types
    )


def is_named(what: Collection[str], instance_type: str, zone: str, capacity_type: str) -> bool:
    """Whether one of the words means this offering: "spot", "us-east-1a", "m5.large" or "m5"."""
    return not {instance_type, instance_type.partition(".")[0], zone, capacity_type}.isdisjoint(what)
