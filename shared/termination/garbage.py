"""What is garbage: instances, NodeClaims and nodes whose counterparts are missing. Pure.

========  ============  =======  ==========================  ====================================
Instance  NodeClaim     Node     Action                      Function
========  ============  =======  ==========================  ====================================
lives     none          none     terminate the instance      instances_without_nodeclaim
lives     none          exists   drain the node              nodes_without_nodeclaim
lives     lost          exists   write the NodeClaim         nodes_older_than_node_pool
ends      none          deleted  wait, delete the node       is_being_removed
gone      none          exists   delete the node             nodes_without_nodeclaim_and_instance
lives     wrong status  any      restore status.providerID   nodeclaims_with_wrong_instance
gone      launched      any      delete the NodeClaim        nodeclaims_without_instance
lives     registered    none     delete the NodeClaim        nodeclaims_without_node
lives     exists        deleted  delete the NodeClaim        deleted_nodes_with_live_nodeclaim
unknown   unknown       exists   record an event             nodes_without_instance_id
========  ============  =======  ==========================  ====================================

Only instances with a NodePool's tag and nodes with a NodePool's label or the termination finalizer count: the instances
of a cluster's node groups carry the cluster's tag as well. An instance or NodeClaim that was just launched is left
alone for :data:`GRACE_PERIOD`, and so is an instance whose launch group has a NodeClaim without an instance, because
the provisioner will assign it.

Karpenter: nodeclaim/garbagecollection, in core and in the AWS provider.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition, is_true
from shared.api.nodeclaim import REGISTRATION_TIMEOUT
from shared.cloud_provider import instance_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import Instance

GRACE_PERIOD = timedelta(seconds=30)
"""Younger instances and NodeClaims are left alone: EC2 and the cluster are eventually consistent."""
UNKNOWN_TIMEOUT = timedelta(minutes=5)
"""How long a node must have been not Ready before EC2's not knowing its instance means that the instance is gone.

EC2 describes a terminated instance for about an hour."""
MIN_COLLECTION_LIMIT = 5
_COLLECTION_LIMIT_DIVISOR = 10
_ALIVE = frozenset({"pending", "running", "stopping", "stopped"})
"""States in which an instance costs money, or may again. An instance that is shutting down does not come back."""


def is_alive(instance: Instance) -> bool:
    """Whether the instance costs money, or may again."""
    return instance.state in _ALIVE


def collection_limit(claims: Collection[NodeClaim]) -> int:
    """How many objects one sweep may give up: 5, or a tenth of the cluster's NodeClaims if that is more.

    If far more look like garbage, the answers are probably wrong.

    >>> from shared.api.nodeclaim import NodeClaim
    >>> collection_limit([NodeClaim()] * 3), collection_limit([NodeClaim()] * 200)
    (5, 20)
    """
    return max(MIN_COLLECTION_LIMIT, len(claims) // _COLLECTION_LIMIT_DIVISOR)


def why_gone(claim: NodeClaim, described: Mapping[str, Instance]) -> tuple[str, str] | None:
    """Why the NodeClaim's instance counts as gone (reason, message), or None.

    ``described`` is EC2's answer, by id, to a question that named the instance's id. An instance that EC2 doesn't know
    may be too new to be known, so a NodeClaim that isn't registered is left to its registration time-out.
    """
    known_id = instance_id(claim.status.provider_id)
    if not known_id:
        provider_id = claim.status.provider_id
        message = f'status.providerID "{provider_id}" is no instance, and no instance is tagged with this NodeClaim'
        return "InstanceNotFound", message
    instance = described.get(known_id)
    if instance is not None:
        return (
            None
            if is_alive(instance)
            else ("InstanceTerminated", f"instance {known_id} is {instance.state}, but not by Tenon")
        )
    if not is_true(claim.status.conditions, nodeclaim.REGISTERED):
        return None
    return "InstanceNotFound", f"EC2 doesn't know instance {known_id}"


def is_node_lost(node: Node, instance: Instance | None, *, now: datetime) -> bool:
    """Whether the node can't be drained, because it isn't Ready and its instance is gone.

    ``instance`` is what EC2 describes by its id; None: EC2 doesn't know it, which counts once the node has not been
    Ready for :data:`UNKNOWN_TIMEOUT`.
    """
    ready = condition(node.status.conditions, "Ready")
    if ready is not None and ready.status == "True":
        return False
    if instance is not None or not instance_id(node.spec.provider_id):
        return instance is None or not is_alive(instance)
    since = (ready.last_transition_time if ready is not None else None) or node.metadata.creation_timestamp
    return since is not None and now - since >= UNKNOWN_TIMEOUT


def is_managed(node: Node) -> bool:
    """Whether a NodePool made the node. Its finalizer says so even if somebody removed the label."""
    return names.NODEPOOL in node.metadata.labels or names.TERMINATION_FINALIZER in node.metadata.finalizers


def is_being_removed(node: Node) -> bool:
    """Whether the node is of a NodePool and being deleted, and waits for the termination function."""
    is_deleted = node.metadata.deletion_timestamp is not None
    return is_deleted and names.TERMINATION_FINALIZER in node.metadata.finalizers and is_managed(node)


def without_undecoded_nodeclaims(instances: Iterable[Instance], undecoded: Collection[str]) -> tuple[Instance, ...]:
    """The instances without those of NodeClaims that exist but can't be decoded: nothing is known about them."""
    return tuple(i for i in instances if i.tags.get(names.NODECLAIM_TAG) not in undecoded)


