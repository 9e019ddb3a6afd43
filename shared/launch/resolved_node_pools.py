"""The instance types that each NodePool can launch now, or why it can't launch.

The provisioner, the NodePools' conditions and the command line use the same result, so what users read is what decides.
A NodePool can't launch with a NodeClass that is missing, being deleted, not ready, or has no zone in common with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.api import labels
from shared.api.meta import EventReason, condition
from shared.api.nodeclass import READY
from shared.api.nodepool import node_class_for
from shared.api.spot import DEFAULT, spot_options
from shared.base import runtime
from shared.base.struct import Struct
from shared.cloud_provider import ResolvedNodePools
from shared.instance_types import allocatable
from shared.instance_types.instance_type import met
from shared.instance_types.overlays import OverlaidPools, apply_overlays, labels_of
from shared.instance_types.provider import list_instance_types
from shared.instance_types.spot_price_limit import within_spot_price_share
from shared.instance_types.spot_risk import with_spot_risk
from shared.instance_types.unoffered_zones import without_zones
from shared.instance_types.volume_price import volume_gib, volume_price, with_volume_price
from shared.launch.node_class.free_addresses import short_zones
from shared.launch.node_class.status import resolve

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from shared.api.kubernetes import Node, NodeSelectorRequirement
    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass, ResolvedSubnet
    from shared.api.nodepool import NodePool
    from shared.api.spot import SpotOptions
    from shared.cluster.connect import ClusterInfo
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import InstanceType, OfferingKey
    from shared.instance_types.interruption_rates import Pool
    from shared.launch.node_class.free_addresses import ShortSubnet


def node_class_of(pool: NodePool, classes: Iterable[EC2NodeClass]) -> EC2NodeClass | None:
    """The NodeClass that the pool refers to, or None if there is none of that name."""
    name = pool.spec.template.spec.node_class_ref.name
    return next((c for c in classes if c.name == name), None)


def node_class_not_ready(pool: NodePool, node_class: EC2NodeClass | None) -> tuple[str, str] | None:
    """Why the pool can't launch with its NodeClass (reason, message), or None if it can."""
    name = pool.spec.template.spec.node_class_ref.name
    if node_class is None:
        return EventReason("NodeClassNotFound"), f'there is no valid EC2NodeClass or AWSNodeTemplate named "{name}"'
    if node_class.metadata.deletion_timestamp is not None:
        return EventReason("NodeClassTerminating"), f"{node_class.ref} is being deleted"
    ready = condition(node_class.status.conditions, READY)
    if ready is None or ready.status != "True":
        message = ready.message if ready is not None else "its status is not known yet"
        return EventReason("NodeClassNotReady"), f"{node_class.ref}: {message}"
    conflict = zone_conflict(pool, node_class)
    return (EventReason("ZonesConflict"), conflict) if conflict is not None else None


def zone_conflict(pool: NodePool, node_class: EC2NodeClass) -> str | None:
    """Why no subnet of the class is in a zone that the pool allows, naming both fields; None if one is."""
    if allowed_subnets(pool, node_class) or not node_class.status.subnets:
        return None
    requirements = _zone_requirements(pool)
    field = node_class.selector_path("subnetSelectorTerms")
    zones = ", ".join(sorted({f"{s.zone} ({s.zone_id})" if s.zone_id else s.zone for s in node_class.status.subnets}))
    required = " and ".join(f"{r.key} {r.operator} {', '.join(r.values)}".rstrip() for r in requirements)
    return (
        f"{field} of {node_class.kind} {node_class.name} selects subnets in {zones} only, "
        f"but {pool.kind} {pool.name} requires {required}"
    )


def allowed_subnets(pool: NodePool, node_class: EC2NodeClass) -> list[ResolvedSubnet]:
    """The subnets of the class that are in zones that the pool allows."""
    subnets = node_class.status.subnets
    for requirement in _zone_requirements(pool):
        by_id = labels.normalize_key(requirement.key) == labels.ZONE_ID
        subnets = [s for s in subnets if met(requirement.operator, requirement.values, s.zone_id if by_id else s.zone)]
    return subnets


def _zone_requirements(pool: NodePool) -> list[NodeSelectorRequirement]:
    keys = {labels.ZONE, labels.ZONE_ID}
    return [r for r in pool.spec.template.spec.requirements if labels.normalize_key(r.key) in keys]


