"""The instance types that each NodePool can launch now, or why it can't launch.

The provisioner, the NodePools' conditions and the command line use the same result, so what users read is what decides.

The instance types come from the catalog in a few steps (:data:`STEPS`). Each step takes what the steps before it
resolved and returns it with its own part: lists of instance types by NodePool, and what users read about them.
NodePools with the same list keep sharing one where a step changes it equally, because scheduling derives arrays from
each list.

A NodePool can't launch with a NodeClass that is missing, being deleted, not ready, or has other zones or architectures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.ami_family.families import family_of
from shared.api import labels
from shared.api.kubelet import KubeletError
from shared.api.meta import EventReason, condition
from shared.api.nodeclass import READY
from shared.api.nodepool import node_class_for
from shared.api.spot import DEFAULT, spot_options
from shared.api.zonal_shift import format_shifts
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import ResolvedNodePools
from shared.instance_types import allocatable, withheld_offerings
from shared.instance_types.instance_type import met, with_quotas
from shared.instance_types.provider import list_instance_types, volume_gib, volume_price, with_volumes
from shared.instance_types.spot_risk import spot_risk
from shared.launch import boot_failures
from shared.launch.node_class.free_addresses import short_for, short_zones
from shared.launch.node_class.status import resolve
from shared.launch.overlaid_pools import with_overlays

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.api.nodeclass import EC2NodeClass, ResolvedSubnet
    from shared.api.nodepool import NodePool
    from shared.commitments.commitment import Commitments
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import InstanceType, OfferingKey
    from shared.instance_types.interruption_rates import Pool
    from shared.instance_types.provider import Adjustment, InstanceTypeCache
    from shared.instance_types.vpc_cni import VpcCni
    from shared.launch.boot_failures import BootFailure
    from shared.launch.node_class.free_addresses import ShortSubnet
    from shared.launch.node_class.status import NodeClassResolver
    from shared.snapshot import Snapshot


VPC_CNI = ("kube-system", "aws-node")
"""Namespace and name of the VPC CNI's DaemonSet."""


class CommitmentUse(Struct, kw_only=True):
    """The account's active commitments, and the ``cluster`` that may use its ``share`` of what is unused.

    The share is 0 to 1; None: by the cluster's part of the running instances.
    """

    commitments: Commitments
    cluster: str
    share: float | None = None


class LaunchConditions(Struct, kw_only=True):
    """What keeps instances from being launched now, or changes what they cost; by default there is nothing.

    It is what launches and interruptions of this cluster have shown, and the account's commitments. NodeOverlays are in
    the snapshot, and capacity reservations in the status of node classes.

    ``unavailable`` offerings had no capacity. ``short_subnets`` have too few free addresses for a node: their zones
    aren't offered to NodePools that have others. ``interruption_rates`` are by spot pool, where they differ from the
    default: they raise the effective price. ``boot_failures``, by NodePool and node class, are of machines that died at
    boot. ``commitments`` lower prices; None: they don't count.
    """

    unavailable: frozenset[OfferingKey] = frozenset()
    short_subnets: tuple[ShortSubnet, ...] = ()
    interruption_rates: Mapping[Pool, float] = {}
    boot_failures: Mapping[tuple[str, str], BootFailure] = {}
    commitments: CommitmentUse | None = None


def resolve_node_pools(
    snapshot: Snapshot,
    node_classes: Collection[EC2NodeClass],
    catalog: InstanceTypeCatalog,
    conditions: LaunchConditions,
    *,
    cache: InstanceTypeCache,
    now: datetime,
) -> ResolvedNodePools:
    """What the snapshot's NodePools can launch under the conditions, by the status of these node classes."""
    resolved, ready_classes = _by_readiness(snapshot, node_classes)
    inputs = StepInputs(
        snapshot=snapshot, catalog=catalog, conditions=conditions, node_classes=ready_classes, cache=cache
    )
    for step in STEPS:
        resolved = step(resolved, inputs)
    if conditions.boot_failures:
        resolved = boot_failures.hold(resolved, conditions.boot_failures, snapshot, now=now)
    if conditions.commitments is not None:
        from shared.launch.covered_nodes import cluster_coverage  # noqa: PLC0415 (few deployments count commitments)

        use = conditions.commitments
        coverage = cluster_coverage(snapshot, use.commitments, cluster=use.cluster, share=use.share)
        resolved = with_fields(resolved, coverage=coverage)
    return resolved