def instances_without_nodeclaim(
    instances: Iterable[Instance], claims: Iterable[NodeClaim], nodes: Iterable[Node] = (), *, now: datetime
) -> tuple[str, ...]:
    """Ids of living instances without a NodeClaim and without a node that would have to be drained first."""
    with_node = {instance_id(n.spec.provider_id) for n in nodes if is_managed(n)}
    unclaimed = _unclaimed_instances(instances, claims, now)
    return tuple(sorted(i.id for i in unclaimed if i.id not in with_node))


def nodes_without_nodeclaim(
    nodes: Iterable[Node], claims: Iterable[NodeClaim], instances: Iterable[Instance], *, now: datetime
) -> tuple[Node, ...]:
    """Nodes whose instance lives and whose NodeClaim is gone, because somebody removed its finalizer."""
    unclaimed = {i.id for i in _unclaimed_instances(instances, claims, now)}
    return tuple(n for n in nodes if is_managed(n) and instance_id(n.spec.provider_id) in unclaimed)


def nodes_older_than_node_pool(nodes: Iterable[Node], pools: Mapping[str, NodePool]) -> tuple[Node, ...]:
    """Those of the nodes that their NodePool (by name) can't have made, because it was created later.

    It was deleted together with their NodeClaims, without any of them being drained, and is back.
    """

    def is_older(node: Node) -> bool:
        pool = pools.get(node.metadata.labels.get(names.NODEPOOL, ""))
        pool_created = pool.metadata.creation_timestamp if pool is not None else None
        node_created = node.metadata.creation_timestamp
        return node_created is not None and pool_created is not None and node_created < pool_created

    return tuple(n for n in nodes if n.metadata.deletion_timestamp is None and is_older(n))


def nodes_without_nodeclaim_and_instance(
    nodes: Iterable[Node], claims: Iterable[NodeClaim], instances: Iterable[Instance], *, now: datetime
) -> tuple[Node, ...]:
    """Nodes whose NodeClaim and instance are both gone.

    A node that is Ready has an instance. A node without the termination finalizer may still be registering, so it gets
    the registration time-out.
    """
    claimed = {c.status.provider_id for c in claims}
    living = {i.id for i in instances if is_alive(i)}

    def has_instance(node: Node) -> bool:
        return instance_id(node.spec.provider_id) in living or is_true(node.status.conditions, "Ready")

    def may_be_registering(node: Node) -> bool:
        age = now - (node.metadata.creation_timestamp or now)
        return names.TERMINATION_FINALIZER not in node.metadata.finalizers and age < REGISTRATION_TIMEOUT

    return tuple(
        n
        for n in nodes
        if is_managed(n) and n.spec.provider_id not in claimed and not has_instance(n) and not may_be_registering(n)
    )


