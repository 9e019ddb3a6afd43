"""NodeOverlays applied to instance types: which of them change which price and which resource. Pure.

An overlay changes the offerings whose labels meet its requirements: those of the instance type, the offering, the
NodePool and its template. Extended resources belong to an instance type, so one such offering is enough for them.

For each price and each resource, the overlay with the highest weight decides; at equal weights, overlays that set
different fields are both applied. An overlay that sets what another of the same weight has set is applied nowhere: the
one whose name is later in the alphabet stays. Prices are changes of AWS's price, so overlays never add up.
Source: kubernetes-sigs/karpenter pkg/controllers/nodeoverlay (docs/facts/capacity-buffers-and-overlays.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.meta import condition
from shared.api.node_overlay import by_precedence
from shared.api.nodeclass import READY
from shared.api.nodepool import pool_title
from shared.api.quantity import MEMORY, parse_resources
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.instance_types.instance_type import INSTANCE_TYPE_KEYS, met

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shared.api.kubernetes import LabelRequirement
    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodepool import NodePool
    from shared.api.quantity import Resources
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import InstanceType, Offering

_OFFERING_KEYS = frozenset({names.ZONE, names.ZONE_ID, names.CAPACITY_TYPE, *names.RESERVATION_LABELS})
_HUGE_PAGES = "hugepages-"


class OverlaidPools(Struct, kw_only=True):
    """The instance types of NodePools with NodeOverlays applied.

    ``applied`` are the overlays without a conflict, those that take precedence first. ``conflicts`` says of the others,
    by name, what another overlay has set.
    """

    instance_types: Mapping[str, tuple[InstanceType, ...]]
    applied: tuple[NodeOverlay, ...] = ()
    conflicts: Mapping[str, str] = {}


def apply_overlays(
    instance_types: Mapping[str, tuple[InstanceType, ...]],
    pool_labels: Mapping[str, Mapping[str, str]],
    overlays: Iterable[NodeOverlay],
) -> OverlaidPools:
    """The instance types by NodePool, with the valid ``overlays`` applied; ``pool_labels`` are :func:`labels_of`.

    NodePools with the same instance types and the same overlays get the identical tuple; without overlays, their own.
    """
    ordered = by_precedence(overlays)
    group_of = _pool_groups(instance_types, pool_labels, ordered)
    groups = [group for pool, group in group_of.items() if group.pool == pool]
    applied: list[NodeOverlay] = []
    conflicts: dict[str, str] = {}
    for overlay in ordered:
        selections = [(g, tuple(_selected(g.types, overlay))) for g in groups if overlay.name in g.matching]
        conflict = next((c for g, selected in selections if (c := g.conflict(overlay, selected))), "")
        if conflict:
            conflicts[overlay.name] = conflict
            continue
        applied.append(overlay)
        for group, selected in selections:
            group.add(overlay, selected)
    overlaid = {group.pool: group.overlaid() for group in groups}
    return OverlaidPools(
        instance_types={pool: overlaid[group.pool] for pool, group in group_of.items()},
        applied=tuple(applied),
        conflicts=conflicts,
    )


def _pool_groups(
    instance_types: Mapping[str, tuple[InstanceType, ...]],
    pool_labels: Mapping[str, Mapping[str, str]],
    overlays: Sequence[NodeOverlay],
) -> dict[str, _PoolGroup]:
    """By NodePool: its group, which is that of the first NodePool with the same instance types and overlays."""
    groups: list[_PoolGroup] = []
    group_of: dict[str, _PoolGroup] = {}
    for pool, types in instance_types.items():
        matching = frozenset(o.name for o in overlays if _meets_pool(pool_labels.get(pool, {}), o.spec.requirements))
        group = next((g for g in groups if g.types is types and g.matching == matching), None)
        if group is None:
            group = _PoolGroup(pool, types, matching)
            groups.append(group)
        group_of[pool] = group
    return group_of


def labels_of(pool: NodePool) -> dict[str, str]:
    """The labels of a NodePool's nodes that overlays may require: its name, its node class, and its template's."""
    template = pool.spec.template
    own = {names.normalize_key(key): value for key, value in template.metadata.labels.items()}
    return {**own, names.NODEPOOL: pool.name, names.NODECLASS: template.spec.node_class_ref.name}


def overlaid_price(price: float, node_labels: Mapping[str, str], applied: Sequence[NodeOverlay]) -> float:
    """The price of a node with these labels, whose list price in USD per hour is given.

    ``applied`` overlays are those of :class:`OverlaidPools`, in that order. They change no prices of nodes without a
    NodePool.
    """
    overlay = pricing_overlay(node_labels, applied)
    return changed_price(price, overlay.price_change) if overlay is not None and overlay.price_change else price


def pricing_overlay(node_labels: Mapping[str, str], applied: Sequence[NodeOverlay]) -> NodeOverlay | None:
    """The overlay that decides the price of a node with these labels; None if none does."""
    if not applied or names.NODEPOOL not in node_labels:
        return None
    normalized = {names.normalize_key(key): value for key, value in node_labels.items()}
    return next((o for o in applied if o.price_change is not None and _meets(normalized, o.spec.requirements)), None)


def node_price(
    catalog: InstanceTypeCatalog, node_labels: Mapping[str, str], applied: Sequence[NodeOverlay]
) -> float | None:
    """The current price of a node or NodeClaim with these labels, in USD per hour; None if it isn't known."""
    price = catalog.price(node_labels)
    return None if price is None else overlaid_price(price, node_labels, applied)


