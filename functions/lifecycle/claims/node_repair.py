"""Node repair: replaces nodes that are unhealthy for too long, in NodePools whose owner enabled it.

The rules are pure (``repairs``, ``unhealthy_condition``); ``repair_nodes`` deletes the NodeClaims. The unhealthy
conditions and their toleration are Karpenter's (node/health; docs/facts/karpenter.md, section 6), with the conditions
of EKS' node monitoring agent. When more than a fifth of a NodePool is unhealthy, the cause is
probably not the nodes: none is replaced, and an event says so.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from functools import partial
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import annotated, is_true
from shared.base.struct import Struct, with_fields
from shared.cluster import resources

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot

REPAIR_ANNOTATION = "tenon.sh/repair"
"""Annotation on a NodePool; "true" enables node repair."""
_TOLERATION = timedelta(minutes=30)
_TOLERATIONS: dict[tuple[str, str], timedelta] = {
    ("Ready", "False"): _TOLERATION,
    ("Ready", "Unknown"): _TOLERATION,
    ("AcceleratedHardwareReady", "False"): timedelta(minutes=10),
    ("StorageReady", "False"): _TOLERATION,
    ("NetworkingReady", "False"): _TOLERATION,
    ("KernelReady", "False"): _TOLERATION,
    ("ContainerRuntimeReady", "False"): _TOLERATION,
}
"""For how long a condition (type, status) is tolerated."""
_MAX_UNHEALTHY_PERCENT = 20


class Repair(Struct, kw_only=True):
    """A NodeClaim whose node is replaced, and why."""

    claim: NodeClaim
    message: str


class Repairs(Struct, kw_only=True):
    """The nodes to replace, and those whose annotation forbids it; or why unhealthy nodes are not replaced."""

    repairs: tuple[Repair, ...] = ()
    vetoed: tuple[Repair, ...] = ()
    blocked: str = ""


def repair_nodes(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Delete the NodeClaims of unhealthy nodes.

    Their kubelets don't answer, so the deadline is now: nothing is evicted, and no pod is waited for.
    """
    pauses = context.pauses(snapshot)
    for pool in snapshot.node_pools:
        if pool.name in pauses:
            continue
        pool_repairs = repairs(pool, snapshot.node_claims, snapshot.nodes, now=context.now)
        if pool_repairs.blocked:
            context.recorder.record(pool.ref, "Warning", "NodeRepairBlocked", pool_repairs.blocked)
        for veto in pool_repairs.vetoed:
            message = f"{veto.message}, and annotation {names.DO_NOT_REPAIR} keeps the node"
            context.recorder.record(veto.claim.ref, "Warning", "NodeRepairBlocked", message)
        for repair in pool_repairs.repairs:
            context.attempt(repair.claim.ref, partial(_replace_node, context, repair))


def repairs(pool: NodePool, claims: Iterable[NodeClaim], nodes: Iterable[Node], *, now: datetime) -> Repairs:
    """The NodePool's nodes to replace; none where repair is not enabled."""
    if pool.metadata.annotations.get(REPAIR_ANNOTATION) != "true":
        return Repairs()
    pool_nodes = [n for n in nodes if n.metadata.labels.get(names.NODEPOOL) == pool.name]
    unhealthy = {n.spec.provider_id: why for n in pool_nodes if (why := unhealthy_condition(n, now=now))}
    if len(unhealthy) > -(-len(pool_nodes) * _MAX_UNHEALTHY_PERCENT // 100):
        return Repairs(
            blocked=f"more than {_MAX_UNHEALTHY_PERCENT}% of the NodePool's nodes are unhealthy "
            f"({len(unhealthy)} of {len(pool_nodes)})"
        )
    kept = {n.spec.provider_id for n in pool_nodes if _is_vetoed(n)}
    due: dict[bool, list[Repair]] = {False: [], True: []}
    for claim in claims:
        provider_id = claim.status.provider_id
        if provider_id in unhealthy and _is_repairable(claim):
            repair = Repair(claim=claim, message=unhealthy[provider_id])
            due[_is_vetoed(claim) or provider_id in kept].append(repair)
    return Repairs(repairs=tuple(due[False]), vetoed=tuple(due[True]))


def _is_repairable(claim: NodeClaim) -> bool:
    return claim.metadata.deletion_timestamp is None and is_true(claim.status.conditions, nodeclaim.INITIALIZED)


def _is_vetoed(obj: Node | NodeClaim) -> bool:
    return obj.metadata.annotations.get(names.DO_NOT_REPAIR) == "true"


def unhealthy_condition(node: Node, *, now: datetime) -> str:
    """The node's condition that has been unhealthy for longer than is tolerated, as a message; "" if there is none."""
    for condition in node.status.conditions:
        toleration = _TOLERATIONS.get((condition.type, condition.status))
        since = condition.last_transition_time
        if toleration is not None and since is not None and now - since >= toleration:
            reason = f" ({condition.reason})" if condition.reason else ""
            return f"condition {condition.type} has been {condition.status}{reason} for {toleration}"
    return ""


def _replace_node(context: ReconcileContext, repair: Repair) -> None:
    timestamp = context.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def with_deadline(claim: NodeClaim) -> NodeClaim:
        return with_fields(claim, metadata=annotated(claim.metadata, {names.TERMINATION_TIMESTAMP: timestamp}))

    context.update(resources.NODE_CLAIMS, repair.claim, with_deadline)
    context.delete_nodeclaim(repair.claim, "NodeUnhealthy", repair.message)
    context.report.repaired += 1