def resolve_node_classes(
    classes: Iterable[EC2NodeClass], cluster: ClusterInfo, *, default_instance_profile: str, now: datetime
) -> Mapping[str, EC2NodeClass]:
    """By name: the node classes with their status resolved on AWS."""
    return {
        c.name: msgspec.structs.replace(
            c, status=resolve(c, cluster, default_instance_profile=default_instance_profile, now=now)
        )
        for c in classes
    }


def resolve_node_pools(
    pools: Iterable[NodePool],
    classes: Collection[EC2NodeClass],
    catalog: InstanceTypeCatalog,
    cluster: ClusterInfo,
    *,
    unavailable: Collection[OfferingKey],
    default_instance_profile: str,
    now: datetime,
    nodes: Iterable[Node] = (),
    claims: Iterable[NodeClaim] = (),
    overlays: Sequence[NodeOverlay] = (),
    interruption_rates: Mapping[Pool, float] | None = None,
    short_subnets: Collection[ShortSubnet] = (),
) -> ResolvedNodePools:
    """What the NodePools can launch now.

    A class is launched by its status, as in Karpenter. AWS is asked only about classes whose status is not there yet,
    is of an older generation, or says that they are not ready, so that a new or mended class can launch at once.
    ``nodes`` and their ``claims`` show the memory capacity of instance types. The valid ``overlays`` change prices and
    resources. ``interruption_rates`` are by spot pool, where they differ from the default: they raise the effective
    price. Zones of ``short_subnets`` aren't offered to pools that have others.
    """
    current = [c for c in classes if _has_current_status(c)]
    stale = [c for c in classes if not _has_current_status(c)]
    resolved = resolve_node_classes(stale, cluster, default_instance_profile=default_instance_profile, now=now)
    node_classes = (*current, *resolved.values())
    return node_pools_by_status(
        pools,
        node_classes,
        catalog,
        unavailable=unavailable,
        nodes=nodes,
        claims=claims,
        overlays=overlays,
        interruption_rates=interruption_rates,
        short_subnets=short_subnets,
    )


def _has_current_status(node_class: EC2NodeClass) -> bool:
    """Whether the status, which lifecycle writes each minute, says that the class is ready as it is now."""
    ready = condition(node_class.status.conditions, READY)
    return ready is not None and ready.status == "True" and ready.observed_generation == node_class.metadata.generation


def node_pools_by_status(
    pools: Iterable[NodePool],
    classes: Collection[EC2NodeClass],
    catalog: InstanceTypeCatalog,
    *,
    unavailable: Collection[OfferingKey],
    nodes: Iterable[Node] = (),
    claims: Iterable[NodeClaim] = (),
    overlays: Sequence[NodeOverlay] = (),
    interruption_rates: Mapping[Pool, float] | None = None,
    short_subnets: Collection[ShortSubnet] = (),
) -> ResolvedNodePools:
    """As :func:`resolve_node_pools`, by the stored status of the node classes, without AWS."""
    all_pools, all_nodes, all_claims = tuple(pools), tuple(nodes), tuple(claims)
    instance_types: dict[str, tuple[InstanceType, ...]] = {}
    not_ready: dict[str, str] = {}
    node_classes: dict[str, EC2NodeClass] = {}
    volume_prices: dict[str, float] = {}
    short_zones_by_pool: dict[str, Mapping[str, tuple[ShortSubnet, ...]]] = {}
    by_class_and_kubelet: dict[tuple[str, bytes], tuple[InstanceType, ...]] = {}
    for pool in all_pools:
        instance_types[pool.name] = ()
        node_class = node_class_of(pool, classes)
        problem = node_class_not_ready(pool, node_class)
        if node_class is None or problem is not None:
            not_ready[pool.name] = problem[1] if problem is not None else ""
            continue
        node_class = node_class_for(pool, node_class)
        key = (node_class.name, msgspec.json.encode(node_class.spec.kubelet))
        if key not in by_class_and_kubelet:
            by_class_and_kubelet[key] = list_instance_types(
                catalog,
                node_class,
                zones={s.zone for s in node_class.status.subnets},
                unavailable=unavailable,
                observed_memory=allocatable.discovered_memory(all_nodes, all_claims, node_class),
            )
        instance_types[pool.name] = by_class_and_kubelet[key]
        if zones := short_zones(allowed_subnets(pool, node_class), short_subnets):
            short_zones_by_pool[pool.name] = zones
        node_classes[pool.name] = node_class
        volume_prices[pool.name] = volume_price(volume_gib(node_class), catalog.region)
    resolved = ResolvedNodePools(
        instance_types=instance_types,
        not_ready=not_ready,
        node_classes=node_classes,
        volume_prices=volume_prices,
        spot_options=_spot_options(pool for pool in all_pools if pool.name in node_classes),
        short_zones={
            name: tuple(str(subnet) for short in zones.values() for subnet in short)
            for name, zones in short_zones_by_pool.items()
        },
    )
    if overlays:
        resolved = with_overlays(resolved, all_pools, overlays)
    resolved = _with_adjusted_prices(resolved, interruption_rates or {})
    return _without_short_zones(resolved, short_zones_by_pool)


