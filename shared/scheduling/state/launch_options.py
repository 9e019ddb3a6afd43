"""The nodes that could be launched: one launch option for each NodePool and instance type.

A NodePool's requirements, DaemonSets and instance types are worked into arrays over all launch options once; everything
else only asks which of them, in which offerings, suit a pod group. They are ordered by NodePool (greatest weight first,
then name) and instance type, so decisions don't depend on the order of the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME, INSTANCE_TYPE, NODECLASS, NODEPOOL
from shared.api.nodepool import NODE_GROUP_KIND
from shared.api.quantity import QuantityError, Resources, parse_resources
from shared.api.spot import spot_options
from shared.base.struct import Struct
from shared.instance_types.instance_type import is_bare_metal
from shared.scheduling.rules.attached_volumes import ATTACHED_VOLUMES
from shared.scheduling.rules.requirements import (
    ABSENT,
    RequirementError,
    Requirements,
    ValueSet,
    conflicting_key,
    intersect,
    label_requirements,
    only,
    parse,
)
from shared.scheduling.state.instance_type_arrays import allowed_in, instance_type_arrays, label_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Taint
    from shared.api.nodepool import NodePool
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.state.daemonsets import DaemonSetPod
    from shared.scheduling.state.instance_type_arrays import InstanceTypeArrays, LabelColumn, OfferingKey

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

BARE_METAL_PENALTY = 10_000.0
"""The factor of bare metal's price in NodePools that have other types: planned only where no other type will do.

The launch leaves bare metal out if a NodeClaim allows other types, as in Karpenter, so its price isn't to be had."""

_UNKNOWN_HOSTNAME = "<new node>"
"""The hostname of nodes that don't exist yet: no pod can require it, and NotIn other names is satisfied."""


_UNLIMITED: Mapping[str, int] = {}


class NodeClaimTemplate(Struct, eq=False, kw_only=True):
    """A NodePool that can launch nodes.

    ``requirements`` hold for all of its nodes. ``min_types`` is the least number of instance types that its NodeClaims
    list, by its annotation; ``min_values`` are those of its requirements (``stated_min_values``) and this. ``types``
    are the instance types of its launch options, as indices into ``instance_types``; ``options`` is its slice of all
    launch options. ``daemon_ports`` are the host ports of each DaemonSet's pod, and on which of these launch options it
    runs.
    """

    node_pool: str
    weight: int
    requirements: Requirements
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    min_values: Mapping[str, int]
    stated_min_values: Mapping[str, int]
    min_types: int
    limits: Resources
    instance_types: InstanceTypeArrays
    types: Ints
    options: slice
    daemon_ports: tuple[tuple[frozenset[HostPort], Bools], ...]

    def allowed_values(self, key: str) -> ValueSet:
        """The values of a label on the NodePool's nodes, for labels that instance types don't define."""
        return self.requirements.get(key, ABSENT)


