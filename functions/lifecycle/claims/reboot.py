"""Reboots of nodes in place, from the request to the end: what :mod:`reboot_rules` say is carried out here.

The request is on the NodeClaim (:mod:`shared.api.reboot`), written by disruption or by Karpenter. A NodeClaim that is
being deleted is not rebooted any more: interruptions, deletions by users and lost instances have deleted it. A reboot
that fails ends in a deletion, and so in a replacement.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from functions.lifecycle.claims.reboot_rules import Action, has_booted, reboot_step
from shared.api import labels as names
from shared.api import reboot
from shared.api.duration import DurationError
from shared.api.nodeclaim import NodeClaim, is_rebooting
from shared.api.taints import REBOOTING, same_taint, with_taint, without_taint
from shared.base.struct import with_fields
from shared.cloud_provider import instance_id
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError
from shared.termination.drain import termination_deadline, with_termination_timestamp
from shared.termination.eviction import Evictor

if TYPE_CHECKING:
    from datetime import datetime

    from functions.lifecycle.claims.reboot_rules import RebootStep
    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node
    from shared.snapshot import Snapshot

_EVICTING = timedelta(seconds=10)
"""How long evictions of one node are begun in one reconcile; the next one continues."""
_PAUSED = frozenset({Action.DRAIN, Action.CALL, Action.FAIL, Action.EXPIRE})
"""What waits while the cluster or the NodePool is paused, or traffic is shifted away from the zone."""
_NOT_DEPLOYED = "reboots are off: -c reboot=on gives the lifecycle function ec2:RebootInstances"


def advance_reboots(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Bring each NodeClaim forward that is rebooting."""
    nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id}
    pauses = context.pauses(snapshot)
    for claim in snapshot.node_claims:
        if not is_rebooting(claim) or claim.metadata.deletion_timestamp is not None:
            continue
        node = nodes.get(claim.status.provider_id)
        pods = [p for p in snapshot.pods if node is not None and p.spec.node_name == node.metadata.name]
        step = reboot_step(claim, node, pods, now=context.now)
        labels = claim.metadata.labels
        is_paused = labels.get(names.NODEPOOL) in pauses or labels.get(names.ZONE) in context.shifted_zones
        if not (is_paused and step.action in _PAUSED):
            context.attempt(claim.ref, partial(_carry_out, context, claim, node, step))


def _carry_out(context: ReconcileContext, claim: NodeClaim, node: Node | None, step: RebootStep) -> None:
    with contextlib.suppress(NotFoundError):  # whoever deletes the NodeClaim or its node has ended the reboot
        if step.action is Action.FAIL:
            _fail(context, claim, node, step.message)
        elif step.action is Action.EXPIRE:
            context.delete_nodeclaim(claim, "Expired", step.message)
        elif step.action is Action.REFUSE:
            context.recorder.record(claim.ref, "Warning", "RebootFailed", step.message)
            _end(context, claim, reboot.FAILED, step.message)
        elif node is not None:
            _bring_forward(context, claim, node, step)


def _bring_forward(context: ReconcileContext, claim: NodeClaim, node: Node, step: RebootStep) -> None:
    if step.action in {Action.OBSERVE, Action.SUCCEED}:
        _observe(context, claim, node, step)
    elif step.action is Action.ISSUE:
        _issue(context, claim, node)
    elif step.action in {Action.DRAIN, Action.CALL} and context.settings.reboot != "on":
        _fail(context, claim, node, _NOT_DEPLOYED)
    elif step.action is Action.DRAIN:
        _drain(context, node, step)
    elif step.action is Action.CALL:
        _call(context, claim, node)


def _drain(context: ReconcileContext, node: Node, step: RebootStep) -> None:
    """Evict what can be evicted now; no new pods come meanwhile."""
    writes.update(context.client, resources.NODES, node, tainted)
    clock = context.runtime.now
    evictor = Evictor(client=context.client, recorder=context.recorder, now=clock)
    evictor.evict_all(step.evict, node.metadata.name, until=clock() + _EVICTING, why="rebooted")


