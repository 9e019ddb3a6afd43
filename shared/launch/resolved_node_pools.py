"""What each pool could launch right now: its instance types, or the reason why it can't.

The same answer feeds the provisioner, the pools' conditions and the command line, so what people read is what decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.api.nodepool import node_class_for
from shared.cloud_provider import ResolvedNodePools
from shared.instance_types import discovered_capacity
from shared.instance_types.provider import list_instance_types
from shared.launch.node_class.readiness import node_class_not_ready, node_class_of
from shared.launch.node_class.status import resolve

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.cluster.connect import ClusterInfo
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import InstanceType


def resolve_node_classes(
    classes: Iterable[EC2NodeClass], cluster: ClusterInfo, *, default_instance_profile: str, now: datetime
) -> Mapping[str, EC2NodeClass]:
    """By name: the classes with what AWS says of them now."""
    return {
        c.name: msgspec.structs.replace(
            c, status=resolve(c, cluster, default_instance_profile=default_instance_profile, now=now)
        )
        for c in classes
    }


def resolve_node_pools(
    pools: Iterable[NodePool],
    classes: Iterable[EC2NodeClass],
    raw: InstanceTypeCatalog,
    cluster: ClusterInfo,
    *,
    unavailable: Collection[tuple[str, str, str]],
    default_instance_profile: str,
    now: datetime,
    nodes: Iterable[Node] = (),
    claims: Iterable[NodeClaim] = (),
) -> ResolvedNodePools:
    """What the pools could launch now; ``unavailable`` are (capacity type, instance type, zone).

    From ``nodes`` and their ``claims`` it is learnt how much memory a type really has.
    """
    live = resolve_node_classes(classes, cluster, default_instance_profile=default_instance_profile, now=now)
    return node_pools_by_status(pools, live.values(), raw, unavailable=unavailable, nodes=nodes, claims=claims)


def node_pools_by_status(
    pools: Iterable[NodePool],
    classes: Collection[EC2NodeClass],
    raw: InstanceTypeCatalog,
    *,
    unavailable: Collection[tuple[str, str, str]],
    nodes: Iterable[Node] = (),
    claims: Iterable[NodeClaim] = (),
) -> ResolvedNodePools:
    """As :func:`resolve_node_pools`, by what the classes' own statuses say; AWS isn't asked."""
    there, claimed = tuple(nodes), tuple(claims)
    types: dict[str, tuple[InstanceType, ...]] = {}
    not_ready: dict[str, str] = {}
    chosen: dict[str, EC2NodeClass] = {}
    built: dict[tuple[str, bytes], tuple[InstanceType, ...]] = {}
    for pool in pools:
        types[pool.name] = ()
        node_class = node_class_of(pool, classes)
        obstacle = node_class_not_ready(pool, node_class)
        if node_class is None or obstacle is not None:
            not_ready[pool.name] = obstacle[1] if obstacle is not None else ""
            continue
        node_class = node_class_for(pool, node_class)
        kind = (node_class.name, msgspec.json.encode(node_class.spec.kubelet))
        if kind not in built:
            built[kind] = list_instance_types(
                raw,
                node_class,
                zones={s.zone for s in node_class.status.subnets},
                unavailable=unavailable,
                observed_memory=discovered_capacity.memory(there, claimed, node_class),
            )
        types[pool.name] = built[kind]
        chosen[pool.name] = node_class
    return ResolvedNodePools(instance_types=types, not_ready=not_ready, node_classes=chosen)