def _by_readiness(
    snapshot: Snapshot, node_classes: Collection[EC2NodeClass]
) -> tuple[ResolvedNodePools, Mapping[str, EC2NodeClass]]:
    """The NodePools without instance types yet; by NodePool, the node classes of those that can launch."""
    not_ready: dict[str, str] = {}
    ready_classes: dict[str, EC2NodeClass] = {}
    for pool in snapshot.node_pools:
        node_class = node_class_of(pool, node_classes)
        problem = node_class_not_ready(pool, node_class)
        if node_class is None or problem is not None:
            not_ready[pool.name] = problem[1] if problem is not None else ""
        else:
            ready_classes[pool.name] = node_class_for(pool, node_class)
    resolved = ResolvedNodePools(
        instance_types={pool.name: () for pool in snapshot.node_pools},
        not_ready=not_ready,
        node_classes=ready_classes,
    )
    return resolved, ready_classes


class StepInputs(Struct, kw_only=True):
    """What the steps work from. ``node_classes`` are those of the NodePools that can launch, by NodePool."""

    snapshot: Snapshot
    catalog: InstanceTypeCatalog
    conditions: LaunchConditions
    node_classes: Mapping[str, EC2NodeClass]
    cache: InstanceTypeCache

    @property
    def launching_pools(self) -> Iterable[NodePool]:
        """The NodePools that can launch."""
        return (pool for pool in self.snapshot.node_pools if pool.name in self.node_classes)


def list_by_node_class(resolved: ResolvedNodePools, inputs: StepInputs) -> ResolvedNodePools:
    """The catalog's types under the node class's AMIs, kubelet settings, volumes, zones and capacity reservations.

    Offerings that had no capacity stay, as not available. A pool whose kubelet expressions have no value on a type is
    not ready.
    """
    snapshot = inputs.snapshot
    cni_for = _vpc_cni(snapshot)
    unavailable = with_quotas(inputs.conditions.unavailable, inputs.catalog)
    lists: dict[tuple[str, bytes], tuple[InstanceType, ...]] = {}
    instance_types, not_ready = dict(resolved.instance_types), dict(resolved.not_ready)
    for pool, node_class in inputs.node_classes.items():
        key = node_class.name, msgspec.json.encode(node_class.spec.kubelet)
        try:
            if key not in lists:
                lists[key] = list_instance_types(
                    inputs.catalog,
                    node_class,
                    zones={s.zone for s in node_class.status.subnets},
                    unavailable=unavailable,
                    observed_memory=allocatable.discovered_memory(snapshot.nodes, snapshot.node_claims, node_class)
                    if snapshot.node_claims
                    else {},
                    cache=inputs.cache,
                    vpc_cni=cni_for(node_class),
                )
        except KubeletError as error:  # of a type that is new in the catalog: the class was valid
            not_ready[pool] = f"{node_class.ref}: {error}"
        else:
            instance_types[pool] = lists[key]
    return with_fields(resolved, instance_types=instance_types, not_ready=not_ready)


def _vpc_cni(snapshot: Snapshot) -> Callable[[EC2NodeClass], VpcCni | None]:
    """By node class: the settings of the VPC CNI that decide how many pods its nodes run; None if they are default."""
    own = [d for d in snapshot.daemon_sets if (d.metadata.namespace, d.metadata.name) == VPC_CNI]
    if not own:
        return lambda _: None
    # Imported here: not every cluster has the VPC CNI.
    from shared.instance_types.vpc_cni import read_settings, settings_for  # noqa: PLC0415

    settings = read_settings(own)
    if settings is None:
        return lambda _: None
    return lambda node_class: settings_for(settings, node_class, family_of(node_class))


