"""NodeClaims that were lost with their NodePool: written again from their nodes and instances.

Who deletes the custom resource definitions deletes every NodePool and NodeClaim. Nodes and instances run on, and EC2's
tags name their NodeClaims. Once the NodePools are back, the nodes are older than their NodePool: they get their
NodeClaims again, instead of being given up and replaced one after another. A NodeClaim of an older NodePool was deleted
by somebody who wanted its node to go.

It is written under the cluster's Lease. That takes two writes, and between them it has no instance: its annotation says
that none is launched for it, and the next sweep writes what is missing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import ObjectMeta, OwnerReference, with_condition
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec
from shared.base.struct import with_fields
from shared.cloud_provider import instance_id
from shared.cluster import resources, writes
from shared.cluster.lease import LeaseHeldError, hold
from shared.termination import garbage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import Instance

_OF_THE_MACHINE = (names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE, names.ARCH, names.OS)
_NOT_COPIED = frozenset({names.HOSTNAME, names.REGISTERED, names.INITIALIZED, names.EXCLUDE_BALANCERS})


def restore(
    context: ReconcileContext, nodes: Iterable[Node], pools: Iterable[NodePool], instances: Iterable[Instance]
) -> frozenset[str]:
    """Write the NodeClaims of those of the ``nodes`` without one that are older than their NodePool; their names.

    One that can't be written now is left to the next sweep.
    """
    by_name, by_id = {p.name: p for p in pools}, {i.id: i for i in instances}
    lost = [
        (node, by_name[pool], instance)
        for node in garbage.nodes_older_than_node_pool(nodes, by_name)
        if (pool := node.metadata.labels.get(names.NODEPOOL, "")) in by_name
        and (instance := by_id.get(instance_id(node.spec.provider_id))) is not None
        and instance.tags.get(names.NODECLAIM_TAG)
    ]
    if lost:
        _restore(context, lost)
    return frozenset(node.metadata.name for node, _, _ in lost)


def _restore(context: ReconcileContext, lost: Sequence[tuple[Node, NodePool, Instance]]) -> None:
    cluster, holder = context.settings.cluster_name, f"lifecycle/{context.now.isoformat()}"
    try:
        with hold(context.client, cluster=cluster, holder=holder, now=context.runtime.now) as lease:
            for node, pool, instance in lost:
                lease.check()
                context.attempt(node.ref, partial(_write, context, node, pool, instance))
    except LeaseHeldError as error:
        context.logger.info("Lost NodeClaims are written in the next sweep", extra={"why": str(error)})


def _write(context: ReconcileContext, node: Node, pool: NodePool, instance: Instance) -> None:
    stored = writes.create(context.client, resources.NODE_CLAIMS, nodeclaim_of(node, pool, instance))

    def launched(current: NodeClaim) -> NodeClaim:
        conditions = with_condition(
            current.status.conditions,
            nodeclaim.LAUNCHED,
            status=True,
            reason="Restored",
            now=context.now,
            generation=current.metadata.generation,
        )
        status = with_fields(
            current.status,
            provider_id=node.spec.provider_id,
            image_id=instance.image_id,
            capacity=node.status.capacity,
            allocatable=node.status.allocatable,
            conditions=conditions,
        )
        return with_fields(current, status=status)

    writes.update_status(context.client, resources.NODE_CLAIMS, stored, launched)
    message = f"its NodeClaim {stored.name} was lost with NodePool {pool.name}, which is back: it was written again"
    context.recorder.record(node.ref, "Warning", "NodeClaimRestored", message)
    context.logger.warning("Wrote a lost NodeClaim", extra={"nodeclaim": stored.name, "instance": instance.id})


def nodeclaim_of(node: Node, pool: NodePool, instance: Instance) -> NodeClaim:
    """The NodeClaim of a node of the NodePool: what it is, and what the NodePool's template says now."""
    template = pool.spec.template.spec
    labels = {key: value for key, value in node.metadata.labels.items() if key not in _NOT_COPIED}
    owner = OwnerReference(api_version=pool.api_version, kind=pool.kind, name=pool.name, uid=pool.metadata.uid)
    group = instance.tags.get(names.LAUNCH_GROUP)
    annotations = {names.RESTORED: instance.id} | ({names.LAUNCH_GROUP: group} if group else {})
    return NodeClaim(
        metadata=ObjectMeta(
            name=instance.tags[names.NODECLAIM_TAG],
            labels={**labels, names.NODECLASS: template.node_class_ref.name},
            annotations=annotations,
            finalizers=[names.TERMINATION_FINALIZER],
            owner_references=[owner],
        ),
        spec=NodeClaimSpec(
            node_class_ref=template.node_class_ref,
            requirements=[
                NodeSelectorRequirement(key=key, operator="In", values=[labels[key]])
                for key in _OF_THE_MACHINE
                if key in labels
            ],
            taints=template.taints,
            expire_after=template.expire_after,
            termination_grace_period=template.termination_grace_period,
        ),
        kind=nodeclaim.KIND,
        api_version=nodeclaim.API_VERSION,
    )
