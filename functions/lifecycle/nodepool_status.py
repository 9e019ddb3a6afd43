"""What a pool and its node class say of themselves: resources, nodes, and conditions with reasons people understand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition, with_condition
from shared.api.nodeclass import READY
from shared.api.nodepool import NodePoolStatus
from shared.api.quantity import NODES, add, format_resources, parse_resources
from shared.launch.node_class.readiness import node_class_not_ready

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from functions.lifecycle.liveness import GivenUp
    from shared.api.kubernetes import Node
    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool

VALIDATION = "ValidationSucceeded"
NODE_CLASS_READY = "NodeClassReady"
REGISTRATION_HEALTHY = "NodeRegistrationHealthy"


def claims_of(pool: NodePool, claims: Iterable[NodeClaim]) -> tuple[NodeClaim, ...]:
    """The claims that the pool made."""
    return tuple(c for c in claims if c.metadata.labels.get(names.NODEPOOL) == pool.name)


def status(
    pool: NodePool,
    claims: Iterable[NodeClaim],
    nodes: Iterable[Node],
    node_class: EC2NodeClass | None,
    *,
    now: datetime,
    failed: GivenUp | None = None,
) -> NodePoolStatus:
    """The status to write: what the pool's claims hold, and whether it can launch.

    ``failed``: one of its claims was just given up before it had a node, and why.
    """
    own = claims_of(pool, claims)
    count = sum(1 for n in nodes if n.metadata.labels.get(names.NODEPOOL) == pool.name)
    held = add(*(parse_resources(c.status.capacity) for c in own)) if own else {}
    conditions = with_condition(
        pool.status.conditions,
        VALIDATION,
        status=True,
        reason="Valid",
        now=now,
        generation=pool.metadata.generation,
    )
    obstacle = node_class_not_ready(pool, node_class)
    reason, message = obstacle or ("Ready", "")
    conditions = with_condition(
        conditions,
        NODE_CLASS_READY,
        status=obstacle is None,
        reason=reason,
        message=message,
        now=now,
        generation=pool.metadata.generation,
    )
    conditions = _with_registration(conditions, own, failed, now=now)
    return NodePoolStatus(
        resources={**format_resources({**held, NODES: count})},
        nodes=count,
        conditions=_with_ready(conditions, pool, now=now),
    )


def invalid_conditions(
    conditions: list[Condition], problems: Iterable[str], *, generation: int, now: datetime
) -> list[Condition]:
    """The conditions of a pool or class that can't be used: not valid, and so not ready, with every problem named."""
    message = "; ".join(problems)
    after = with_condition(
        conditions, VALIDATION, status=False, reason="Invalid", message=message, now=now, generation=generation
    )
    return with_condition(after, READY, status=False, reason="Invalid", message=message, now=now, generation=generation)


def _with_registration(
    conditions: list[Condition], own: Iterable[NodeClaim], failed: GivenUp | None, *, now: datetime
) -> list[Condition]:
    """Whether the pool's machines become nodes: unknown at first, false after one didn't, true as soon as one has."""
    before = condition(conditions, REGISTRATION_HEALTHY)
    if failed is not None:
        return with_condition(
            conditions, REGISTRATION_HEALTHY, status=False, reason=failed.reason, message=failed.message, now=now
        )
    registered = [
        c.last_transition_time or now
        for claim in own
        if (c := condition(claim.status.conditions, nodeclaim.REGISTERED)) is not None and c.status == "True"
    ]
    since = before.last_transition_time if before is not None and before.status == "False" else None
    if registered and (since is None or max(registered) > since):
        return with_condition(conditions, REGISTRATION_HEALTHY, status=True, reason="NodesRegister", now=now)
    if before is None:
        text = "no node has registered yet"
        return with_condition(
            conditions, REGISTRATION_HEALTHY, status=None, reason="AwaitingNodes", message=text, now=now
        )
    return conditions


def _with_ready(conditions: list[Condition], pool: NodePool, *, now: datetime) -> list[Condition]:
    failing = next(
        (
            c
            for type_ in (VALIDATION, NODE_CLASS_READY)
            if (c := condition(conditions, type_)) is not None and c.status != "True"
        ),
        None,
    )
    return with_condition(
        conditions,
        READY,
        status=failing is None,
        reason="Ready" if failing is None else failing.reason,
        message="" if failing is None else failing.message,
        now=now,
        generation=pool.metadata.generation,
    )
