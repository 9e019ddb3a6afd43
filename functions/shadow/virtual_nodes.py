"""Virtual NodeClaims and their nodes: launched by a decision, or taken over from a real node. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from functions.shadow.default_pools import lasting_taints
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.hash import hash_node_pool, node_pool_hash_version
from shared.api.kubernetes import Node, NodeSpec, NodeStatus
from shared.api.meta import Condition, ObjectMeta, condition, is_true
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.quantity import format_resources
from shared.base.struct import with_fields
from shared.launch.fleet.overrides import offering_labels
from shared.shadow.ledger import Offering

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from shared.api.nodepool import NodePool
    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim

BOOT = timedelta(minutes=1)
"""How long a virtual node takes from its launch until it is initialized, which starts its consolidateAfter."""


def offering_of(labels: Mapping[str, str]) -> Offering:
    """The offering of a node or NodeClaim with these labels."""
    return Offering(*names.offering_key(labels))


def launched(
    planned: PlannedNodeClaim, claim: NodeClaim, resolved_pools: ResolvedNodePools, *, at: datetime
) -> NodeClaim:
    """The planned node's NodeClaim, as if it had been launched with its cheapest offering at that time."""
    cheapest = planned.cheapest
    instance_type = next(
        t for t in resolved_pools.instance_types[planned.node_pool] if t.name == cheapest.instance_type
    )
    offering = next(
        o for o in instance_type.offerings if (o.zone, o.capacity_type) == (cheapest.zone, cheapest.capacity_type)
    )
    # Its instance types and planned pods are of no use any more.
    annotations = {k: v for k, v in claim.metadata.annotations.items() if k != names.PLANNED_PODS}
    labels = {**offering_labels(instance_type, offering), **claim.metadata.labels}
    return with_fields(
        claim,
        metadata=with_fields(
            claim.metadata, uid=claim.name, labels=labels, annotations=annotations, creation_timestamp=at
        ),
        spec=with_fields(claim.spec, requirements=[], resources=nodeclaim.ResourceRequests()),
        status=NodeClaimStatus(
            node_name=claim.name,
            provider_id=f"shadow:///{offering.zone}/{claim.name}",
            capacity={**format_resources(instance_type.capacity)},
            allocatable={**format_resources(instance_type.allocatable)},
            conditions=_up(at + BOOT),
        ),
    )


def adopted(
    node: Node, claim: NodeClaim | None, pool: NodePool, instance_type: InstanceType, *, now: datetime
) -> NodeClaim:
    """A real node as a virtual NodeClaim of the NodePool: what Tenon would take over."""
    zone, capacity_type = offering_of(node.metadata.labels).zone, offering_of(node.metadata.labels).capacity_type
    created = (claim or node).metadata.creation_timestamp or now
    initialized = condition(claim.status.conditions, nodeclaim.INITIALIZED) if claim is not None else None
    own = {names.normalize_key(key): value for key, value in node.metadata.labels.items()}
    template = pool.spec.template.spec
    return NodeClaim(
        metadata=ObjectMeta(
            name=claim.name if claim is not None else node.metadata.name,
            uid=node.metadata.uid or node.metadata.name,
            labels={
                **instance_type.labels,
                **own,
                names.NODEPOOL: pool.name,
                names.ZONE: zone,
                names.CAPACITY_TYPE: capacity_type,
            },
            annotations={
                **(claim.metadata.annotations if claim is not None else {}),
                **{k: v for k, v in node.metadata.annotations.items() if k == names.DO_NOT_DISRUPT},
                names.NODEPOOL_HASH: hash_node_pool(pool),
                names.NODEPOOL_HASH_VERSION: node_pool_hash_version(pool),
            },
            creation_timestamp=created,
        ),
        spec=NodeClaimSpec(
            node_class_ref=template.node_class_ref,
            taints=lasting_taints(node),
            expire_after=claim.spec.expire_after if claim is not None else template.expire_after,
            termination_grace_period=template.termination_grace_period,
        ),
        status=NodeClaimStatus(
            node_name=node.metadata.name,
            provider_id=node.spec.provider_id,
            capacity={**node.status.capacity},
            allocatable={**node.status.allocatable},
            conditions=_up((initialized.last_transition_time if initialized is not None else None) or created),
        ),
    )


def can_be_adopted(node: Node) -> bool:
    """Whether the node is up, and nobody removes it."""
    is_leaving = node.metadata.deletion_timestamp is not None
    is_leaving = is_leaving or any(t.key == names.DISRUPTED_TAINT for t in node.spec.taints)
    return not is_leaving and is_true(node.status.conditions, "Ready")


def node_of(claim: NodeClaim) -> Node:
    """The node of a virtual NodeClaim."""
    name = claim.status.node_name
    labels = {names.HOSTNAME: name, **claim.metadata.labels, names.REGISTERED: "true", names.INITIALIZED: "true"}
    return Node(
        metadata=ObjectMeta(
            name=name, uid=claim.metadata.uid, labels=labels, creation_timestamp=claim.metadata.creation_timestamp
        ),
        spec=NodeSpec(provider_id=claim.status.provider_id, taints=claim.spec.taints),
        status=NodeStatus(
            allocatable=claim.status.allocatable,
            capacity=claim.status.capacity,
            conditions=[Condition(type="Ready", status="True")],
        ),
    )


def _up(since: datetime) -> list[Condition]:
    types = (nodeclaim.LAUNCHED, nodeclaim.REGISTERED, nodeclaim.INITIALIZED)
    return [Condition(type=type_, status="True", last_transition_time=since) for type_ in types]
