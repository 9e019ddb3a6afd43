"""The pools as rows of machines that may be bought: one row for each pool and instance type.

A pool's requirements, its class's view of the types, its DaemonSets and its limits are worked into the rows once;
everything after asks only which rows and which offerings a class of pods allows. Rows are ordered by pool (heaviest
weight first, then name) and type, so that the answer doesn't depend on the order of the input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME, NODECLASS, NODEPOOL
from shared.api.quantity import QuantityError, Resources, parse_resources
from shared.api.taints import REPELLING, untolerated
from shared.scheduling.rules.requirements import (
    ABSENT,
    RequirementError,
    Requirements,
    ValueSet,
    both,
    contradiction,
    of_labels,
    only,
    parse,
)
from shared.scheduling.state.offerings import Catalog, Column, OfferingKey, allowed_in, catalog_of, column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from shared.api.kubernetes import Taint
    from shared.api.nodepool import NodePool
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.state.daemonsets import DaemonSetPod

    BoolArray = NDArray[np.bool_]

_TO_BE_NAMED = "\0"
"""Stands for the name of a node that doesn't exist yet: no pod can ask for it, and all may avoid others."""


@dataclass(frozen=True)
class NodeClaimTemplate:
    """A pool that can be bought from, and where its rows are."""

    node_pool: str
    weight: int
    requirements: Requirements
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    min_values: Mapping[str, int]
    limits: Resources
    catalog: Catalog
    types: NDArray[np.int64]
    options: slice
    offered_types: BoolArray
    daemon_ports: tuple[tuple[frozenset[HostPort], BoolArray], ...]

    def state(self, key: str) -> ValueSet:
        """What the pool's nodes may have for a label that its types don't define."""
        return self.requirements.get(key, ABSENT)


@dataclass(frozen=True)
class LaunchOptions:
    """Everything that may be bought. ``free`` is what pods get of a row: allocatable less daemons, exact integers."""

    templates: tuple[NodeClaimTemplate, ...]
    unusable_pools: Mapping[str, str]
    resources: tuple[str, ...]
    offerings: tuple[OfferingKey, ...]
    free: NDArray[np.int64]
    capacity: NDArray[np.int64]
    price: NDArray[np.float64]
    template_of: NDArray[np.int64]
    type_of: NDArray[np.int64]
    columns: Mapping[str, Column]
    daemon_requests: NDArray[np.int64]
    offering_masks: dict[tuple[str, ValueSet], BoolArray] = field(default_factory=dict)
    fitting_options: dict[object, NDArray[np.int64]] = field(default_factory=dict)

    def instance_type_of(self, option: int) -> str:
        """The instance type of a row."""
        found: str = self.templates[int(self.template_of[option])].catalog.names[int(self.type_of[option])]
        return found

    def offerings_allowed(self, key: str, allowed: ValueSet) -> BoolArray:
        """Which offerings have an allowed value of a label of offerings."""
        found = self.offering_masks.get((key, allowed))
        if found is None:
            found = self.offering_masks[key, allowed] = self.columns[key].allowed(allowed)
        return found


def template_requirements(pool: NodePool) -> Requirements:
    """What every node of the pool has: requirements, labels, its own name and its class's.

    Raises:
        RequirementError: an operator is unknown, or the pool contradicts itself.
    """
    spec = pool.spec.template.spec
    found = both(parse(spec.requirements), of_labels(pool.spec.template.metadata.labels))
    found[NODEPOOL] = only(pool.name)
    if spec.node_class_ref.name:
        found[NODECLASS] = only(spec.node_class_ref.name)
    wrong = contradiction(found)
    if wrong is not None:
        raise RequirementError(f"its requirements contradict each other: no value is left for {wrong}")
    found[HOSTNAME] = only(_TO_BE_NAMED)
    return found


