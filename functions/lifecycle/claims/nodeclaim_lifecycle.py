"""Brings NodeClaims forward: registration and initialization with their node, or deletion when that takes too long.

The rules are in :mod:`registration`, :mod:`nomination`, :mod:`initialization` and :mod:`liveness`; this module writes
what they return.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from msgspec import field

from functions.lifecycle.claims.eviction_release import EvictionRelease, write_delayed_pods
from functions.lifecycle.claims.initialization import initialized_node, initialized_nodeclaim, late_initialization
from functions.lifecycle.claims.liveness import is_launch_overdue, liveness_failure, standalone_expiration
from functions.lifecycle.claims.nomination import (
    PodNominations,
    nominate_pods,
    opened_together,
    released_node,
    waits_for_devices,
)
from functions.lifecycle.claims.provider_id import restore_provider_id
from functions.lifecycle.claims.registration import registered_node, registered_nodeclaim
from functions.lifecycle.compared_instances import list_instances
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason, is_true
from shared.api.nodeclaim import is_rebooting
from shared.api.pods import requests
from shared.api.quantity import CPU, MEMORY
from shared.api.standby import standby_state, was_standby
from shared.base import hints
from shared.base.runtime import KUBERNETES_THREADS, in_threads
from shared.base.struct import Struct
from shared.cloud_provider import instance_id
from shared.cluster import resources, writes
from shared.cluster.errors import ConflictError, InvalidError, NotFoundError
from shared.launch import boot_failures
from shared.scheduling.nominations.planned_pods import planned_at, tried_version
from shared.standby.held_nodes import without_standbys
from shared.termination import garbage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from functions.lifecycle.claims.liveness import LivenessFailure
    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot
    from shared.termination.delayed_eviction import DelayedPods

_EVENTS = {
    nodeclaim.REGISTERED: EventReason("Registered"),
    nodeclaim.INITIALIZED: EventReason("Initialized"),
}
"""The conditions that a NodeClaim gets with its node, each with its event."""
_BATCH_SIZE = KUBERNETES_THREADS
"""Nodes that are registered before their NodeClaims are written, and the evictions that wait for them released; pods
that are nominated at once for nodes that are opened together."""


def reconcile_nodeclaims(
    context: ReconcileContext, snapshot: Snapshot, *, nominate: bool
) -> Mapping[str, LivenessFailure]:
    """Register, initialize or delete each NodeClaim; by NodePool name, the last liveness failure, if there was one.

    Without ``nominate``, NodeClaims with a node are left to the holder of the lease, which reconciles once more: two
    that write the same nodes at once conflict with one another.
    """
    nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id}
    unrecorded = _unrecorded_instances(context, snapshot)
    release = _eviction_release(context, snapshot, nodes)
    failures: dict[str, LivenessFailure] = {}
    with_node: list[tuple[NodeClaim, Node]] = []
    standbys: list[tuple[NodeClaim, Node]] = []
    for claim in snapshot.node_claims:
        if claim.metadata.deletion_timestamp is not None:
            continue
        expired = standalone_expiration(claim, now=context.now)
        if expired is not None:
            _give_up(context, snapshot, claim, expired)
            continue
        if is_rebooting(claim):
            continue  # neither initialized by the boot before, nor given up: a step of its own follows it
        node = nodes.get(claim.status.provider_id) if claim.status.provider_id else None
        if node is not None:
            (standbys if standby_state(claim) else with_node).append((claim, node))
            continue
        failure = _reconcile_without_node(context, snapshot, claim, unrecorded)
        if failure is not None:
            failures[claim.metadata.labels.get(names.NODEPOOL, "")] = failure
    if not nominate:
        return failures
    _reconcile_standbys(context, standbys)
    with_node = _with_devices(context, with_node)
    nominations = _nominations(context, without_standbys(snapshot), with_node)
    _register_all(context, with_node, release, nominations)
    context.attempt("delayed evictions", release.release_rest)
    _clear_nominations(context, nominations.cleared)
    return failures


def _with_devices(context: ReconcileContext, pairs: list[tuple[NodeClaim, Node]]) -> list[tuple[NodeClaim, Node]]:
    """The pairs, with what drivers of devices provide to nodes that wait for nothing else."""
    waiting = {claim.name for claim, node in pairs if _requests_devices(claim) and waits_for_devices(claim, node)}
    if not waiting:
        return pairs
    from functions.lifecycle.claims import dynamic_resources  # noqa: PLC0415 (few nodes wait for devices)

    return dynamic_resources.annotate(context, pairs, waiting)


def _requests_devices(claim: NodeClaim) -> bool:
    """Whether the NodeClaim requests an extended resource, which has a domain; cheap, for every node in each minute."""
    return any("/" in name for name in claim.spec.resources.requests)


def _reconcile_without_node(
    context: ReconcileContext, snapshot: Snapshot, claim: NodeClaim, unrecorded: _UnrecordedInstances
) -> LivenessFailure | None:
    """Restore the NodeClaim's providerID if an instance has its tag; why it is given up, if its time is over."""
    instance = unrecorded.by_nodeclaim.get(claim.name)
    if instance is not None:
        context.attempt(claim.ref, partial(restore_provider_id, context, claim, instance))
        return None
    launch_group = claim.metadata.annotations.get(names.LAUNCH_GROUP, "")
    unassigned = unrecorded.by_launch_group.get(launch_group, "")
    failure = liveness_failure(claim, now=context.now, server_now=context.server_now, unassigned_instance=unassigned)
    return failure if failure is not None and _give_up(context, snapshot, claim, failure) else None


