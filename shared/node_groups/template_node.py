"""The node that a group would add: the smallest of its instance types, or the same as one that it has. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.meta import is_true
from shared.api.nodeclass import EC2NodeClass
from shared.api.quantity import CPU, MEMORY, parse_resources
from shared.base.struct import Struct, with_fields
from shared.instance_types.provider import build_instance_types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shared.api.kubernetes import Node, Taint
    from shared.api.quantity import Resources
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import InstanceType
    from shared.node_groups.node_group import NodeGroup

_OWN_LABELS = frozenset({names.HOSTNAME, names.ZONE, names.ZONE_ID})
"""Labels of one node, also under their old names, which the next one doesn't share."""
_KARPENTER = "karpenter."
"""Labels that only Karpenter's and Tenon's own nodes have."""
_PASSING_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "DeletionCandidateOfClusterAutoscaler",
    "ToBeDeletedByClusterAutoscaler",
)
"""Taints, by the start of their keys, of one node's state."""


class TemplateNode(Struct, kw_only=True):
    """A node that the group would add. ``allocatable`` is for pods; ``price`` is USD per hour, None if unknown."""

    instance_type: str
    allocatable: Resources
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    price: float | None


def group_instance_types(catalog: InstanceTypeCatalog, wanted: Collection[str]) -> dict[str, InstanceType]:
    """The instance types of these names as nodes of Amazon Linux 2023 have them, by name."""
    catalog = with_fields(catalog, hardware=tuple(h for h in catalog.hardware if h.name in wanted))
    built = build_instance_types(catalog, EC2NodeClass(), None, zones=catalog.zones, unavailable=(), only_offered=False)
    return {t.name: t for t in built}


def template_node(group: NodeGroup, types: Mapping[str, InstanceType], nodes: Iterable[Node]) -> TemplateNode | None:
    """The node that the group would add; None if no instance type of it is known.

    ``nodes`` are the cluster's. A Ready node of the group says more than its tags: its own labels and resources.
    """
    known = [types[name] for name in group.instance_types if name in types]
    living = _living(group, nodes)
    if not known and living is None:
        return None
    smallest = min(known, key=_size) if known else None
    allocatable = _smallest(known)
    labels = {k: v for k, v in smallest.labels.items() if not k.startswith(_KARPENTER)} if smallest is not None else {}
    taints = group.taints
    if living is not None:
        allocatable = parse_resources(living.status.allocatable)
        labels |= {
            key: value for key, value in living.metadata.labels.items() if names.normalize_key(key) not in _OWN_LABELS
        }
        taints = _with_living_taints(taints, living)
    zone = {names.ZONE: group.zones[0]} if len(group.zones) == 1 else {}
    return TemplateNode(
        instance_type=labels.get(names.INSTANCE_TYPE, "") if smallest is None else smallest.name,
        allocatable={**allocatable, **group.resources},
        labels={**labels, **group.labels, **zone},
        taints=taints,
        price=_price(group, known),
    )


def _living(group: NodeGroup, nodes: Iterable[Node]) -> Node | None:
    ids = {instance.provider_id for instance in group.instances if instance.in_service}
    ready = (node for node in nodes if node.spec.provider_id in ids and is_true(node.status.conditions, "Ready"))
    # The oldest: what starts on a node may taint it for a while.
    return min(ready, key=_age_order, default=None)


def _age_order(node: Node) -> tuple[float, str]:
    created = node.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0, node.metadata.name)


def _with_living_taints(taints: tuple[Taint, ...], living: Node) -> tuple[Taint, ...]:
    known = {(taint.key, taint.effect) for taint in taints}
    own = (t for t in living.spec.taints if not t.key.startswith(_PASSING_TAINTS) and (t.key, t.effect) not in known)
    return (*taints, *own)


def _size(instance_type: InstanceType) -> tuple[int, int, str]:
    allocatable = instance_type.allocatable
    return allocatable.get(CPU, 0), allocatable.get(MEMORY, 0), instance_type.name


def _smallest(types: Collection[InstanceType]) -> Resources:
    """What every one of the types has."""
    if not types:
        return {}
    shared = set.intersection(*(set(t.allocatable) for t in types))
    return {name: min(t.allocatable[name] for t in types) for name in sorted(shared)}


def _price(group: NodeGroup, types: Collection[InstanceType]) -> float | None:
    """The mean over the types' cheapest offerings in the group's zones: Auto Scaling chooses among them."""
    cheapest = [
        min(prices)
        for t in types
        if (
            prices := [o.price for o in t.offerings if o.zone in group.zones and o.capacity_type == group.capacity_type]
        )
    ]
    return sum(cheapest) / len(cheapest) if cheapest else None
