"""What is left behind: instances without a claim, claims without an instance, nodes without either, templates, leases.

Pure: what the cluster and EC2 hold, in; what must go, out. An instance that was just launched is left alone for a
while, and so is one whose launch group still has a claim waiting for an instance: the provisioner will deal it. Only
what carries a pool's tag or label is ours: a cluster's node groups carry the cluster's tag as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition, is_true
from shared.api.nodeclaim import REGISTRATION_TIMEOUT
from shared.launch.instances import instance_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.lease import LeaseObject
    from shared.launch.instances import Instance

GRACE = timedelta(seconds=30)
"""Younger instances and claims are left alone: EC2 and the cluster may not have told each other yet."""
UNUSED = timedelta(hours=1)
"""A launch template that made nothing for so long goes (it is made again when it is wanted); a node's lease, too."""
_ALIVE = frozenset({"pending", "running", "stopping", "stopped"})
"""States in which an instance costs money, or could again; what is shutting down does not come back."""
_TEMPLATE_TAG = "aws:ec2launchtemplate:id"
"""EC2 itself tags an instance with the template that made it."""


@dataclass(frozen=True, kw_only=True)
class LaunchTemplate:
    """A launch template of the cluster's."""

    id: str
    name: str
    created_at: datetime


def is_alive(instance: Instance) -> bool:
    """Whether the instance costs money, or could again."""
    return instance.state in _ALIVE


def without_unreadable_nodeclaims(instances: Iterable[Instance], unread: Collection[str]) -> tuple[Instance, ...]:
    """The instances but for those of claims that are there and can't be read: nothing can be said of them."""
    return tuple(i for i in instances if i.tags.get(names.NODECLAIM_TAG) not in unread)


def instances_without_nodeclaim(
    instances: Iterable[Instance], claims: Iterable[NodeClaim], nodes: Iterable[Node] = (), *, now: datetime
) -> tuple[str, ...]:
    """Ids of living instances that no claim names and none will, and that have no node that would be drained first."""
    with_node = {instance_id(n.spec.provider_id) for n in nodes if _is_ours(n)}
    return tuple(sorted(i.id for i in _instances_without_nodeclaim(instances, claims, now) if i.id not in with_node))


def nodes_without_nodeclaim(
    nodes: Iterable[Node], claims: Iterable[NodeClaim], instances: Iterable[Instance], *, now: datetime
) -> tuple[Node, ...]:
    """Nodes of ours whose claim is gone (somebody took its finalizer off) while their instance lives: to be drained."""
    alone = {i.id for i in _instances_without_nodeclaim(instances, claims, now)}
    return tuple(n for n in nodes if _is_ours(n) and instance_id(n.spec.provider_id) in alone)


def _instances_without_nodeclaim(
    instances: Iterable[Instance], claims: Iterable[NodeClaim], now: datetime
) -> tuple[Instance, ...]:
    held: set[str] = set()
    waiting: set[str] = set()
    for claim in claims:
        held.add(instance_id(claim.status.provider_id))
        if not claim.status.provider_id and claim.metadata.deletion_timestamp is None:
            waiting.add(claim.metadata.annotations.get(names.LAUNCH_GROUP, ""))
    return tuple(
        i
        for i in instances
        if is_alive(i)
        and names.NODEPOOL in i.tags
        and i.id not in held
        and now - i.launched_at >= GRACE
        and (i.tags.get(names.LAUNCH_GROUP) or i.id) not in waiting
    )


def nodeclaims_with_wrong_instance(
    claims: Iterable[NodeClaim], instances: Iterable[Instance]
) -> tuple[tuple[NodeClaim, Instance], ...]:
    """Launched claims that name no living instance while one is tagged as theirs: somebody changed their status."""
    claims = tuple(claims)
    living = tuple(i for i in instances if is_alive(i))
    alive, held = {i.id for i in living}, {instance_id(c.status.provider_id) for c in claims}
    tagged = {i.tags.get(names.NODECLAIM_TAG, ""): i for i in living if i.id not in held}
    return tuple(
        (c, tagged[c.name])
        for c in claims
        if c.metadata.deletion_timestamp is None
        and is_true(c.status.conditions, nodeclaim.LAUNCHED)
        and instance_id(c.status.provider_id) not in alive
        and c.name in tagged
    )