class LaunchOptions(Struct, eq=False, kw_only=True):
    """All launch options, as arrays. Resources are exact integers, prices USD per hour.

    ``unusable_pools`` says why NodePools can't launch. By launch option: ``free`` is what pods get (allocatable less
    DaemonSets), ``capacity`` what counts against limits, ``daemon_requests`` what DaemonSets take, ``price`` by
    offering (inf where unavailable), with ``penalty`` as a factor in it, ``template_of`` and ``type_of`` its template
    and instance type. ``columns`` are the labels of offerings. ``cluster_limits`` hold for all NodePools together.
    ``shifted_zones`` are zones that traffic is shifted away from: nothing is available there, but they are zones for
    topology spread, as in Karpenter. ``offered_price`` is ``price`` without prices of limits (solver/bins.py);
    None: there are none.
    """

    templates: tuple[NodeClaimTemplate, ...]
    unusable_pools: Mapping[str, str]
    resources: tuple[str, ...]
    offerings: tuple[OfferingKey, ...]
    free: Ints
    capacity: Ints
    price: Floats
    penalty: Floats
    template_of: Ints
    type_of: Ints
    columns: Mapping[str, LabelColumn]
    daemon_requests: Ints
    cluster_limits: Mapping[str, int] = {}
    shifted_zones: frozenset[str] = frozenset()
    offered_price: Floats | None = None
    offering_masks: dict[tuple[str, ValueSet], Bools] = {}
    fitting_options: dict[object, Ints] = {}
    undominated_options: dict[object, list[tuple[Ints, Floats, int]]] = {}
    sharing_options: dict[object, list[tuple[frozenset[int], list[tuple[Ints, Floats, int]]]]] = {}

    def instance_type_of(self, option: int) -> str:
        """The name of a launch option's instance type."""
        template = self.templates[int(self.template_of[option])]
        return template.instance_types.names[int(self.type_of[option])]

    @property
    def paid_price(self) -> Floats:
        """The prices without those of limits, which nobody pays."""
        return self.price if self.offered_price is None else self.offered_price

    def has_limit_price(self, option: int) -> bool:
        """Whether a price of a limit is part of a launch option's price."""
        return self.offered_price is not None and bool((self.price[option] > self.offered_price[option]).any())

    def offerings_allowed(self, key: str, allowed: ValueSet) -> Bools:
        """Which offerings have an allowed value of one of their labels."""
        mask = self.offering_masks.get((key, allowed))
        if mask is None:
            mask = self.offering_masks[key, allowed] = self.columns[key].allowed(allowed)
        return mask


def template_requirements(pool: NodePool) -> Requirements:
    """The requirements of every node of the NodePool: its requirements, labels, name and node class.

    Raises:
        RequirementError: an operator is unknown, or requirements conflict.
    """
    spec = pool.spec.template.spec
    requirements = intersect(parse(spec.requirements), label_requirements(pool.spec.template.metadata.labels))
    requirements[NODEPOOL] = ABSENT if pool.kind == NODE_GROUP_KIND else only(pool.name)
    if spec.node_class_ref.name:
        requirements[NODECLASS] = only(spec.node_class_ref.name)
    conflict = conflicting_key(requirements)
    if conflict is not None:
        raise RequirementError(f"the NodePool's requirements conflict: no value is allowed for {conflict}")
    requirements[HOSTNAME] = only(_UNKNOWN_HOSTNAME)
    return requirements


def build_launch_options(
    pools: Iterable[NodePool],
    types: Mapping[str, tuple[InstanceType, ...]],
    daemons: tuple[DaemonSetPod, ...],
    not_ready: Mapping[str, str],
    requested_resources: Iterable[str],
    cluster_limits: Mapping[str, int] = _UNLIMITED,
) -> LaunchOptions:
    """The launch options of all NodePools with their instance types by name; why others can't launch is kept."""
    usable, unusable = _usable_pools(pools, types, not_ready)
    resources = tuple(sorted({r for p in usable for r in p.instance_types.resources} | set(requested_resources)))
    offerings = tuple(sorted({o for p in usable for o in p.instance_types.offerings}))
    arrays = [_pool_arrays(p, resources, offerings, daemons) for p in usable]
    return LaunchOptions(
        templates=_templates(usable, arrays),
        unusable_pools=unusable,
        resources=resources,
        offerings=offerings,
        free=_stack([a.free for a in arrays], len(resources)),
        capacity=_stack([a.capacity for a in arrays], len(resources)),
        price=np.concatenate([a.price for a in arrays]) if arrays else np.zeros((0, len(offerings))),
        penalty=np.concatenate([np.zeros(0), *(a.penalty for a in arrays)]),
        template_of=np.repeat(np.arange(len(arrays)), [len(a.types) for a in arrays]),
        type_of=np.concatenate([a.types for a in arrays]) if arrays else np.zeros(0, np.int64),
        columns=_offering_columns(offerings),
        daemon_requests=_stack([a.daemon_requests for a in arrays], len(resources)),
        cluster_limits=cluster_limits,
    )


