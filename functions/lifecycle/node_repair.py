"""Which nodes are unhealthy for too long and are replaced: only where a pool's owner asks for it.

Pure. What counts, and for how long it is borne, are Karpenter's rules (reference: karpenter.md, section 6) with the
conditions that EKS' node monitoring agent sets. When more than a fifth of a pool is unhealthy the cause is hardly the
machines, so nothing is replaced and the pool is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool

GATE = "tenon.sh/repair"
"""Annotation on a NodePool; "true" lets its unhealthy nodes be replaced."""
_BORNE = timedelta(minutes=30)
_BORNE_OF: dict[tuple[str, str], timedelta] = {
    ("Ready", "False"): _BORNE,
    ("Ready", "Unknown"): _BORNE,
    ("AcceleratedHardwareReady", "False"): timedelta(minutes=10),
    ("StorageReady", "False"): _BORNE,
    ("NetworkingReady", "False"): _BORNE,
    ("KernelReady", "False"): _BORNE,
    ("ContainerRuntimeReady", "False"): _BORNE,
}
"""How long a condition's status is borne."""
_MOST_PERCENT = 20


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A node to be replaced, by its claim, and why."""

    claim: NodeClaim
    message: str


@dataclass(frozen=True, kw_only=True)
class Repairs:
    """What to replace; or, in words, why nothing is although something is unhealthy."""

    repairs: tuple[Repair, ...] = ()
    blocked: str = ""


def decide(pool: NodePool, claims: Iterable[NodeClaim], nodes: Iterable[Node], *, now: datetime) -> Repairs:
    """What to replace of the pool's nodes; nothing where the pool doesn't ask for it."""
    if pool.metadata.annotations.get(GATE) != "true":
        return Repairs()
    own = [n for n in nodes if n.metadata.labels.get(names.NODEPOOL) == pool.name]
    sick = {n.spec.provider_id: why for n in own if (why := unhealthy(n, now=now))}
    if len(sick) > -(-len(own) * _MOST_PERCENT // 100):
        return Repairs(blocked=f"{len(sick)} of {len(own)} nodes are unhealthy, more than {_MOST_PERCENT} %")
    return Repairs(
        repairs=tuple(
            Repair(claim=c, message=sick[c.status.provider_id])
            for c in claims
            if c.status.provider_id in sick
            and c.metadata.deletion_timestamp is None
            and is_true(c.status.conditions, nodeclaim.INITIALIZED)
        )
    )


def unhealthy(node: Node, *, now: datetime) -> str:
    """What has been wrong with the node for longer than is borne, or "" when nothing has."""
    for condition in node.status.conditions:
        borne = _BORNE_OF.get((condition.type, condition.status))
        since = condition.last_transition_time
        if borne is not None and since is not None and now - since >= borne:
            said = f" ({condition.reason})" if condition.reason else ""
            return f"{condition.type} has been {condition.status}{said} for {borne}"
    return ""
