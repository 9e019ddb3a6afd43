"""Standalone NodeClaims: those that somebody created without a NodePool, to be launched as they are.

Karpenter launches them like all others, and deletes those that can't be launched. A node class is resolved for them as
if a NodePool without requirements of its own referred to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api import labels as names
from shared.api.meta import EventReason, ObjectMeta, condition, is_true
from shared.api.nodeclaim import LAUNCHED
from shared.api.nodeclass import READY
from shared.api.nodepool import NodeClaimTemplate, NodePool, NodePoolSpec, TemplateSpec
from shared.api.quantity import QuantityError, parse_resources
from shared.base.struct import with_fields
from shared.cloud_provider import LaunchFailure
from shared.scheduling.decision import MAX_INSTANCE_TYPES
from shared.scheduling.rules.requirements import RequirementError, parse
from shared.scheduling.state.instance_type_arrays import allowed_in, instance_type_arrays

if TYPE_CHECKING:
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.instance_type import InstanceType
    from shared.snapshot import Snapshot

NODE_CLASS_NOT_READY = EventReason("NodeClassNotReady")
NO_COMPATIBLE_TYPES = EventReason("NoCompatibleInstanceTypes")


def is_standalone(claim: NodeClaim) -> bool:
    """Whether the NodeClaim has no NodePool."""
    return names.NODEPOOL not in claim.metadata.labels


def pool_name(claim: NodeClaim) -> str:
    """The name under which the node class of a standalone NodeClaim is resolved; no NodePool can have it."""
    return f"nodeclass/{claim.spec.node_class_ref.name}"


def with_standalone_pools(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a NodePool for each node class of standalone NodeClaims that aren't launched yet.

    Only to resolve instance types: pods are never scheduled to these NodePools.
    """
    waiting = [
        c
        for c in snapshot.node_claims
        if is_standalone(c) and c.metadata.deletion_timestamp is None and not is_true(c.status.conditions, LAUNCHED)
    ]
    if not waiting:
        return snapshot
    pools = {
        pool_name(c): NodePool(
            metadata=ObjectMeta(name=pool_name(c)),
            spec=NodePoolSpec(template=NodeClaimTemplate(spec=TemplateSpec(node_class_ref=c.spec.node_class_ref))),
        )
        for c in waiting
    }
    return with_fields(snapshot, node_pools=(*snapshot.node_pools, *pools.values()))


def launchable(
    claim: NodeClaim, node_class: EC2NodeClass | None, resolved_pools: ResolvedNodePools
) -> tuple[InstanceType, ...] | LaunchFailure:
    """The instance types that the NodeClaim may be launched as, cheapest first, or why it can't be launched.

    ``node_class`` is the stored one. As in Karpenter, what its status says of its current generation counts.
    """
    pool = pool_name(claim)
    if node_class is not None and (problem := _stored_problem(node_class)):
        return _failure(claim, NODE_CLASS_NOT_READY, problem)
    if pool not in resolved_pools.node_classes:
        return _failure(claim, NODE_CLASS_NOT_READY, resolved_pools.not_ready.get(pool, "the node class is not known"))
    try:
        types = _compatible_types(claim, resolved_pools.instance_types.get(pool, ()))
    except (RequirementError, QuantityError) as error:
        return _failure(claim, NO_COMPATIBLE_TYPES, str(error))
    if not types:
        message = "no instance type meets the requirements, has the requested resources and is available"
        return _failure(claim, NO_COMPATIBLE_TYPES, message)
    return types


def prepared(claim: NodeClaim) -> NodeClaim:
    """The NodeClaim as it must be before its instance is launched: with finalizer, labels and a launch group."""
    metadata = claim.metadata
    single = {
        r.key: r.values[0]
        for r in claim.spec.requirements
        if r.operator == "In" and len(r.values) == 1 and r.key != names.HOSTNAME
    }
    finalizers = metadata.finalizers
    if names.TERMINATION_FINALIZER not in finalizers:
        finalizers = [*finalizers, names.TERMINATION_FINALIZER]
    return with_fields(
        claim,
        metadata=with_fields(
            metadata,
            labels={**single, **metadata.labels, names.NODECLASS: claim.spec.node_class_ref.name},
            annotations={names.LAUNCH_GROUP: metadata.uid, **metadata.annotations},
            finalizers=finalizers,
        ),
    )


def _stored_problem(node_class: EC2NodeClass) -> str:
    """Why the node class isn't ready, by its status of its current generation; empty if that doesn't say so."""
    ready = condition(node_class.status.conditions, READY)
    if ready is None or ready.status != "False":
        return ""
    is_current = ready.observed_generation in {0, node_class.metadata.generation}
    return f"{node_class.ref}: {ready.message}" if is_current else ""


def _compatible_types(claim: NodeClaim, types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    requests = parse_resources(claim.spec.resources.requests)
    if not types:
        return ()
    arrays = instance_type_arrays(types)
    allowed_types, allowed_offerings = allowed_in(arrays, parse(claim.spec.requirements))
    fits = np.ones(len(arrays.names), np.bool_)
    for resource, amount in requests.items():
        if resource in arrays.resources:
            fits &= arrays.allocatable[:, arrays.resources.index(resource)] >= amount
        elif amount:
            return ()
    cheapest = np.where(allowed_offerings, arrays.price, np.inf).min(1, initial=np.inf)
    usable = np.flatnonzero(allowed_types & fits & np.isfinite(cheapest)).tolist()
    usable.sort(key=lambda i: (cheapest[i], arrays.names[i]))
    by_name = {t.name: t for t in types}
    return tuple(by_name[arrays.names[i]] for i in usable[:MAX_INSTANCE_TYPES])


def _failure(claim: NodeClaim, reason: str, message: str) -> LaunchFailure:
    return LaunchFailure(claim_name=claim.name, kind="gone", reason=reason, message=message)