def apply_node_overlays(resolved: ResolvedNodePools, inputs: StepInputs) -> ResolvedNodePools:
    """The prices and resources that NodeOverlays set."""
    overlays = inputs.snapshot.node_overlays
    if not overlays:
        return resolved
    return with_overlays(resolved, inputs.snapshot.node_pools, overlays, inputs.cache)


def add_spot_risk(resolved: ResolvedNodePools, inputs: StepInputs) -> ResolvedNodePools:
    """The risk of interruptions in the effective prices of spot offerings."""
    rates = inputs.conditions.interruption_rates
    risk = spot_risk(rates) if rates else None
    return _adjusted(resolved, inputs, lambda _: risk)


def add_volume_prices(resolved: ResolvedNodePools, inputs: StepInputs) -> ResolvedNodePools:
    """The prices of nodes' volumes in the effective prices."""
    region = inputs.catalog.region
    prices = {pool: volume_price(volume_gib(c), region) for pool, c in inputs.node_classes.items()}
    return _adjusted(
        with_fields(resolved, volume_prices=prices), inputs, lambda pool: with_volumes(prices.get(pool, 0.0))
    )


def withhold_costly_spot(resolved: ResolvedNodePools, inputs: StepInputs) -> ResolvedNodePools:
    """Without spot offerings above the share of the on-demand price that the NodePool's annotation states."""
    annotated = (pool for pool in inputs.launching_pools if pool.has_own_annotations)
    options = {pool.name: stated for pool in annotated if (stated := spot_options(pool)) != DEFAULT}

    def above_share(pool: str) -> Adjustment | None:
        share = options.get(pool, DEFAULT).max_price_share
        return withheld_offerings.spot_above(share) if share is not None else None

    return _adjusted(with_fields(resolved, spot_options=options), inputs, above_share)


def withhold_short_zones(resolved: ResolvedNodePools, inputs: StepInputs) -> ResolvedNodePools:
    """Without zones all of whose subnets are short of free addresses, unless the NodePool has no other."""
    short, shifted = inputs.conditions.short_subnets, inputs.snapshot.shifted_zones
    if not short:
        return resolved
    subnets = {
        pool.name: [s for s in allowed_subnets(pool, inputs.node_classes[pool.name]) if s.zone not in shifted]
        for pool in inputs.launching_pools
    }
    zones_by_pool = {
        pool: zones
        for pool, of_pool in subnets.items()
        if (zones := short_zones(of_pool, short_for(inputs.node_classes[pool].spec, short)))
    }
    reasons = {
        pool: tuple(str(subnet) for subnets in zones.values() for subnet in subnets)
        for pool, zones in zones_by_pool.items()
    }

    def in_short_zones(pool: str) -> Adjustment | None:
        return withheld_offerings.zones(zones_by_pool[pool]) if pool in zones_by_pool else None

    return _adjusted(with_fields(resolved, short_zones=reasons), inputs, in_short_zones)


def withhold_shifted_zones(resolved: ResolvedNodePools, inputs: StepInputs) -> ResolvedNodePools:
    """Without the zones that traffic is shifted away from; a NodePool that may use no other can't launch."""
    shifted = inputs.snapshot.shifted_zones
    if not shifted:
        return resolved
    not_ready = dict(resolved.not_ready)
    for pool in inputs.launching_pools:
        zones = {s.zone for s in allowed_subnets(pool, inputs.node_classes[pool.name])}
        if zones <= shifted.keys():
            not_ready[pool.name] = f"traffic is shifted away from all its zones: {format_shifts(shifted, zones)}"
    adjustment = withheld_offerings.zones(shifted, why="shifted-zones")
    return _adjusted(with_fields(resolved, not_ready=not_ready), inputs, lambda _: adjustment)