def nodeclaims_without_instance(
    claims: Iterable[NodeClaim], instances: Iterable[Instance], *, now: datetime
) -> tuple[NodeClaim, ...]:
    """Claims whose instance is gone, terminated from outside, or that name none although they were launched."""
    alive = {i.id for i in instances if is_alive(i)}
    return tuple(
        c
        for c in claims
        if c.metadata.deletion_timestamp is None
        and is_true(c.status.conditions, nodeclaim.LAUNCHED)
        and instance_id(c.status.provider_id) not in alive
        and now - _launched_at(c, now) >= GRACE
    )


def nodeclaims_without_node(claims: Iterable[NodeClaim], nodes: Iterable[Node]) -> tuple[NodeClaim, ...]:
    """Registered claims whose node is gone: deleted by force, and no kubelet brings it back.

    The claims must have been read before the nodes, as a snapshot's are.
    """
    there = {n.spec.provider_id for n in nodes}
    return tuple(
        c
        for c in claims
        if c.metadata.deletion_timestamp is None
        and is_true(c.status.conditions, nodeclaim.REGISTERED)
        and c.status.provider_id not in there
    )


def nodes_without_nodeclaim_and_instance(
    nodes: Iterable[Node], claims: Iterable[NodeClaim], instances: Iterable[Instance], *, now: datetime
) -> tuple[Node, ...]:
    """Nodes that Tenon or Karpenter made, whose claim and instance are both gone.

    One that never registered may still be starting, so it is given the time that registration is given; and one that
    names no instance of EC2's is only taken for gone when its kubelet is silent as well.
    """
    held = {c.status.provider_id for c in claims}
    alive = {i.id for i in instances if is_alive(i)}

    def lives(node: Node) -> bool:
        if (known := instance_id(node.spec.provider_id)) == "":
            return is_true(node.status.conditions, "Ready")
        return known in alive

    return tuple(
        n
        for n in nodes
        if _is_ours(n)
        and n.spec.provider_id not in held
        and not lives(n)
        and (
            names.TERMINATION_FINALIZER in n.metadata.finalizers
            or now - (n.metadata.creation_timestamp or now) >= REGISTRATION_TIMEOUT
        )
    )


def deleted_nodes_of_nodeclaims(nodes: Iterable[Node], claims: Iterable[NodeClaim]) -> tuple[Node, ...]:
    """Nodes of ours that somebody has deleted and whose claim doesn't go yet: nobody has heard of it."""
    living = {c.status.provider_id for c in claims if c.metadata.deletion_timestamp is None}
    return tuple(
        n for n in nodes if _is_ours(n) and n.metadata.deletion_timestamp is not None and n.spec.provider_id in living
    )


def nodes_without_instance_id(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes of a pool whose providerID names no instance of EC2's: no claim can be found by it."""
    return tuple(n for n in nodes if names.NODEPOOL in n.metadata.labels and not instance_id(n.spec.provider_id))


def unused_templates(
    templates: Iterable[LaunchTemplate], instances: Iterable[Instance], *, now: datetime
) -> tuple[LaunchTemplate, ...]:
    """Launch templates of the cluster that were made over an hour ago and that no instance came from since."""
    used = {i.tags.get(_TEMPLATE_TAG, "") for i in instances if now - i.launched_at < UNUSED}
    return tuple(t for t in templates if now - t.created_at >= UNUSED and t.id not in used)


def leftover_leases(leases: Iterable[LeaseObject], nodes: Iterable[Node], *, now: datetime) -> tuple[LeaseObject, ...]:
    """Kubelets' leases that belong to nobody and that nobody has renewed for an hour: their node never was, or is gone.

    A lease with an owner goes with it by itself.
    """
    there = {n.metadata.name for n in nodes}
    return tuple(
        lease
        for lease in leases
        if not lease.metadata.owner_references
        and lease.metadata.name not in there
        and now - (lease.spec.renew_time or lease.metadata.creation_timestamp or now) >= UNUSED
    )


def _is_ours(node: Node) -> bool:
    """Whether a pool made the node; its finalizer says so too, even if somebody took the label off."""
    return names.NODEPOOL in node.metadata.labels or names.TERMINATION_FINALIZER in node.metadata.finalizers


def _launched_at(claim: NodeClaim, now: datetime) -> datetime:
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    return (launched.last_transition_time if launched else None) or claim.metadata.creation_timestamp or now