def build_launch_options(
    templates: Iterable[NodePool],
    types: Mapping[str, tuple[InstanceType, ...]],
    daemons: tuple[DaemonSetPod, ...],
    not_ready: Mapping[str, str],
    asked: Iterable[str],
) -> LaunchOptions:
    """The rows of all pools; a pool that can't be used is in ``refused`` with the reason."""
    refused = dict(not_ready)
    usable: list[tuple[NodePool, Requirements, Resources]] = []
    for pool in sorted(templates, key=lambda p: (-p.spec.weight, p.name)):
        if pool.name in refused:
            continue
        if pool.metadata.deletion_timestamp is not None:
            refused[pool.name] = "it is being deleted"
        elif pool.spec.replicas is not None:
            refused[pool.name] = "it is static (replicas): its nodes don't follow pods"
        elif not types.get(pool.name):
            refused[pool.name] = "it has no instance types"
        else:
            try:
                usable.append((pool, template_requirements(pool), parse_resources(pool.spec.limits)))
            except (RequirementError, QuantityError) as error:
                refused[pool.name] = str(error)
    catalogs = [catalog_of(types[pool.name]) for pool, _, _ in usable]
    resources = tuple(sorted({r for c in catalogs for r in c.resources} | set(asked)))
    offerings = tuple(sorted({o for c in catalogs for o in c.offerings}))
    parts = [
        _template_options(pool, template, catalog, resources, offerings, daemons)
        for (pool, template, _), catalog in zip(usable, catalogs, strict=True)
    ]
    made: list[NodeClaimTemplate] = []
    start = 0
    for (pool, template, limits), catalog, part in zip(usable, catalogs, parts, strict=True):
        stop = start + len(part.types)
        made.append(
            NodeClaimTemplate(
                node_pool=pool.name,
                weight=pool.spec.weight,
                requirements=template,
                labels=pool.spec.template.metadata.labels,
                taints=tuple(pool.spec.template.spec.taints),
                min_values=_min_values(pool),
                limits=limits,
                catalog=catalog,
                types=part.types,
                options=slice(start, stop),
                offered_types=part.allowed,
                daemon_ports=part.ports,
            )
        )
        start = stop
    width = len(resources)
    return LaunchOptions(
        templates=tuple(made),
        unusable_pools=refused,
        resources=resources,
        offerings=offerings,
        free=_stack([p.free for p in parts], width),
        capacity=_stack([p.capacity for p in parts], width),
        price=np.concatenate([p.price for p in parts]) if parts else np.zeros((0, len(offerings))),
        template_of=np.repeat(np.arange(len(parts)), [len(p.types) for p in parts]),
        type_of=np.concatenate([p.types for p in parts]) if parts else np.zeros(0, np.int64),
        columns=_offering_columns(offerings),
        daemon_requests=_stack([p.daemons for p in parts], width),
    )


def _min_values(pool: NodePool) -> dict[str, int]:
    found: dict[str, int] = {}
    for r in pool.spec.template.spec.requirements:
        if r.min_values is not None:
            found[r.key] = max(r.min_values, found.get(r.key, 0))
    return found


def _stack(parts: list[NDArray[np.int64]], width: int) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.zeros((0, width), np.int64)


def _offering_columns(offerings: tuple[OfferingKey, ...]) -> dict[str, Column]:
    keys = sorted({k for o in offerings for k, _ in o})
    return {k: column([dict(o).get(k) for o in offerings]) for k in keys}


@dataclass(frozen=True)
class _Part:
    """The rows of one pool."""

    types: NDArray[np.int64]
    free: NDArray[np.int64]
    capacity: NDArray[np.int64]
    price: NDArray[np.float64]
    daemons: NDArray[np.int64]
    allowed: BoolArray
    ports: tuple[tuple[frozenset[HostPort], BoolArray], ...]


def _template_options(
    pool: NodePool,
    template: Requirements,
    catalog: Catalog,
    resources: tuple[str, ...],
    offerings: tuple[OfferingKey, ...],
    daemons: tuple[DaemonSetPod, ...],
) -> _Part:
    types, offered = allowed_in(catalog, template)
    taken = np.zeros(catalog.allocatable.shape, np.int64)
    place = {r: i for i, r in enumerate(catalog.resources)}
    missing = np.zeros(len(catalog.names), np.bool_)
    ports: list[tuple[frozenset[HostPort], BoolArray]] = []
    for daemon in daemons:
        runs = _runs_on(daemon, pool, template, catalog, offered)
        if runs is None:
            continue
        for name, amount in daemon.requests.items():
            if name in place:
                taken[:, place[name]] += amount * runs
            elif amount:
                missing |= runs
        if daemon.ports:
            ports.append((daemon.ports, runs))
    free = catalog.allocatable - taken
    price = np.where(offered, catalog.price, np.inf)
    kept = np.flatnonzero(types & ~missing & np.isfinite(price).any(1) & (free >= 0).all(1))
    columns = [resources.index(r) for r in catalog.resources]
    wide = np.zeros((len(kept), len(resources)), np.int64)
    wide[:, columns] = free[kept]
    size = np.zeros_like(wide)
    size[:, columns] = catalog.capacity[kept]
    load = np.zeros_like(wide)
    load[:, columns] = taken[kept]
    paid = np.full((len(kept), len(offerings)), np.inf)
    paid[:, [offerings.index(o) for o in catalog.offerings]] = price[kept]
    return _Part(kept, wide, size, paid, load, types, tuple((p, r[kept]) for p, r in ports))


def _runs_on(
    daemon: DaemonSetPod, pool: NodePool, template: Requirements, catalog: Catalog, offered: BoolArray
) -> BoolArray | None:
    """Which types of the pool run the daemon, in whatever offering; None where the pool's nodes never do."""
    if untolerated(daemon.tolerations, pool.spec.template.spec.taints, effects=REPELLING) is not None:
        return None
    found: BoolArray | None = None
    for alternative in daemon.alternatives:
        if any(
            (template.get(key, ABSENT) & allowed).empty
            for key, allowed in alternative.items()
            if not catalog.knows(key)
        ):
            continue
        types, offerings = allowed_in(catalog, alternative)
        runs = types & (catalog.offered & (offered & offerings)).any(1)
        found = runs if found is None else found | runs
    return found
