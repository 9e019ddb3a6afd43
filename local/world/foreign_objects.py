"""Objects of other node-class groups in a cluster: those of EKS Auto Mode, and of another provider's Karpenter.

They have Karpenter's kinds, with a ``nodeClassRef`` of another group, and what their own controllers write: finalizers,
labels, taints and status. Their instances are not among those that have the cluster's tag. The nodes have a taint that
only system pods tolerate, so that no workload runs on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubelets import node_objects
from local.kubernetes import kinds
from local.kubernetes.object_updates import update_status
from local.kubernetes.objects import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

_Json = dict[str, Any]

AUTO_MODE, AZURE = "eks.amazonaws.com", "karpenter.azure.com"
GROUPS = (AUTO_MODE, AZURE)
_NODE_CLASS_KINDS = {AUTO_MODE: "NodeClass", AZURE: "AKSNodeClass"}
_VERSIONS = {AUTO_MODE: "v1", AZURE: "v1beta1"}
_FINALIZER = "karpenter.sh/termination"
_SYSTEM_TAINT = {"key": "CriticalAddonsOnly", "effect": "NoSchedule"}
_CAPACITY = {"cpu": "2", "memory": "3904932Ki", "ephemeral-storage": "81854Mi", "pods": "27"}
_POOL_CONDITIONS = ("ValidationSucceeded", "NodeClassReady", "Ready")
_CLAIM_CONDITIONS = ("Launched", "Registered", "Initialized", "Ready")


def create(store: Store, *, zone: str, now: datetime) -> None:
    """Create the objects of Auto Mode and of another provider; their definitions of node classes, too."""
    for group in GROUPS:
        store.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, _definition(group))
        node_class = store.kind(f"{group}/{_VERSIONS[group]}", _NODE_CLASS_KINDS[group])
        _create_with_status(store, node_class, _node_class(group), conditions=_conditions(("Ready",), now))
    _create_pool(store, AUTO_MODE, "general-purpose", now)
    _create_pool(store, AUTO_MODE, "system", now)
    _create_pool(store, AZURE, "azure", now)
    _create_node_with_claim(
        store,
        AUTO_MODE,
        pool="system",
        node="i-0a00000000000000a",
        provider_id=f"aws:///{zone}/i-0a00000000000000a",
        now=now,
    )
    _create_node_with_claim(
        store,
        AZURE,
        pool="azure",
        node="aks-azure-7kq2p",
        provider_id="azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/aks-azure-7kq2p",
        now=now,
    )


def foreign_objects(store: Store) -> Iterator[Obj]:
    """The NodePools, NodeClaims, node classes and nodes of other groups, as they are now."""
    for group in GROUPS:
        yield from store.list(store.kind(f"{group}/{_VERSIONS[group]}", _NODE_CLASS_KINDS[group]))
    for kind in ("NodePool", "NodeClaim"):
        for obj in store.list(store.kind("karpenter.sh/v1", kind)):
            if _node_class_group(obj) in GROUPS:
                yield obj
    yield from (node for node in store.list(kinds.NODES) if node["metadata"]["labels"].get(_GROUP_LABEL) in GROUPS)


_GROUP_LABEL = "local.tenon.sh/node-class-group"
"""Label on the nodes of other groups."""


def is_foreign(obj: Mapping[str, Any]) -> bool:
    """Whether a node, NodePool or NodeClaim is of another node-class group."""
    return _node_class_group(obj) in GROUPS or (obj["metadata"].get("labels") or {}).get(_GROUP_LABEL) in GROUPS


def without_foreign(objects: Iterable[Obj]) -> list[Obj]:
    """The objects without those of other node-class groups."""
    return [obj for obj in objects if not is_foreign(obj)]


def _node_class_group(obj: Mapping[str, Any]) -> str:
    spec = obj.get("spec") or {}
    reference = spec.get("nodeClassRef") or (spec.get("template") or {}).get("spec", {}).get("nodeClassRef") or {}
    return str(reference.get("group", ""))


def _definition(group: str) -> _Json:
    kind = _NODE_CLASS_KINDS[group]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": _VERSIONS[group],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    plural = f"{kind.lower()}es"
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "metadata": {"name": f"{plural}.{group}", "labels": {"app.kubernetes.io/managed-by": "eks"}},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _node_class(group: str) -> _Json:
    return {
        "apiVersion": f"{group}/{_VERSIONS[group]}",
        "kind": _NODE_CLASS_KINDS[group],
        "metadata": {"name": "default", "finalizers": [f"{group}/termination"]},
        "spec": {"role": "AmazonEKSAutoNodeRole", "networkPolicy": "DefaultAllow", "snatPolicy": "Random"},
    }


def _reference(group: str) -> _Json:
    return {"group": group, "kind": _NODE_CLASS_KINDS[group], "name": "default"}


def _create_pool(store: Store, group: str, name: str, now: datetime) -> None:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    ]
    spec = {"nodeClassRef": _reference(group), "requirements": requirements, "expireAfter": "336h"}
    taints = {} if name == "general-purpose" else {"taints": [_SYSTEM_TAINT]}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "eks"}},
        "spec": {"template": {"metadata": {}, "spec": {**spec, **taints, "terminationGracePeriod": "24h"}}},
    }
    kind = store.kind("karpenter.sh/v1", "NodePool")
    _create_with_status(store, kind, pool, conditions=_conditions(_POOL_CONDITIONS, now), resources={"nodes": "1"})


def _create_node_with_claim(store: Store, group: str, *, pool: str, node: str, provider_id: str, now: datetime) -> None:
    labels = {
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "linux",
        f"{group}/{_NODE_CLASS_KINDS[group].lower()}": "default",
    }
    claim: _Json = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": f"{pool}-8xk4w", "labels": labels, "finalizers": [_FINALIZER]},
        "spec": {"nodeClassRef": _reference(group), "requirements": [], "taints": [_SYSTEM_TAINT]},
    }
    _create_with_status(
        store,
        store.kind("karpenter.sh/v1", "NodeClaim"),
        claim,
        conditions=_conditions(_CLAIM_CONDITIONS, now),
        providerID=provider_id,
        nodeName=node,
        capacity=_CAPACITY,
        allocatable=_CAPACITY,
    )
    _create_node(store, group, labels, node=node, provider_id=provider_id, now=now)


def _create_node(
    store: Store, group: str, labels: Mapping[str, str], *, node: str, provider_id: str, now: datetime
) -> None:
    own = {
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "eks.amazonaws.com/compute-type": "auto",
    }
    created = store.create(
        kinds.NODES,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node,
                "labels": {**labels, **own, "kubernetes.io/hostname": node, _GROUP_LABEL: group},
                "finalizers": [_FINALIZER],
            },
            "spec": {"providerID": provider_id, "taints": [_SYSTEM_TAINT]},
            "status": {
                "capacity": _CAPACITY,
                "allocatable": _CAPACITY,
                "conditions": [node_objects.ready_condition(now, ready=True)],
                "nodeInfo": {"kubeletVersion": "v1.34.1-eks", "architecture": "arm64", "operatingSystem": "linux"},
            },
        },
    )
    store.create(kinds.LEASES, node_objects.lease(created, now, continuously=True), namespace="kube-node-lease")


def _create_with_status(store: Store, kind: kinds.Kind, obj: _Json, **status: object) -> None:
    update_status(store, kind, store.create(kind, obj), **status)


def _conditions(types: tuple[str, ...], now: datetime) -> list[_Json]:
    time = timestamp(now)
    return [{"type": t, "status": "True", "reason": t, "message": "", "lastTransitionTime": time} for t in types]
