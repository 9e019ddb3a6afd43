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
from shared.api.pods import spec_requests
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
from shared.scheduling.state.offerings import Catalog, Column, OfferingKey, catalog_of, column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from shared.api.kubernetes import DaemonSet, NodeSelectorTerm, PodSpec, Taint, Toleration
    from shared.api.nodepool import NodePool
    from shared.instance_types.instance_type import InstanceType

    BoolArray = NDArray[np.bool_]
    HostPort = tuple[str, str, int]

_TO_BE_NAMED = "\0"
"""Stands for the name of a node that doesn't exist yet: no pod can ask for it, and all may avoid others."""


@dataclass(frozen=True, kw_only=True)
class DaemonSetPod:
    """What one DaemonSet asks of a node, and which nodes it goes to."""

    requests: Resources
    alternatives: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...]
    ports: frozenset[HostPort]
    uid: str


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
        _options(pool, template, catalog, resources, offerings, daemons)
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


def allowed_in(catalog: Catalog, requirements: Requirements) -> tuple[BoolArray, BoolArray]:
    """Which types and which offerings of a catalog the requirements allow; labels it doesn't know are passed over."""
    types = np.ones(len(catalog.names), np.bool_)
    offerings = np.ones(len(catalog.offerings), np.bool_)
    for key, allowed in requirements.items():
        if key in catalog.offering_columns:
            offerings &= catalog.offering_columns[key].allowed(allowed)
        elif catalog.knows(key):
            types &= catalog.types_allowed(key, allowed)
    return types, offerings


def _options(
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


def daemon_set_pods(daemon_sets: Iterable[DaemonSet]) -> tuple[DaemonSetPod, ...]:
    """What DaemonSets ask for; one whose numbers or selectors mean nothing has no pods, and is left out."""
    found: list[DaemonSetPod] = []
    for daemon_set in sorted(daemon_sets, key=lambda d: (d.metadata.namespace, d.metadata.name)):
        spec = daemon_set.spec.template.spec
        try:
            found.append(
                DaemonSetPod(
                    requests=spec_requests(spec),
                    alternatives=required_alternatives(spec),
                    tolerations=tuple(spec.tolerations),
                    ports=host_ports(spec),
                    uid=daemon_set.metadata.uid,
                )
            )
        except (QuantityError, RequirementError):
            continue
    return tuple(found)


def required_alternatives(spec: PodSpec) -> tuple[Requirements, ...]:
    """The nodeSelector, with each term of the required node affinity in turn; none at all if no term can hold.

    Raises:
        RequirementError: an operator is unknown or its values don't suit it.
    """
    base = of_labels(spec.node_selector)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return (base,)
    return tuple(both(base, term_requirements(term)) for term in required.node_selector_terms if not _blank(term))


def _blank(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def term_requirements(term: NodeSelectorTerm) -> Requirements:
    """One term; ``metadata.name``, the one field there is, counts as the host's name.

    Raises:
        RequirementError: an operator is unknown or its values don't suit it.
    """
    found = parse(term.match_expressions)
    if term.match_fields:
        fields = parse(term.match_fields)
        if set(fields) != {"metadata.name"}:
            raise RequirementError(f"matchFields knows metadata.name alone, not {sorted(fields)}")
        found = both(found, {HOSTNAME: fields["metadata.name"]})
    return found


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """The host's ports that a pod takes: (protocol, address, port), the address "" for all."""
    everywhere = {"", "0.0.0.0", "::"}  # noqa: S104 (compared with, never bound to)
    return frozenset(
        (p.protocol or "TCP", "" if p.host_ip in everywhere else p.host_ip, p.host_port)
        for c in (*spec.containers, *(i for i in spec.init_containers if i.restart_policy == "Always"))
        for p in c.ports
        if p.host_port
    )


def ports_clash(a: Iterable[HostPort], b: Iterable[HostPort]) -> bool:
    """Whether two pods can't share a host."""
    others = list(b)
    return any(p == q and n == m and (not x or not y or x == y) for p, x, n in a for q, y, m in others)