def _reconcile_standbys(context: ReconcileContext, standbys: Sequence[tuple[NodeClaim, Node]]) -> None:
    if standbys:
        # Imported here: few clusters have standby nodes.
        from functions.lifecycle.claims import standby_nodes  # noqa: PLC0415

        standby_nodes.reconcile(context, standbys)


def _give_up(context: ReconcileContext, snapshot: Snapshot, claim: NodeClaim, failure: LivenessFailure) -> bool:
    """Delete the NodeClaim, unless the cluster or its NodePool is paused; whether it is given up."""
    if context.pause is not None or claim.metadata.labels.get(names.NODEPOOL) in context.pauses(snapshot):
        return False
    if failure.reason in {boot_failures.REGISTRATION_TIMEOUT, boot_failures.LAUNCH_TIMEOUT}:
        remember = partial(
            boot_failures.remember_timeout,
            context.aws.dynamodb(),
            context.settings.table_name,
            claim,
            snapshot.node_claims,
        )
        context.attempt(claim.ref, partial(remember, (failure.reason, failure.message), now=context.now))
    context.attempt(claim.ref, partial(context.delete_nodeclaim, claim, failure.reason, failure.message))
    return True


def reconciled_node(node: Node, claim: NodeClaim, *, released: bool = False) -> Node:
    """The node as its NodeClaim has it be: registered, and initialized if pods can run on it.

    ``released``: its planned pods are nominated, or there are none, so that it takes pods.
    """
    node = registered_node(node, claim)
    return initialized_node(released_node(node) if released else node, claim)


def reconciled_nodeclaim(claim: NodeClaim, node: Node, *, now: datetime) -> NodeClaim:
    """The NodeClaim as its node has it be: registered, and initialized if pods can run on the node."""
    return initialized_nodeclaim(registered_nodeclaim(claim, node, now=now), node, now=now)


class _UnrecordedInstances(Struct, kw_only=True):
    """Living instances that no NodeClaim's status names, by the NodeClaim in their tags.

    ``by_launch_group`` has the ids of those that are not assigned to a NodeClaim yet, by launch group.
    """

    by_nodeclaim: Mapping[str, Instance] = field(default_factory=dict)
    by_launch_group: Mapping[str, str] = field(default_factory=dict)


def _unrecorded_instances(context: ReconcileContext, snapshot: Snapshot) -> _UnrecordedInstances:
    """Instances for NodeClaims whose launch is overdue; EC2 is asked only if there are such NodeClaims."""
    overdue = {c.name for c in snapshot.node_claims if is_launch_overdue(c, server_now=context.server_now)}
    if not overdue:
        return _UnrecordedInstances()
    recorded = {instance_id(c.status.provider_id) for c in snapshot.node_claims}
    by_nodeclaim: dict[str, Instance] = {}
    by_launch_group: dict[str, str] = {}
    for instance in list_instances(context, snapshot, in_portions=False).instances:
        if not garbage.is_alive(instance) or instance.id in recorded:
            continue
        claim_name = instance.tags.get(names.NODECLAIM_TAG)
        if claim_name in overdue:
            by_nodeclaim[claim_name] = instance
        elif claim_name is None:
            by_launch_group[instance.tags.get(names.LAUNCH_GROUP, "")] = instance.id
    by_launch_group.pop("", None)
    return _UnrecordedInstances(by_nodeclaim=by_nodeclaim, by_launch_group=by_launch_group)