STEPS: tuple[Callable[[ResolvedNodePools, StepInputs], ResolvedNodePools], ...] = (
    list_by_node_class,
    apply_node_overlays,  # before anything that compares prices: overlays change AWS's price
    add_spot_risk,
    add_volume_prices,
    withhold_costly_spot,
    withhold_short_zones,
    withhold_shifted_zones,
)
"""The order in which the steps are taken."""


def _adjusted(
    resolved: ResolvedNodePools, inputs: StepInputs, adjustment_of: Callable[[str], Adjustment | None]
) -> ResolvedNodePools:
    """Each NodePool's list with its adjustment (None: as it is); equal adjustments of a list share the result."""
    instance_types: dict[str, tuple[InstanceType, ...]] = {}
    adjusted: list[tuple[tuple[InstanceType, ...], Adjustment, tuple[InstanceType, ...]]] = []
    for pool, types in resolved.instance_types.items():
        adjustment = adjustment_of(pool) if types else None
        if adjustment is None:
            instance_types[pool] = types
            continue
        shared = (result for source, earlier, result in adjusted if source is types and adjustment.is_same(earlier))
        result = next(shared, None)
        if result is None:
            result = inputs.cache.adjusted(pool, types, adjustment)
            adjusted.append((types, adjustment, result))
        instance_types[pool] = result
    return with_fields(resolved, instance_types=instance_types)


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
    if (conflict := zone_conflict(pool, node_class)) is not None:
        return EventReason("ZonesConflict"), conflict
    conflict = architecture_conflict(pool, node_class)
    return (EventReason("ArchitecturesConflict"), conflict) if conflict is not None else None


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


def architecture_conflict(pool: NodePool, node_class: EC2NodeClass) -> str | None:
    """Why no image of the class is of an architecture that the pool allows, naming both fields; None if one is."""
    required = [r for r in pool.spec.template.spec.requirements if labels.normalize_key(r.key) == labels.ARCH]
    of_images = [r.values for ami in node_class.status.amis for r in ami.requirements if r.key == labels.ARCH]
    arches = sorted({arch for values in of_images for arch in values})
    if not arches or any(all(met(r.operator, r.values, arch) for r in required) for arch in arches):
        return None
    allowed = " and ".join(f"{r.key} {r.operator} {', '.join(r.values)}" for r in required)
    return (
        f"{node_class.selector_path('amiSelectorTerms')} of {node_class.kind} {node_class.name} selects images for "
        f"{', '.join(arches)} only, but {pool.kind} {pool.name} requires {allowed}"
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
    resolver: NodeClassResolver, classes: Iterable[EC2NodeClass], *, now: datetime
) -> Mapping[str, EC2NodeClass]:
    """By name: the node classes with their status resolved on AWS."""
    return {c.name: with_fields(c, status=resolve(resolver, c, now=now)) for c in classes}


def current_node_classes(
    resolver: NodeClassResolver, classes: Iterable[EC2NodeClass], *, now: datetime
) -> tuple[EC2NodeClass, ...]:
    """The node classes with their stored status where that is current, as in Karpenter.

    AWS is asked only about classes whose status is not there yet, is of an older generation, or says that they are not
    ready, so that a new or mended class can launch at once.
    """
    all_classes = tuple(classes)
    current = (c for c in all_classes if _has_current_status(c))
    stale = [c for c in all_classes if not _has_current_status(c)]
    resolved = resolve_node_classes(resolver, stale, now=now)
    return (*current, *resolved.values())


def _has_current_status(node_class: EC2NodeClass) -> bool:
    """Whether the status, which lifecycle writes each minute, says that the class is ready as it is now."""
    ready = condition(node_class.status.conditions, READY)
    return ready is not None and ready.status == "True" and ready.observed_generation == node_class.metadata.generation