def _call(context: ReconcileContext, claim: NodeClaim, node: Node) -> None:
    """Record the boot ID, and call the reboot, unless the NodeClaim has been deleted meanwhile."""
    node = writes.update(context.client, resources.NODES, node, tainted)
    claim = writes.read(context.client, resources.NODE_CLAIMS, claim.name, NodeClaim)
    change = partial(reboot.with_call, boot_id=node.status.node_info.boot_id, now=context.now)
    claim = writes.update(context.client, resources.NODE_CLAIMS, claim, change)
    if reboot.phase(claim) != reboot.REQUESTED or claim.metadata.deletion_timestamp is not None:
        return
    failure = context.cloud_provider.reboot(instance_id(claim.status.provider_id))
    extra = {"nodeclaim": claim.name, "node": node.metadata.name, "why_not": failure.message if failure else ""}
    context.logger.info("Rebooting a node", extra=extra)
    if failure is None:
        _issue(context, claim, node)
    elif failure.final:
        _fail(context, claim, node, f"the reboot was refused: {failure.message}")


def _issue(context: ReconcileContext, claim: NodeClaim, node: Node) -> None:
    """Write that the reboot was called."""
    writes.update_status(context.client, resources.NODE_CLAIMS, claim, partial(reboot.issued, now=context.now))
    writes.update(context.client, resources.NODES, node, uninitialized)


def _observe(context: ReconcileContext, claim: NodeClaim, node: Node, step: RebootStep) -> None:
    """Follow the node until it has booted and is Ready; then it is initialized as a new one."""
    writes.update(context.client, resources.NODES, node, partial(recovering, claim=claim))
    if has_booted(claim, node) and any(same_taint(t, REBOOTING) for t in node.spec.taints):
        message = "New boot observed (bootID changed); awaiting node readiness"
        context.recorder.record(claim.ref, "Normal", "RebootObserved", message)
    if step.action is Action.SUCCEED:
        _end(context, claim, reboot.SUCCEEDED, "node rebooted and rejoined the cluster")


def _end(context: ReconcileContext, claim: NodeClaim, reason: str, message: str) -> None:
    """Write the outcome: the annotations first, because an old boot ID would make the next reboot seem done."""
    claim = writes.update(context.client, resources.NODE_CLAIMS, claim, partial(reboot.without_call, now=context.now))
    change = partial(reboot.ended, reason=reason, message=message, now=context.now)
    writes.update_status(context.client, resources.NODE_CLAIMS, claim, change)
    context.logger.info("A reboot has ended", extra={"nodeclaim": claim.name, "reason": reason})


def _fail(context: ReconcileContext, claim: NodeClaim, node: Node | None, message: str) -> None:
    """Delete the NodeClaim, whose drain has the bound of that before the reboot; its outcome is only to be read."""
    if node is not None:
        writes.update(context.client, resources.NODES, node, untainted)
    claim = writes.update(context.client, resources.NODE_CLAIMS, claim, partial(with_deadline, now=context.now))
    context.delete_nodeclaim(claim, "RebootFailed", message)
    change = partial(reboot.ended, reason=reboot.FAILED, message=message, now=context.now)
    writes.update_status(context.client, resources.NODE_CLAIMS, claim, change)


def tainted(node: Node) -> Node:
    """The node that reboots, to which no pod is scheduled until it has booted."""
    return with_fields(node, spec=with_fields(node.spec, taints=with_taint(node.spec.taints, REBOOTING)))


def untainted(node: Node) -> Node:
    """The node once it has booted, or its reboot has failed."""
    return with_fields(node, spec=with_fields(node.spec, taints=without_taint(node.spec.taints, REBOOTING.key)))


def uninitialized(node: Node) -> Node:
    """The node from the call of its reboot on, until it is initialized as a new one."""
    labels = {key: value for key, value in node.metadata.labels.items() if key != names.INITIALIZED}
    return with_fields(node, metadata=with_fields(node.metadata, labels=labels))


def recovering(node: Node, claim: NodeClaim) -> Node:
    """The node whose reboot was called: it takes pods once it has booted, and isn't initialized yet."""
    return uninitialized(untainted(node) if has_booted(claim, node) else node)


def with_deadline(claim: NodeClaim, *, now: datetime) -> NodeClaim:
    """The NodeClaim with the end of its drain, if the request has a bound; an earlier end stays."""
    try:
        period = reboot.grace_period(claim)
    except DurationError:
        return claim
    if period is None:
        return claim
    known = termination_deadline(claim)
    end = now + period if known is None else min(known, now + period)
    return with_termination_timestamp(claim, end)
