"""Standby nodes over time: they join cordoned, are stopped once they are warm, and take pods when they are started.

``reconcile`` follows their Node objects, at each reconcile; ``sweep`` compares them with EC2's instances each minute. A
function may die between any two lines: each step follows from what the NodeClaim, the node and EC2 say.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from functions.lifecycle.claims.nomination import released_node
from functions.lifecycle.claims.registration import registered_node, registered_nodeclaim
from shared.api import labels as names
from shared.api import nodeclaim, taints
from shared.api.meta import condition, is_true
from shared.api.pods import is_mirror, is_terminal
from shared.api.standby import STARTING, STOPPED, WARMING, awaits_start, standby_state, with_annotations
from shared.base.struct import with_fields
from shared.cloud_provider import instance_id
from shared.cluster import resources, writes
from shared.scheduling.nominations.planned_pods import planned_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot

WARM_AFTER = timedelta(seconds=30)
"""How long a node is Ready at least before it is stopped: by then its DaemonSets' pods are bound to it."""
WARM_TIMEOUT = timedelta(minutes=10)
"""How long after its registration a node is stopped although not all its pods are Ready: it costs as much as any."""
START_GRACE = timedelta(minutes=1)
"""How long EC2 may describe an instance as stopped that was started."""
_SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
_RUNNING = frozenset({"pending", "running"})


def reconcile(context: ReconcileContext, pairs: Iterable[tuple[NodeClaim, Node]]) -> None:
    """Bring standby nodes forward as far as their Node objects tell."""
    for claim, node in pairs:
        if standby_state(claim) == WARMING:
            context.attempt(claim.ref, partial(_register, context, claim, node))
        elif standby_state(claim) == STARTING and _has_returned(node):
            context.attempt(claim.ref, partial(_open, context, claim, node))


def sweep(context: ReconcileContext, snapshot: Snapshot, instances: Sequence[Instance]) -> None:
    """Stop nodes that are warm, and follow what became of instances that were stopped or started."""
    standbys = [c for c in snapshot.node_claims if standby_state(c) and c.metadata.deletion_timestamp is None]
    if not standbys or context.settings.standby != "on":
        return
    by_id = {i.id: i for i in instances}
    provider_ids = {c.status.provider_id for c in standbys if c.status.provider_id}
    nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id in provider_ids}
    pods = _pods_by_node(snapshot.pods, [n.metadata.name for n in nodes.values()])
    for claim in standbys:
        instance = by_id.get(instance_id(claim.status.provider_id))
        node = nodes.get(claim.status.provider_id)
        if instance is not None and node is not None:
            own_pods = pods[node.metadata.name]
            context.attempt(claim.ref, partial(_sweep_one, context, claim, node, instance, own_pods))


def _pods_by_node(pods: Iterable[Pod], nodes: Iterable[str]) -> dict[str, list[Pod]]:
    by_node: dict[str, list[Pod]] = {name: [] for name in nodes}
    for pod in pods:
        if pod.spec.node_name in by_node:
            by_node[pod.spec.node_name].append(pod)
    return by_node


def registered_standby(node: Node, claim: NodeClaim) -> Node:
    """The node as it joins: registered, and cordoned in the same write, which keeps all but DaemonSets' pods away."""
    node = released_node(registered_node(node, claim))
    labels = {**node.metadata.labels, names.STANDBY: "true"}
    return with_fields(
        node, metadata=with_fields(node.metadata, labels=labels), spec=with_fields(node.spec, unschedulable=True)
    )


def stopped_standby(node: Node, claim: NodeClaim) -> Node:
    """The node with its startup taints: it boots again, so agents remove them again, as after registration.

    Taints of effect NoExecute are left out, because DaemonSets' pods are bound to the node already.
    """
    with_startup = list(node.spec.taints)
    for taint in claim.spec.startup_taints:
        if taint.effect != taints.NO_EXECUTE:
            with_startup = taints.with_taint(with_startup, taint)
    return with_fields(node, spec=with_fields(node.spec, taints=with_startup))


def opened_standby(node: Node) -> Node:
    """The node as any other: it takes pods when its startup taints are gone."""
    labels = {key: value for key, value in node.metadata.labels.items() if key != names.STANDBY}
    return with_fields(
        node, metadata=with_fields(node.metadata, labels=labels), spec=with_fields(node.spec, unschedulable=False)
    )