def _nominations(
    context: ReconcileContext, snapshot: Snapshot, with_node: Iterable[tuple[NodeClaim, Node]]
) -> PodNominations:
    """The nominations of planned pods; if they can't be computed, every node takes pods without them."""
    pairs = list(with_node)
    try:
        return nominate_pods(snapshot, pairs, now=context.now)
    except Exception:
        # Nominations only save money. Whatever is wrong with them must not keep new nodes closed.
        context.logger.exception("Nominating pods failed, their nodes take pods without nominations")
        return PodNominations(released=frozenset(node.metadata.name for _, node in pairs))


def _register_all(
    context: ReconcileContext,
    with_node: Iterable[tuple[NodeClaim, Node]],
    release: EvictionRelease,
    nominations: PodNominations,
) -> None:
    """Write what changed of these pairs, several in parallel: a hundred nodes may join at once.

    Pods are nominated before their node takes pods. The evictions that wait for a node are released after its batch,
    not after all nodes.
    """
    released = nominations.released
    changed = _changed(context, with_node, release, released)
    unwritten = dict(nominations.by_node)
    written: list[tuple[NodeClaim, Node]] = []

    def finish() -> None:
        in_threads(partial(_write_nodeclaim, context), written, threads=KUBERNETES_THREADS)
        for claim, _ in written:
            context.attempt(claim.ref, partial(release.release_for, claim.name))
        written.clear()

    for group in opened_together(changed, nominations, _BATCH_SIZE):
        names_in_group = [node.metadata.name for _, node in group]
        pods = {name: unwritten.pop(name) for name in names_in_group if name in unwritten}
        _nominate(context, pods)
        nodes = in_threads(partial(_write_node, context, released), group, threads=KUBERNETES_THREADS)
        written += [pair for pair in nodes if pair is not None]
        # Again at once, before other pods take the room of those that lost their nomination meanwhile. The largest
        # first: a small pod finds other room, and a large one that has lost its own to small pods needs another node.
        _write_nominations(context, {name: pods[name] for name in pods if name in released}, largest_first=True)
        if len(written) >= _BATCH_SIZE:
            finish()
    finish()
    _nominate(context, unwritten)


def _changed(
    context: ReconcileContext,
    with_node: Iterable[tuple[NodeClaim, Node]],
    release: EvictionRelease,
    released: frozenset[str],
) -> list[tuple[NodeClaim, Node]]:
    """The pairs of which something is to be written; evictions that wait for the others are released."""
    changed: list[tuple[NodeClaim, Node]] = []
    for claim, node in with_node:
        _report_late(context, claim, node)
        if _has_changed(claim, node, released=node.metadata.name in released, now=context.now):
            changed.append((claim, node))
        else:
            context.attempt(claim.ref, partial(release.release_for, claim.name))
    return changed


def _write_node(
    context: ReconcileContext, released: frozenset[str], pair: tuple[NodeClaim, Node]
) -> tuple[NodeClaim, Node] | None:
    """The NodeClaim with its node as written; None if that failed."""
    claim, node = pair
    change = partial(reconciled_node, claim=claim, released=node.metadata.name in released)
    after: list[Node] = []
    context.attempt(claim.ref, lambda: after.append(writes.update(context.client, resources.NODES, node, change)))
    return (claim, after[0]) if after else None


def _report_late(context: ReconcileContext, claim: NodeClaim, node: Node) -> None:
    """Record an event if the node should have been initialized long ago."""
    why = late_initialization(claim, node, now=context.now)
    if why:
        context.recorder.record(claim.ref, "Warning", "NotInitialized", why)


def _nominate(context: ReconcileContext, by_node: Mapping[str, Sequence[Pod]]) -> None:
    """Nominate pods for nodes (by name), and say so. A pod loses it if kube-scheduler tries it on a closed node."""
    _write_nominations(context, by_node)
    for node, pods in by_node.items():
        context.logger.info("Nominated pods for a node", extra={"node": node, "pods": len(pods)})


def _write_nominations(
    context: ReconcileContext, by_node: Mapping[str, Sequence[Pod]], *, largest_first: bool = False
) -> None:
    """Nominate pods for nodes (by name), several in parallel; by size, the largest last or first."""

    def write(pod_and_node: tuple[Pod, str]) -> None:
        pod, node = pod_and_node
        context.attempt(pod.ref, partial(_set_nominated_node, context, pod, node))

    pairs = [(pod, node) for node, pods in by_node.items() for pod in pods]
    pairs.sort(key=lambda pair: _size(pair[0]), reverse=largest_first)
    in_threads(write, pairs, threads=KUBERNETES_THREADS)