def _spot_options(pools: Iterable[NodePool]) -> dict[str, SpotOptions]:
    """By name: the options of NodePools that state any."""
    annotated = (pool for pool in pools if pool.has_own_annotations)
    return {pool.name: options for pool in annotated if (options := spot_options(pool)) != DEFAULT}


def _without_short_zones(resolved: ResolvedNodePools, zones: Mapping[str, Collection[str]]) -> ResolvedNodePools:
    """The same without these zones of NodePools."""
    if not zones:
        return resolved
    instance_types = {
        name: without_zones(types, zones.get(name, ()), slot=name) for name, types in resolved.instance_types.items()
    }
    return msgspec.structs.replace(resolved, instance_types=instance_types)


def _with_adjusted_prices(resolved: ResolvedNodePools, rates: Mapping[Pool, float]) -> ResolvedNodePools:
    """The same with spot pools' risk and nodes' volumes in effective prices, without spot that saves too little."""
    priced: dict[int, tuple[InstanceType, ...]] = {}
    instance_types: dict[str, tuple[InstanceType, ...]] = {}
    for name, types in resolved.instance_types.items():
        if id(types) not in priced:
            risky = with_spot_risk(types, rates, slot=name) if rates else types
            priced[id(types)] = with_volume_price(risky, resolved.volume_prices.get(name, 0.0), slot=name)
        share = resolved.spot_options.get(name, DEFAULT).max_price_share
        of_pool = priced[id(types)]
        instance_types[name] = of_pool if share is None else within_spot_price_share(of_pool, share, slot=name)
    return msgspec.structs.replace(resolved, instance_types=instance_types)


class _CachedOverlays(Struct):
    inputs: bytes
    instance_types: Mapping[str, tuple[InstanceType, ...]]
    overlaid: OverlaidPools


_CACHED_OVERLAYS = 4
"""How many results are kept: a decision asks for few different sets of offerings."""


def with_overlays(
    resolved: ResolvedNodePools, pools: Iterable[NodePool], overlays: Sequence[NodeOverlay]
) -> ResolvedNodePools:
    """The same with the overlays' prices and resources. Identical instance types give identical results."""
    pool_labels = {pool.name: labels_of(pool) for pool in pools}
    inputs = msgspec.json.encode([[(o.name, o.spec) for o in overlays], pool_labels])
    cache: list[_CachedOverlays] = runtime.current().cached("overlaid_instance_types", list)
    cached = next((c for c in cache if c.inputs == inputs and _are_same(c.instance_types, resolved)), None)
    if cached is None:
        overlaid = apply_overlays(resolved.instance_types, pool_labels, overlays)
        cached = _CachedOverlays(inputs, resolved.instance_types, overlaid)
        cache[:] = [cached, *cache[: _CACHED_OVERLAYS - 1]]
    return msgspec.structs.replace(
        resolved,
        instance_types=cached.overlaid.instance_types,
        overlays=cached.overlaid.applied,
        overlay_conflicts=cached.overlaid.conflicts,
    )


def _are_same(instance_types: Mapping[str, tuple[InstanceType, ...]], resolved: ResolvedNodePools) -> bool:
    """Whether the NodePools have the identical instance types."""
    return instance_types.keys() == resolved.instance_types.keys() and all(
        types is instance_types[pool] for pool, types in resolved.instance_types.items()
    )
