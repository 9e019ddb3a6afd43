"""From a planned machine to the NodeClaim that asks for it.

The claim is written before its instance is asked for, so that a function which dies in between leaves a wish that the
next one fulfils, not a machine nobody knows of. Claims that one CreateFleet call may launch share a launch group; it is
written with the claim, so a replay groups them the same way.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.hash import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION, hash_node_class, hash_node_pool
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, ResourceRequests
from shared.api.quantity import format_resources
from shared.scheduling.state import nominations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.scheduling.decision import PlannedNodeClaim


def nodeclaim_for(
    planned: PlannedNodeClaim, pool: NodePool, node_class: EC2NodeClass, *, decision: str, name: str
) -> NodeClaim:
    """The claim of a planned machine.

    ``decision`` identifies the decision that planned it (claims of two decisions never share a launch group), ``name``
    is the claim's: the pool's name and a suffix of the caller's choosing.
    """
    template = pool.spec.template
    requirements = (
        *(r for r in planned.requirements if r.key != names.INSTANCE_TYPE),
        NodeSelectorRequirement(
            key=names.INSTANCE_TYPE,
            operator="In",
            values=list(planned.instance_types),
            min_values=_min_types(planned.requirements),
        ),
    )
    spec = NodeClaimSpec(
        node_class_ref=template.spec.node_class_ref,
        requirements=list(requirements),
        resources=ResourceRequests(requests={**format_resources(planned.requests)}),
        taints=list(planned.taints),
        startup_taints=template.spec.startup_taints,
        expire_after=template.spec.expire_after,
        termination_grace_period=template.spec.termination_grace_period,
    )
    claim_labels = {
        **template.metadata.labels,
        **single_values(requirements),
        **planned.labels,
        names.NODEPOOL: pool.name,
        names.NODECLASS: node_class.name,
    }
    annotations = {
        **template.metadata.annotations,
        names.NODEPOOL_HASH: hash_node_pool(pool),
        names.NODEPOOL_HASH_VERSION: NODEPOOL_HASH_VERSION,
        names.NODECLASS_HASH: hash_node_class(node_class),
        names.NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
        names.LAUNCH_GROUP: _launch_group(spec, claim_labels, decision),
        names.PLANNED_PODS: nominations.planned_pods_annotation(planned.pods),
    }
    if planned.min_values_relaxed:
        annotations[names.MIN_VALUES_RELAXED] = "true"
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            labels=claim_labels,
            annotations=annotations,
            finalizers=[names.TERMINATION_FINALIZER],
            owner_references=[
                OwnerReference(
                    api_version=pool.api_version,
                    kind=pool.kind,
                    name=pool.name,
                    uid=pool.metadata.uid,
                    block_owner_deletion=True,
                )
            ],
        ),
        spec=spec,
        kind=nodeclaim.KIND,
        api_version=nodeclaim.API_VERSION,
    )


def single_values(requirements: tuple[NodeSelectorRequirement, ...] | list[NodeSelectorRequirement]) -> dict[str, str]:
    """The labels that requirements pin to one value each."""
    return {r.key: r.values[0] for r in requirements if r.operator == "In" and len(r.values) == 1}


def instance_types(claim: NodeClaim) -> frozenset[str]:
    """The instance types that the claim may be launched as; empty: it doesn't say."""
    return frozenset(
        value
        for r in claim.spec.requirements
        if r.key == names.INSTANCE_TYPE and r.operator == "In"
        for value in r.values
    )


def _min_types(requirements: tuple[NodeSelectorRequirement, ...]) -> int | None:
    return next((r.min_values for r in requirements if r.key == names.INSTANCE_TYPE and r.min_values), None)


def _launch_group(spec: NodeClaimSpec, claim_labels: Mapping[str, str], decision: str) -> str:
    """Equal for claims of one decision that ask for the same machine, whatever pods they are for."""
    alike = msgspec.structs.replace(spec, resources=ResourceRequests())
    content = msgspec.json.encode([decision, msgspec.to_builtins(alike), dict(sorted(claim_labels.items()))])
    return hashlib.sha256(content).hexdigest()[:20]
