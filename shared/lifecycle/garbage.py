"""What is left behind: instances without a claim, claims without an instance, nodes without either.

Pure: what the cluster and EC2 hold, in; what must go, out. An instance that was just launched is left alone for a
while, and so is one whose launch group still has a claim waiting for an instance: the provisioner will deal it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition, is_true
from shared.launch.instances import instance_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.launch.instances import Instance

GRACE = timedelta(seconds=30)
"""Younger instances and claims are left alone: EC2 and the cluster may not have told each other yet."""
_ALIVE = frozenset({"pending", "running", "stopping", "stopped"})
"""States in which an instance costs money, or could again; what is shutting down does not come back."""


def orphans(instances: Iterable[Instance], claims: Iterable[NodeClaim], *, now: datetime) -> tuple[str, ...]:
    """Ids of living instances that no claim names and none will."""
    held: set[str] = set()
    waiting: set[str] = set()
    for claim in claims:
        held.add(instance_id(claim.status.provider_id))
        if not claim.status.provider_id and claim.metadata.deletion_timestamp is None:
            waiting.add(claim.metadata.annotations.get(names.LAUNCH_GROUP, ""))
    return tuple(
        sorted(
            i.id
            for i in instances
            if i.state in _ALIVE
            and i.id not in held
            and now - i.launched_at >= GRACE
            and (i.tags.get(names.LAUNCH_GROUP) or i.id) not in waiting
        )
    )


def lost(claims: Iterable[NodeClaim], instances: Iterable[Instance], *, now: datetime) -> tuple[NodeClaim, ...]:
    """Claims whose instance is gone, terminated from outside."""
    alive = {i.id for i in instances if i.state in _ALIVE}
    return tuple(
        c
        for c in claims
        if c.metadata.deletion_timestamp is None
        and c.status.provider_id
        and is_true(c.status.conditions, nodeclaim.LAUNCHED)
        and instance_id(c.status.provider_id) not in alive
        and now - _launched_at(c, now) >= GRACE
    )


def abandoned(nodes: Iterable[Node], claims: Iterable[NodeClaim], instances: Iterable[Instance]) -> tuple[Node, ...]:
    """Nodes that Tenon or Karpenter made, whose claim and instance are both gone."""
    held = {c.status.provider_id for c in claims}
    alive = {i.id for i in instances if i.state in _ALIVE}
    return tuple(
        n
        for n in nodes
        if names.TERMINATION_FINALIZER in n.metadata.finalizers
        and n.spec.provider_id not in held
        and instance_id(n.spec.provider_id) not in alive
    )


def _launched_at(claim: NodeClaim, now: datetime) -> datetime:
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    return (launched.last_transition_time if launched else None) or claim.metadata.creation_timestamp or now