def _usable_pools(
    pools: Iterable[NodePool], types: Mapping[str, tuple[InstanceType, ...]], not_ready: Mapping[str, str]
) -> tuple[list[_UsablePool], dict[str, str]]:
    """The NodePools that can launch nodes, in order; and why others can't."""
    usable: list[_UsablePool] = []
    unusable = dict(not_ready)
    for pool in sorted(pools, key=lambda p: (-p.spec.weight, p.name)):
        if pool.name in unusable:
            continue
        checked = _usable(pool, types.get(pool.name, ()))
        if isinstance(checked, str):
            unusable[pool.name] = checked
        else:
            usable.append(checked)
    return usable, unusable


class _UsablePool(Struct, eq=False):
    pool: NodePool
    requirements: Requirements
    limits: Resources
    instance_types: InstanceTypeArrays


def _usable(pool: NodePool, types: tuple[InstanceType, ...]) -> _UsablePool | str:
    """The NodePool with what is read from it, or the reason that it can't launch nodes for pods."""
    if pool.metadata.deletion_timestamp is not None:
        return "the NodePool is being deleted"
    if pool.spec.replicas is not None:
        return "the NodePool is static (spec.replicas) and doesn't launch nodes for pods"
    if not types:
        return "the NodePool has no instance types"
    try:
        return _UsablePool(
            pool, template_requirements(pool), parse_resources(pool.spec.limits), instance_type_arrays(types)
        )
    except (RequirementError, QuantityError) as error:
        return str(error)


class _PoolArrays(Struct, eq=False):
    """The launch options of one NodePool; columns are those of all launch options."""

    types: Ints
    free: Ints
    capacity: Ints
    price: Floats
    penalty: Floats
    daemon_requests: Ints
    daemon_ports: tuple[tuple[frozenset[HostPort], Bools], ...]


def _pool_arrays(
    usable: _UsablePool,
    resources: tuple[str, ...],
    offerings: tuple[OfferingKey, ...],
    daemons: tuple[DaemonSetPod, ...],
) -> _PoolArrays:
    arrays = usable.instance_types
    allowed_types, allowed_offerings = allowed_in(arrays, usable.requirements)
    requested, impossible, ports = _daemon_overhead(usable, allowed_offerings, daemons)
    free = arrays.allocatable - requested
    price = np.where(allowed_offerings, arrays.price, np.inf)
    types = np.flatnonzero(allowed_types & ~impossible & np.isfinite(price).any(1) & (free >= 0).all(1))
    columns = [resources.index(r) for r in arrays.resources]

    def widened(by_type: Ints) -> Ints:
        wide = np.zeros((len(types), len(resources)), np.int64)
        wide[:, columns] = by_type[types]
        return wide

    wide_free = widened(free)
    if ATTACHED_VOLUMES in resources:
        wide_free[:, resources.index(ATTACHED_VOLUMES)] = arrays.volumes[types]

    wide_price = np.full((len(types), len(offerings)), np.inf)
    penalty = _penalty([arrays.names[t] for t in types.tolist()])
    wide_price[:, [offerings.index(o) for o in arrays.offerings]] = price[types] * penalty[:, None]
    return _PoolArrays(
        types=types,
        free=wide_free,
        capacity=widened(arrays.capacity),
        price=wide_price,
        penalty=penalty,
        daemon_requests=widened(requested),
        daemon_ports=tuple((p, runs[types]) for p, runs in ports),
    )


def _penalty(names: Sequence[str]) -> Floats:
    bare_metal = np.array([is_bare_metal(name) for name in names], np.bool_)
    return np.where(bare_metal & ~bare_metal.all(), BARE_METAL_PENALTY, 1.0)