def is_warm(claim: NodeClaim, node: Node, pods: Iterable[Pod], *, now: datetime) -> bool:
    """Whether the node has done what it was launched for: its DaemonSets' pods are Ready, so their images are there."""
    registered = condition(claim.status.conditions, nodeclaim.REGISTERED)
    since = registered.last_transition_time if registered is not None and registered.status == "True" else None
    if since is None or not node.spec.unschedulable:
        return False
    if now - since >= WARM_TIMEOUT:
        return True
    ready = condition(node.status.conditions, "Ready")
    if ready is None or ready.status != "True" or now - (ready.last_transition_time or now) < WARM_AFTER:
        return False
    return all(is_true(p.status.conditions, "Ready") for p in pods if not (is_mirror(p) or is_terminal(p)))


def _has_returned(node: Node) -> bool:
    """Whether the started node is Ready, and has lost the taints that it had while it was stopped."""
    is_starting = any(taints.is_ephemeral(t) or t.key == _SHUTDOWN_TAINT for t in node.spec.taints)
    return is_true(node.status.conditions, "Ready") and not is_starting


def _register(context: ReconcileContext, claim: NodeClaim, node: Node) -> None:
    after = writes.update(context.client, resources.NODES, node, partial(registered_standby, claim=claim))

    def change(current: NodeClaim) -> NodeClaim:
        registered = registered_nodeclaim(current, after, now=context.now)
        status = registered.status
        conditions = nodeclaim.with_ready(status.conditions, now=context.now, generation=current.metadata.generation)
        return with_fields(registered, status=with_fields(status, conditions=conditions))

    if change(claim) != claim:
        writes.update_status(context.client, resources.NODE_CLAIMS, claim, change)


def _open(context: ReconcileContext, claim: NodeClaim, node: Node) -> None:
    """Let a started node take pods: the node first, because without the annotation nothing opens it."""
    writes.update(context.client, resources.NODES, node, opened_standby)
    change = partial(with_annotations, annotations={names.STANDBY: None}, expected=STARTING)
    writes.update(context.client, resources.NODE_CLAIMS, claim, change)
    context.logger.info("A standby node is back", extra={"nodeclaim": claim.name, "node": node.metadata.name})


def _sweep_one(
    context: ReconcileContext, claim: NodeClaim, node: Node, instance: Instance, pods: Sequence[Pod]
) -> None:
    state, is_ready = standby_state(claim), is_true(node.status.conditions, "Ready")
    if state == WARMING and instance.state == "running" and is_warm(claim, node, pods, now=context.now):
        _stop(context, claim, instance)
    elif state == WARMING and instance.state == "stopped" and not is_ready:
        writes.update(context.client, resources.NODES, node, partial(stopped_standby, claim=claim))
        _change_state(context, claim, WARMING, STOPPED)
    elif state == STOPPED and instance.state in _RUNNING:
        # Somebody else started it. As a warming node it is stopped again; meanwhile no decision uses it.
        _change_state(context, claim, STOPPED, WARMING)
    elif state == STARTING and (why := _start_failure(claim, instance, now=context.now)):
        context.delete_nodeclaim(claim, "StandbyNotStarted", why)


def _stop(context: ReconcileContext, claim: NodeClaim, instance: Instance) -> None:
    errors: Mapping[str, str] = context.cloud_provider.stop([instance.id])
    if instance.id in errors:
        context.recorder.record(claim.ref, "Warning", "StandbyNotStopped", errors[instance.id])
    context.logger.info(
        "Stopping a standby node",
        extra={"nodeclaim": claim.name, "instance": instance.id, "why_not": errors.get(instance.id, "")},
    )


def _change_state(context: ReconcileContext, claim: NodeClaim, before: str, after: str) -> None:
    change = partial(with_annotations, annotations={names.STANDBY: after}, expected=before)
    writes.update(context.client, resources.NODE_CLAIMS, claim, change)
    context.logger.info("A standby node changed its state", extra={"nodeclaim": claim.name, "state": after})


def _start_failure(claim: NodeClaim, instance: Instance, *, now: datetime) -> str:
    """Why a node that was started doesn't come; its pods need another one. Empty while it may come."""
    since = planned_at(claim)
    waited = now - since if since is not None else timedelta()
    if instance.state == "stopped" and not awaits_start(claim) and waited >= START_GRACE:
        return f"instance {instance.id} stopped again: {instance.state_message or instance.state_reason}"
    if waited >= nodeclaim.REGISTRATION_TIMEOUT:
        return f"the node of instance {instance.id} isn't Ready within {nodeclaim.REGISTRATION_TIMEOUT} of its start"
    return ""