def _size(pod: Pod) -> tuple[int, int]:
    requested = requests(pod)
    return requested.get(CPU, 0), requested.get(MEMORY, 0)


def _clear_nominations(context: ReconcileContext, pods: Sequence[Pod]) -> None:
    """Remove the nominations of pods that their nodes didn't take."""

    def clear(pod: Pod) -> None:
        context.attempt(pod.ref, partial(_set_nominated_node, context, pod, None))

    in_threads(clear, pods, threads=KUBERNETES_THREADS)
    for pod in pods:
        context.logger.info("Cleared a nomination", extra={"pod": pod.key, "node": pod.status.nominated_node_name})


def _set_nominated_node(context: ReconcileContext, pod: Pod, node: str | None) -> None:
    """Write a pod's nominated node, unless the pod is gone or bound, which the API server refuses (422).

    Its place in kube-scheduler's queue doesn't change with it, so what tells that place is kept. Where a nomination is
    cleared, kube-scheduler may not have tried the pod: from 1.37 on, no new node retries one that only other pods'
    anti-affinity keeps away. A changed label does.
    """
    meta = pod.metadata
    path = resources.PODS.path(meta.name, namespace=meta.namespace, subresource="status")
    annotations = {names.TRIED_VERSION: tried_version(pod) if node is not None else None}
    labels = {} if node is not None else {names.RETRIED: None if names.RETRIED in meta.labels else "true"}
    metadata = {"uid": meta.uid, "annotations": annotations, "labels": labels}
    patch = {"metadata": metadata, "status": {"nominatedNodeName": node}}
    with contextlib.suppress(NotFoundError, ConflictError, InvalidError):
        context.client.patch(path, patch)


def _has_changed(claim: NodeClaim, node: Node, *, released: bool, now: datetime) -> bool:
    """Whether either of the two is to be written."""
    after = reconciled_node(node, claim, released=released)
    return after != node or reconciled_nodeclaim(claim, after, now=now) != claim


def _write_nodeclaim(context: ReconcileContext, pair: tuple[NodeClaim, Node]) -> None:
    """Write the conditions that the NodeClaim has by its node, as that was written."""
    context.attempt(pair[0].ref, partial(_register, context, *pair))


def _register(context: ReconcileContext, claim: NodeClaim, node: Node) -> None:
    """Write the conditions, and an event for each that this write made true, not another invocation's."""
    before = claim

    def reconciled(current: NodeClaim) -> NodeClaim:
        nonlocal before
        before = current
        return reconciled_nodeclaim(current, node, now=context.now)

    after = writes.update_status(context.client, resources.NODE_CLAIMS, claim, reconciled)
    for type_, reason in _EVENTS.items():
        if not is_true(after.status.conditions, type_) or is_true(before.status.conditions, type_):
            continue
        context.logger.info(
            "NodeClaim condition became true",
            extra={"nodeclaim": claim.name, "node": node.metadata.name, "condition": type_},
        )
        context.recorder.record(claim.ref, "Normal", reason, f"node {node.metadata.name}")
        _count(context, claim, type_)


def _count(context: ReconcileContext, claim: NodeClaim, condition_type: str) -> None:
    report = context.report
    # A node that was started from standby has waited before; its pods have waited since they were planned for it.
    created = planned_at(claim) if was_standby(claim) else claim.metadata.creation_timestamp
    with context.report_lock:
        if condition_type == nodeclaim.REGISTERED:
            report.registered += 1
            return
        report.initialized += 1
        seconds = (context.now - created).total_seconds() if created is not None else 0.0
        report.slowest_ready = max(report.slowest_ready, seconds)


def _eviction_release(context: ReconcileContext, snapshot: Snapshot, nodes: Mapping[str, Node]) -> EvictionRelease:
    """The release of evictions that were delayed until some of these nodes registered."""

    def write(claim_name: str, delayed: DelayedPods) -> None:
        context.attempt(claim_name, partial(write_delayed_pods, context.client, claim_name, delayed))

    return EvictionRelease(
        snapshot.node_claims, nodes, write=write, wake=partial(context.send_to_termination, hints.DRAIN)
    )