def _daemon_overhead(
    usable: _UsablePool, offerings: Bools, daemons: Sequence[DaemonSetPod]
) -> tuple[Ints, Bools, list[tuple[frozenset[HostPort], Bools]]]:
    """What DaemonSets request of each instance type, which types they leave no room on, and their host ports.

    A device that a type doesn't have keeps the DaemonSet's pod pending there, and nothing else.
    """
    arrays = usable.instance_types
    index = {r: i for i, r in enumerate(arrays.resources)}
    requested = np.zeros(arrays.allocatable.shape, np.int64)
    impossible = np.zeros(len(arrays.names), np.bool_)
    ports: list[tuple[frozenset[HostPort], Bools]] = []
    for daemon in daemons:
        runs = daemon.runs_on_types(arrays, usable.requirements, usable.pool.spec.template.spec.taints, offerings)
        if runs is None:
            continue
        for name in daemon.devices:
            runs = runs & (arrays.allocatable[:, index[name]] > 0) if name in index else np.zeros_like(runs)
        for name, amount in daemon.requests.items():
            if name in index:
                requested[:, index[name]] += amount * runs
            elif amount:
                impossible |= runs
        if daemon.ports:
            ports.append((daemon.ports, runs))
    return requested, impossible, ports


def _templates(usable: Sequence[_UsablePool], arrays: Sequence[_PoolArrays]) -> tuple[NodeClaimTemplate, ...]:
    templates: list[NodeClaimTemplate] = []
    start = 0
    for pool, pool_arrays in zip(usable, arrays, strict=True):
        stop = start + len(pool_arrays.types)
        templates.append(_template(pool, pool_arrays, slice(start, stop)))
        start = stop
    return tuple(templates)


def _template(usable: _UsablePool, arrays: _PoolArrays, options: slice) -> NodeClaimTemplate:
    pool = usable.pool
    stated = _min_values(pool)
    min_types = spot_options(pool).diversity if pool.has_own_annotations else 0
    diverse = {INSTANCE_TYPE: max(min_types, stated.get(INSTANCE_TYPE, 0))} if min_types else {}
    return NodeClaimTemplate(
        node_pool=pool.name,
        weight=pool.spec.weight,
        requirements=usable.requirements,
        labels=pool.spec.template.metadata.labels,
        taints=tuple(pool.spec.template.spec.taints),
        min_values={**stated, **diverse},
        stated_min_values=stated,
        min_types=min_types,
        limits=usable.limits,
        instance_types=usable.instance_types,
        types=arrays.types,
        options=options,
        daemon_ports=arrays.daemon_ports,
    )


def _min_values(pool: NodePool) -> dict[str, int]:
    min_values: dict[str, int] = {}
    for r in pool.spec.template.spec.requirements:
        if r.min_values is not None:
            min_values[r.key] = max(r.min_values, min_values.get(r.key, 0))
    return min_values


def _stack(arrays: list[Ints], width: int) -> Ints:
    return np.concatenate(arrays) if arrays else np.zeros((0, width), np.int64)


def _offering_columns(offerings: tuple[OfferingKey, ...]) -> dict[str, LabelColumn]:
    return label_columns([dict(o) for o in offerings], {key for o in offerings for key, _ in o})


class NodePoolWeights:
    """NodePool weight: pods go to NodePools of the greatest first, of the next only where these can't run them."""

    def __init__(self, launch_options: LaunchOptions) -> None:
        by_template = np.array([t.weight for t in launch_options.templates], np.int64)
        self._by_option = by_template[launch_options.template_of]
        self._weights = sorted(set(by_template.tolist()), reverse=True)

    def options_by_weight(self) -> Iterator[Bools]:
        """The launch options of each weight, greatest weight first."""
        for weight in self._weights:
            yield self._by_option == weight

    def of(self, option: int) -> int:
        """The weight of a launch option's NodePool."""
        return int(self._by_option[option])
