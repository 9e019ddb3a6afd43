"""The NodePools to decide with where the cluster has none of Tenon's kind: derived from the nodes that are scaled.

Nodes of Cluster Autoscaler's groups and of EKS Auto Mode have no NodePool that Tenon reads. One NodePool stands for all
of them that are equal to pods: the same architecture and taints, and the same values of the labels that pods select by.
It allows the capacity types and instance categories that these nodes have, and c, m and r of new generations. Pure.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclass import READY, EC2NodeClass, EC2NodeClassStatus, ResolvedSubnet
from shared.api.nodepool import (
    Disruption,
    NodeClaimTemplate,
    NodeClassRef,
    NodePool,
    NodePoolSpec,
    TemplateMetadata,
    TemplateSpec,
)
from shared.base.struct import Struct, with_fields
from shared.instance_types.instance_type import instance_type_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.api.kubernetes import Node, Pod
    from shared.instance_types.catalog import InstanceTypeCatalog

NODE_CLASS = "shadow-default"
CONSOLIDATE_AFTER = "1m"
"""A NodePool's own default is 0s; a user who has no NodePool yet would begin with this (docs/getting-started.md)."""
CATEGORIES = frozenset({"c", "m", "r"})
NEWER_THAN = 4
"""The generation that instance types are newer than, unless nodes of older ones run."""
_CATEGORY, _GENERATION = f"{names.INSTANCE_PREFIX}category", f"{names.INSTANCE_PREFIX}generation"
_PASSING_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    names.OWN_PREFIX,
    "eks.amazonaws.com/",
    "DeletionCandidateOfClusterAutoscaler",
    "ToBeDeletedByClusterAutoscaler",
)
"""Taints, by the start of their keys, of one node's state."""


class DerivedPools(Struct):
    """The NodePools, their node class, and the NodePool of each node by the node's name."""

    pools: tuple[NodePool, ...] = ()
    node_classes: tuple[EC2NodeClass, ...] = ()
    by_node: Mapping[str, str] = {}


def derived_pools(
    nodes: Iterable[Node], pods: Iterable[Pod], catalog: InstanceTypeCatalog, *, before: Iterable[NodePool] = ()
) -> DerivedPools:
    """The NodePools that stand for these nodes, and those of ``before``, whose nodes may have gone since.

    A NodePool only gains capacity types and instance categories, so that its nodes don't drift.
    """
    nodes = sorted(nodes, key=lambda node: node.metadata.name)
    selected = selected_labels(pods)
    hardware = {h.name: instance_type_labels(h) for h in catalog.hardware}
    alike: dict[bytes, list[Node]] = {}
    for node in nodes:
        key = msgspec.json.encode([_arch(node), _own_labels(node, selected), lasting_taints(node)])
        alike.setdefault(key, []).append(node)
    members = {f"shadow-{hashlib.sha256(key).hexdigest()[:8]}": own for key, own in sorted(alike.items())}
    pools = {pool.name: pool for pool in before}
    zones = {zone for pool in pools.values() for zone in _values(pool, names.ZONE)}
    zones |= {zone for node in nodes if (zone := names.offering_key(node.metadata.labels)[1])}
    for name, own in members.items():
        pools[name] = _pool(name, own, _own_labels(own[0], selected), hardware, before=pools.get(name))
    return DerivedPools(
        pools=tuple(_in_zones(pools[name], zones) for name in sorted(pools)),
        node_classes=(_node_class(zones),) if pools else (),
        by_node={node.metadata.name: name for name, own in members.items() for node in own},
    )


def _values(pool: NodePool | None, key: str) -> set[str]:
    requirements = pool.spec.template.spec.requirements if pool is not None else []
    return {value for requirement in requirements if requirement.key == key for value in requirement.values}


def selected_labels(pods: Iterable[Pod]) -> frozenset[str]:
    """The labels of nodes that pods select by or spread over, without those that instance types define."""
    keys = {key for pod in pods for key in _selected_by(pod)}
    return frozenset(key for key in keys if names.normalize_key(key) not in names.WELL_KNOWN)