def nodeclaims_with_wrong_instance(
    claims: Iterable[NodeClaim], instances: Iterable[Instance]
) -> tuple[tuple[NodeClaim, Instance], ...]:
    """Launched NodeClaims whose status names no living instance, each with the living instance tagged with its name.

    Somebody changed their status.
    """
    claims = tuple(claims)
    living = {i.id: i for i in instances if is_alive(i)}
    claimed = {instance_id(c.status.provider_id) for c in claims}
    unclaimed_by_tag = {i.tags.get(names.NODECLAIM_TAG, ""): i for i in living.values() if i.id not in claimed}
    return tuple(
        (c, unclaimed_by_tag[c.name])
        for c in claims
        if _is_live_and(c, nodeclaim.LAUNCHED)
        and instance_id(c.status.provider_id) not in living
        and c.name in unclaimed_by_tag
    )


def nodeclaims_without_instance(
    claims: Iterable[NodeClaim], instances: Iterable[Instance], nodes: Iterable[Node] = (), *, now: datetime
) -> tuple[NodeClaim, ...]:
    """Launched NodeClaims whose status names no living instance, and whose node, if there is one, isn't Ready.

    The instance was terminated, but not by Tenon; or the answer is wrong.
    """
    living = {i.id for i in instances if is_alive(i)}
    ready_nodes = [n for n in nodes if is_true(n.status.conditions, "Ready")]
    ready = {n.spec.provider_id for n in ready_nodes} | {n.metadata.name for n in ready_nodes}
    return tuple(
        c
        for c in claims
        if _is_live_and(c, nodeclaim.LAUNCHED)
        and instance_id(c.status.provider_id) not in living
        and not ready & {c.status.provider_id, c.status.node_name}
        and now - _launched_at(c, now) >= GRACE_PERIOD
    )


def nodeclaims_without_node(claims: Iterable[NodeClaim], nodes: Iterable[Node]) -> tuple[NodeClaim, ...]:
    """Registered NodeClaims whose node was force-deleted; a kubelet does not register again.

    The NodeClaims must have been read before the nodes, as in a snapshot.
    """
    with_node = {n.spec.provider_id for n in nodes}
    return tuple(c for c in claims if _is_live_and(c, nodeclaim.REGISTERED) and c.status.provider_id not in with_node)


def deleted_nodes_with_live_nodeclaim(nodes: Iterable[Node], claims: Iterable[NodeClaim]) -> tuple[Node, ...]:
    """Nodes that somebody deleted and whose NodeClaim is not being deleted yet: the message about it was lost."""
    live = {c.status.provider_id for c in claims if c.metadata.deletion_timestamp is None}
    return tuple(
        n for n in nodes if is_managed(n) and n.metadata.deletion_timestamp is not None and n.spec.provider_id in live
    )


def nodes_without_instance_id(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes of NodePools whose providerID is no EC2 instance, so their NodeClaim can't be determined."""
    return tuple(n for n in nodes if names.NODEPOOL in n.metadata.labels and not instance_id(n.spec.provider_id))


def _unclaimed_instances(
    instances: Iterable[Instance], claims: Iterable[NodeClaim], now: datetime
) -> tuple[Instance, ...]:
    """Living instances of NodePools that no NodeClaim's status names and that none waits for."""
    claimed: set[str] = set()
    waiting_launch_groups: set[str] = set()
    for claim in claims:
        claimed.add(instance_id(claim.status.provider_id))
        is_waiting = claim.metadata.deletion_timestamp is None and names.RESTORED not in claim.metadata.annotations
        if is_waiting and not claim.status.provider_id:
            waiting_launch_groups.add(claim.metadata.annotations.get(names.LAUNCH_GROUP, ""))
    return tuple(
        i
        for i in instances
        if is_alive(i)
        and names.NODEPOOL in i.tags
        and i.id not in claimed
        and now - i.launched_at >= GRACE_PERIOD
        and (i.tags.get(names.LAUNCH_GROUP) or i.id) not in waiting_launch_groups
    )


def _is_live_and(claim: NodeClaim, condition_type: str) -> bool:
    """Whether the NodeClaim is not being deleted and has the condition."""
    return claim.metadata.deletion_timestamp is None and is_true(claim.status.conditions, condition_type)


def _launched_at(claim: NodeClaim, now: datetime) -> datetime:
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    return (launched.last_transition_time if launched else None) or claim.metadata.creation_timestamp or now