def ready_overlays(overlays: Iterable[NodeOverlay]) -> tuple[NodeOverlay, ...]:
    """The overlays that have no conflict by their status, those that take precedence first.

    For prices that are measured where no instance types are known.
    """
    return tuple(
        o
        for o in by_precedence(overlays)
        if (ready := condition(o.status.conditions, READY)) is None or ready.status != "False"
    )


def types_with_resource(
    overlay: NodeOverlay,
    resource: str,
    types: Sequence[InstanceType],
    pool_labels: Mapping[str, str],
    applied: Iterable[NodeOverlay],
) -> frozenset[str]:
    """The instance types of a NodePool, by name, whose amount of the resource the ``applied`` overlay decides."""

    def selected_by(candidate: NodeOverlay) -> frozenset[str]:
        if not _meets_pool(pool_labels, candidate.spec.requirements):
            return frozenset()
        return frozenset(types[i].name for i, _ in _selected(types, candidate))

    setting = [o for o in applied if resource in o.spec.capacity]
    before = setting[: next(i for i, o in enumerate(setting) if o.name == overlay.name)]
    return selected_by(overlay).difference(*map(selected_by, before))


def changed_price(price: float, change: str) -> float:
    """The price in USD per hour after a valid ``price`` or ``priceAdjustment``; never below 0, and not rounded."""
    if change[0] not in "+-":
        return float(change)
    if change.endswith("%"):
        return max(0.0, price * (1 + float(change[:-1]) / 100))
    return max(0.0, price + float(change))


class _Setting(Struct):
    """The overlay that decides a price or a resource, and the last one that sets it, which has the lowest weight."""

    decides: NodeOverlay
    last: NodeOverlay


_Selected = tuple[int, tuple[int, ...]]
"""The index of an instance type, and the indices of its offerings that an overlay selects: at least one."""