def _selected_by(pod: Pod) -> Iterator[str]:
    yield from pod.spec.node_selector
    yield from (constraint.topology_key for constraint in pod.spec.topology_spread_constraints)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None:
        return
    required = affinity.required_during_scheduling_ignored_during_execution
    terms = [*(required.node_selector_terms if required is not None else ())]
    terms += [preferred.preference for preferred in affinity.preferred_during_scheduling_ignored_during_execution]
    yield from (requirement.key for term in terms for requirement in term.match_expressions)


def lasting_taints(node: Node) -> list[Taint]:
    """The node's taints that its successor would have too, without their times."""
    taints = [Taint(key=t.key, value=t.value, effect=t.effect) for t in node.spec.taints]
    kept = [taint for taint in taints if not taint.key.startswith(_PASSING_TAINTS)]
    return sorted(kept, key=lambda taint: (taint.key, taint.effect, taint.value))


def _arch(node: Node) -> str:
    return node.metadata.labels.get(names.ARCH, "amd64")


def _own_labels(node: Node, selected: Iterable[str]) -> dict[str, str]:
    return {key: node.metadata.labels[key] for key in sorted(selected) if key in node.metadata.labels}


def _pool(
    name: str,
    nodes: list[Node],
    labels: dict[str, str],
    hardware: Mapping[str, Mapping[str, str]],
    *,
    before: NodePool | None,
) -> NodePool:
    types = [hardware.get(node.metadata.labels.get(names.INSTANCE_TYPE, ""), {}) for node in nodes]
    categories = CATEGORIES | {own[_CATEGORY] for own in types if _CATEGORY in own} | _values(before, _CATEGORY)
    generations = [int(own[_GENERATION]) - 1 for own in types if _GENERATION in own]
    oldest = min([NEWER_THAN, *generations, *map(int, _values(before, _GENERATION))])
    capacity_types = {names.offering_key(node.metadata.labels)[2] for node in nodes}
    requirements = {
        names.ARCH: [_arch(nodes[0])],
        names.OS: ["linux"],
        names.CAPACITY_TYPE: sorted(capacity_types | _values(before, names.CAPACITY_TYPE)),
        _CATEGORY: sorted(categories),
    }
    return NodePool(
        metadata=ObjectMeta(name=name, uid=name),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                metadata=TemplateMetadata(labels=labels),
                spec=TemplateSpec(
                    node_class_ref=NodeClassRef(group=names.AWS_GROUP, kind="EC2NodeClass", name=NODE_CLASS),
                    taints=lasting_taints(nodes[0]),
                    requirements=[
                        *(NodeSelectorRequirement(key=k, operator="In", values=v) for k, v in requirements.items()),
                        NodeSelectorRequirement(key=_GENERATION, operator="Gt", values=[str(oldest)]),
                    ],
                ),
            ),
            disruption=Disruption(consolidate_after=CONSOLIDATE_AFTER),
        ),
    )


def _in_zones(pool: NodePool, zones: Iterable[str]) -> NodePool:
    template = pool.spec.template
    elsewhere = [r for r in template.spec.requirements if r.key != names.ZONE]
    requirement = NodeSelectorRequirement(key=names.ZONE, operator="In", values=sorted(zones))
    spec = with_fields(template.spec, requirements=[*elsewhere, requirement])
    return with_fields(pool, spec=with_fields(pool.spec, template=with_fields(template, spec=spec)))


def _node_class(zones: Iterable[str]) -> EC2NodeClass:
    """A node class in these zones."""
    return EC2NodeClass(
        metadata=ObjectMeta(name=NODE_CLASS, uid=NODE_CLASS),
        status=EC2NodeClassStatus(
            subnets=[ResolvedSubnet(id=f"any-{zone}", zone=zone) for zone in sorted(zones)],
            conditions=[Condition(type=READY, status="True")],
        ),
    )
