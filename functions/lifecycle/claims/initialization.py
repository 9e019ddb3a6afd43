"""Initialization of a node: whether pods can run on it, and the Initialized and Ready conditions that say so.

Pure. Rules: Karpenter's nodeclaim/lifecycle/initialization.go (docs/facts/karpenter.md, section 6).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.dynamic_resources import with_dynamic_resources
from shared.api.meta import condition, is_true, with_condition
from shared.api.quantity import parse_resources
from shared.api.taints import is_ephemeral, same_taint
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.kubernetes import Node, Taint
    from shared.api.nodeclaim import NodeClaim

INITIALIZATION_TIME = timedelta(minutes=15)
"""How long a registered node may take until an event says what it waits for."""
RESOURCE_NOT_REGISTERED = "ResourceNotRegistered"
"""The reason of a node that is ready but for an extended resource that its pods requested."""


def initialized_node(node: Node, claim: NodeClaim) -> Node:
    """The registered node, with label ``karpenter.sh/initialized`` if pods can run on it."""
    if node.metadata.labels.get(names.INITIALIZED) == "true" or initialization_blocker(node, claim) is not None:
        return node
    labels = {**node.metadata.labels, names.INITIALIZED: "true"}
    return with_fields(node, metadata=with_fields(node.metadata, labels=labels))


def initialized_nodeclaim(claim: NodeClaim, node: Node, *, now: datetime) -> NodeClaim:
    """The registered NodeClaim with conditions Initialized and Ready, and the node's real size once initialized."""
    status = claim.status
    conditions, generation = status.conditions, claim.metadata.generation
    blocker = initialization_blocker(node, claim)
    if blocker is None:
        conditions = with_condition(
            conditions, nodeclaim.INITIALIZED, status=True, reason="Initialized", now=now, generation=generation
        )
        size = _with_devices(node, claim).status
        status = with_fields(status, capacity=size.capacity, allocatable=size.allocatable)
    elif not is_true(conditions, nodeclaim.INITIALIZED):
        reason, message = blocker
        conditions = with_condition(
            conditions,
            nodeclaim.INITIALIZED,
            status=None,
            reason=reason,
            message=message,
            now=now,
            generation=generation,
        )
    conditions = nodeclaim.with_ready(conditions, now=now, generation=generation)
    return with_fields(claim, status=with_fields(status, conditions=conditions))


def late_initialization(claim: NodeClaim, node: Node, *, now: datetime) -> str:
    """What the registered node waits for since :data:`INITIALIZATION_TIME`; "" if it doesn't.

    Nothing ends this wait, as in Karpenter: the next node would probably wait for the same.
    """
    registered = condition(claim.status.conditions, nodeclaim.REGISTERED)
    since = registered.last_transition_time if registered is not None and registered.status == "True" else None
    if since is None or now - since < INITIALIZATION_TIME or is_true(claim.status.conditions, nodeclaim.INITIALIZED):
        return ""
    blocker = initialization_blocker(node, claim)
    if blocker is None:
        return ""
    minutes = INITIALIZATION_TIME // timedelta(minutes=1)
    return f"not initialized {minutes} minutes after registration, and its planned pods wait: {blocker[1]}"


def initialization_blocker(node: Node, claim: NodeClaim) -> tuple[str, str] | None:
    """Why the node is not initialized (reason, message), or None when pods can run on it."""
    if not is_true(node.status.conditions, "Ready"):
        return "NodeNotReady", f"node {node.metadata.name} is not Ready"
    for taint in sorted(node.spec.taints, key=_is_own):
        if any(same_taint(taint, startup) for startup in claim.spec.startup_taints):
            return "StartupTaintsExist", f'startup taint "{taint.key}:{taint.effect}" still exists'
        if is_ephemeral(taint):
            return "KnownEphemeralTaintsExist", f'known ephemeral taint "{taint.key}:{taint.effect}" still exists'
    missing = missing_resources(node, claim)
    return (RESOURCE_NOT_REGISTERED, f'resource "{missing[0]}" was requested but not registered') if missing else None


def missing_resources(node: Node, claim: NodeClaim) -> tuple[str, ...]:
    """The resources that the NodeClaim requests, and that neither the node's kubelet nor its drivers provide."""
    allocatable = parse_resources(_with_devices(node, claim).status.allocatable)
    requests = parse_resources(claim.spec.resources.requests)
    return tuple(name for name, amount in requests.items() if amount > 0 and not allocatable.get(name))


def _with_devices(node: Node, claim: NodeClaim) -> Node:
    """The node with what its drivers provide, if they provide anything."""
    return with_dynamic_resources(node, claim) if names.DYNAMIC_RESOURCES in claim.metadata.annotations else node


def _is_own(taint: Taint) -> bool:
    """Whether Tenon removes the taint itself, once no other is left."""
    return taint.key == names.PODS_NOT_NOMINATED_TAINT