class _PoolGroup(MutableStruct):
    """NodePools, of which ``pool`` is the first, with the same instance types that the same overlays select."""

    pool: str
    types: tuple[InstanceType, ...]
    matching: frozenset[str]
    prices: dict[tuple[int, int], _Setting] = {}
    resources: dict[tuple[int, str], _Setting] = {}

    def conflict(self, overlay: NodeOverlay, selected: Sequence[_Selected]) -> str:
        """What another overlay of the same weight has set already, in a sentence; empty if there is no conflict."""
        for i, offerings in selected:
            keys = [(i, j) for j in offerings] if overlay.price_change is not None else []
            for setting in filter(None, map(self.prices.get, keys)):
                if setting.last.weight == overlay.weight:
                    return self._conflict(setting.last, "the price", i)
            for resource in overlay.spec.capacity:
                resource_setting = self.resources.get((i, resource))
                if resource_setting is not None and resource_setting.last.weight == overlay.weight:
                    return self._conflict(resource_setting.last, resource, i)
        return ""

    def _conflict(self, earlier: NodeOverlay, field_name: str, index: int) -> str:
        return (
            f"NodeOverlay {earlier.name} of the same weight {earlier.weight} sets {field_name} of "
            f"{self.types[index].name} in {pool_title(self.pool)}, too; this overlay isn't applied"
        )

    def add(self, overlay: NodeOverlay, selected: Sequence[_Selected]) -> None:
        """Apply an overlay that has no conflict."""
        for i, offerings in selected:
            for j in offerings if overlay.price_change is not None else ():
                self.prices[i, j] = _Setting(self.prices[i, j].decides if (i, j) in self.prices else overlay, overlay)
            for resource in overlay.spec.capacity:
                before = self.resources.get((i, resource))
                self.resources[i, resource] = _Setting(before.decides if before is not None else overlay, overlay)

    def overlaid(self) -> tuple[InstanceType, ...]:
        """The instance types with what the overlays set; the same tuple if they set nothing."""
        if not self.prices and not self.resources:
            return self.types
        changes: dict[str, Resources] = {}
        added: dict[int, Resources] = {}
        for (i, resource), setting in self.resources.items():
            decides = setting.decides
            amounts = changes.setdefault(decides.name, parse_resources(decides.spec.capacity))
            added.setdefault(i, {})[resource] = amounts[resource]
        repriced = {i for i, _ in self.prices}
        return tuple(
            self._overlaid(i, t, added.get(i, {})) if i in repriced or i in added else t
            for i, t in enumerate(self.types)
        )

    def _overlaid(self, index: int, instance_type: InstanceType, added: Resources) -> InstanceType:
        offerings = tuple(self._repriced(o, self.prices.get((index, j))) for j, o in enumerate(instance_type.offerings))
        if not added:
            return with_fields(instance_type, offerings=offerings)
        # Huge pages are taken from the memory that pods get (Kubernetes: node allocatable).
        overhead = instance_type.overhead
        if huge_pages := sum(amount for name, amount in added.items() if name.startswith(_HUGE_PAGES)):
            overhead = {**overhead, MEMORY: overhead.get(MEMORY, 0) + huge_pages}
        capacity = {**instance_type.capacity, **added}
        return with_fields(instance_type, offerings=offerings, capacity=capacity, overhead=overhead)

    @staticmethod
    def _repriced(offering: Offering, setting: _Setting | None) -> Offering:
        change = setting.decides.price_change if setting is not None else None
        if change is None:
            return offering
        return with_fields(offering, price=changed_price(offering.price, change), list_price=offering.price)


def _selected(types: Sequence[InstanceType], overlay: NodeOverlay) -> Iterator[_Selected]:
    """The instance types and offerings whose labels meet the overlay's requirements on these."""
    requirements = [r for r in overlay.spec.requirements if _key(r) in INSTANCE_TYPE_KEYS]
    of_type = [r for r in requirements if _key(r) not in _OFFERING_KEYS]
    of_offering = [r for r in requirements if _key(r) in _OFFERING_KEYS]
    known: dict[tuple[str, str, int], bool] = {}
    """By zone, capacity type and the identity of the labels, which offerings of a zone share."""

    def selects(offering: Offering) -> bool:
        key = offering.zone, offering.capacity_type, id(offering.labels)
        if key not in known:
            own = {names.ZONE: offering.zone, names.CAPACITY_TYPE: offering.capacity_type}
            known[key] = _meets({**offering.labels, **own}, of_offering)
        return known[key]

    for i, instance_type in enumerate(types):
        if not _meets({**instance_type.labels, names.INSTANCE_TYPE: instance_type.name}, of_type):
            continue
        offerings = tuple(j for j, offering in enumerate(instance_type.offerings) if selects(offering))
        if offerings:
            yield i, offerings


def _meets_pool(pool_labels: Mapping[str, str], requirements: Iterable[LabelRequirement]) -> bool:
    """Whether a NodePool's labels meet the requirements on keys that instance types and offerings don't define."""
    return _meets(pool_labels, (r for r in requirements if _key(r) not in INSTANCE_TYPE_KEYS))


def _meets(labels: Mapping[str, str], requirements: Iterable[LabelRequirement]) -> bool:
    return all(met(r.operator, r.values, labels.get(_key(r))) for r in requirements)


def _key(requirement: LabelRequirement) -> str:
    return names.normalize_key(requirement.key)
