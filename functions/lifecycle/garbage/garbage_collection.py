"""Garbage collection: repairs or deletes what only one of the cluster and EC2 knows, and resumes lost drains.

The cases are in :mod:`shared.termination.garbage`. NodeClaims are deleted here; nodes and instances are sent to the
termination function, which checks them again. Deletions that no message announced are sent too, so a lost message only
delays a drain until the next reconcile.

EC2's answers may be wrong. EC2 is asked by id for an instance that is missing; if it is gone, its NodeClaim gets the
condition GarbageCollectable, and is deleted when EC2 gives the same answer in the next sweep. One sweep gives up no
more than :func:`shared.termination.garbage.collection_limit`; what exceeds it is kept, and an alarm says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from functions.lifecycle.claims.provider_id import restore_provider_id
from functions.lifecycle.garbage import lost_nodeclaims
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason, condition, with_condition
from shared.base import hints
from shared.base.plurals import plural
from shared.base.struct import with_fields
from shared.cloud_provider import instance_id
from shared.cluster import resources, writes
from shared.launch import boot_failures
from shared.termination import garbage, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot

T = TypeVar("T")

_INSTANCE_GONE = EventReason("InstanceGone")
_NODE_GONE = EventReason("NodeGone")


class _Sweep:
    """One sweep's clients, and how much it may still give up."""

    def __init__(self, context: ReconcileContext, snapshot: Snapshot, instances: tuple[Instance, ...]) -> None:
        self.context = context
        self.snapshot = snapshot
        self.instances = tuple(i for i in instances if i.provider_id not in snapshot.foreign_provider_ids)
        self.undecoded = {i.ref.name for i in snapshot.invalid if i.ref.kind in {"Node", nodeclaim.KIND}}
        self.limit = garbage.collection_limit(snapshot.node_claims)
        self._remaining = self.limit

    def within_limit(self, candidates: Sequence[T], *, names: Iterable[str]) -> Sequence[T]:
        """The first candidates, as many as may still be given up; the others are reported by their ``names``."""
        if self.context.pause is not None:
            return ()
        allowed, kept = candidates[: self._remaining], list(names)[self._remaining :]
        self._remaining -= len(allowed)
        if kept:
            self.context.report.kept_garbage += len(kept)
            self.context.logger.error(
                "Kept objects that look like garbage, because one sweep may not give up that many",
                extra={"kept": kept[:20], "count": len(kept), "limit": self.limit},
            )
        return allowed


def collect(context: ReconcileContext, snapshot: Snapshot, instances: tuple[Instance, ...]) -> None:
    """Compare the cluster with EC2's instances, and delete or report what only one of them knows."""
    sweep = _Sweep(context, snapshot, instances)
    _collect_nodeclaims(sweep)
    for node in garbage.nodes_without_instance_id(snapshot.nodes):
        message = f'spec.providerID "{node.spec.provider_id}" is no EC2 instance, so its NodeClaim is unknown'
        context.recorder.record(node.ref, "Warning", "ProviderIDUnknown", message)
    _collect_instances(sweep)
    deleted = [c for c in snapshot.node_claims if c.metadata.deletion_timestamp is not None]
    context.send_to_termination(hints.DRAIN, [c.name for c in deleted if requeue.is_overdue(c, now=context.now)])
    _collect_nodes(sweep, _restore_nodeclaims(sweep))


def _collect_nodeclaims(sweep: _Sweep) -> None:
    """Restore NodeClaims that name a wrong instance; delete those without an instance or a node."""
    context, nodes = sweep.context, sweep.snapshot.nodes
    claims = _outside_shifted_zones(sweep.snapshot)
    restored = set()
    for claim, instance in garbage.nodeclaims_with_wrong_instance(claims, sweep.instances):
        restored.add(claim.name)
        context.attempt(claim.ref, partial(restore_provider_id, context, claim, instance))
    suspects = garbage.nodeclaims_without_instance(claims, sweep.instances, nodes, now=context.now)
    why_gone = _why_gone(context, [c for c in suspects if c.name not in restored])
    without_node = {
        c.name: (_NODE_GONE, _node_gone(c))
        for c in garbage.nodeclaims_without_node(claims, nodes)
        if not {c.name, c.status.node_name} & (why_gone.keys() | restored | sweep.undecoded)
    }
    confirmed = [c for c in claims if c.name in without_node or (c.name in why_gone and _is_confirmed(c, context))]
    _delete_nodeclaims(sweep, confirmed, {**why_gone, **without_node})


def _outside_shifted_zones(snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """The NodeClaims without those in zones that traffic is shifted away from: EC2 may know nothing of these."""
    shifted = snapshot.shifted_zones
    return tuple(c for c in snapshot.node_claims if c.metadata.labels.get(names.ZONE) not in shifted)


def _delete_nodeclaims(sweep: _Sweep, confirmed: Sequence[NodeClaim], why: Mapping[str, tuple[str, str]]) -> None:
    """Delete the confirmed NodeClaims within the limit, and write condition GarbageCollectable to the others."""
    context = sweep.context
    confirmed_names = [c.name for c in confirmed]
    why_kept = f"one sweep deletes at most {plural(sweep.limit, 'NodeClaim')}"
    if context.pause is not None:
        why_kept = context.pause.message
    deleted = {c.name for c in sweep.within_limit(confirmed, names=confirmed_names)}
    for claim in _outside_shifted_zones(sweep.snapshot):
        reason, message = why.get(claim.name, ("", ""))
        if claim.name in deleted:
            event_reason = _NODE_GONE if reason == _NODE_GONE else _INSTANCE_GONE
            context.attempt(claim.ref, partial(context.delete_nodeclaim, claim, event_reason, message))
            continue
        if claim.name in confirmed_names:
            message += f"; kept: {why_kept}"
        context.attempt(claim.ref, partial(_write_condition, context, claim, reason, message))


def _why_gone(context: ReconcileContext, suspects: Sequence[NodeClaim]) -> dict[str, tuple[str, str]]:
    """By NodeClaim: why its instance counts as gone (reason, message), as EC2 answers for its id."""
    ids = sorted({known_id for c in suspects if (known_id := instance_id(c.status.provider_id))})
    described: Mapping[str, Instance] = {i.id: i for i in context.cloud_provider.get(ids)} if ids else {}
    for claim in suspects:
        instance = described.get(instance_id(claim.status.provider_id))
        if instance is not None and boot_failures.has_failed_at_boot(claim, instance):
            remember = partial(
                boot_failures.remember, context.aws.dynamodb(), context.settings.table_name, claim, instance
            )
            context.attempt(claim.ref, partial(remember, now=context.now))
    return {c.name: why for c in suspects if (why := garbage.why_gone(c, described)) is not None}


def _is_confirmed(claim: NodeClaim, context: ReconcileContext) -> bool:
    """Whether EC2 gave the same answer in an earlier sweep."""
    before = condition(claim.status.conditions, nodeclaim.GARBAGE_COLLECTABLE)
    since = before.last_transition_time if before is not None and before.status == "True" else None
    return since is not None and context.now - since >= garbage.GRACE_PERIOD


def _node_gone(claim: NodeClaim) -> str:
    instance = instance_id(claim.status.provider_id)
    return f"node {claim.status.node_name} is gone; terminating its instance {instance}"


def _write_condition(context: ReconcileContext, claim: NodeClaim, reason: str, message: str) -> None:
    """Write condition GarbageCollectable: False without a reason, if the NodeClaim has it."""
    if not reason and condition(claim.status.conditions, nodeclaim.GARBAGE_COLLECTABLE) is None:
        return

    def change(current: NodeClaim) -> NodeClaim:
        conditions = with_condition(
            current.status.conditions,
            nodeclaim.GARBAGE_COLLECTABLE,
            status=bool(reason),
            reason=reason or "InstanceExists",
            message=message,
            now=context.now,
            generation=current.metadata.generation,
        )
        return with_fields(current, status=with_fields(current.status, conditions=conditions))

    if change(claim) != claim:
        writes.update_status(context.client, resources.NODE_CLAIMS, claim, change)


def _collect_instances(sweep: _Sweep) -> None:
    instances = garbage.without_undecoded_nodeclaims(sweep.instances, sweep.undecoded)
    claims, nodes = sweep.snapshot.node_claims, sweep.snapshot.nodes
    without_nodeclaim = garbage.instances_without_nodeclaim(instances, claims, nodes, now=sweep.context.now)
    instance_ids = sweep.within_limit(without_nodeclaim, names=without_nodeclaim)
    if instance_ids:
        sweep.context.logger.warning("Terminating instances without a NodeClaim", extra={"instances": instance_ids})
    sweep.context.send_to_termination(hints.INSTANCES_ORPHANED, instance_ids)


def _restore_nodeclaims(sweep: _Sweep) -> frozenset[str]:
    """Write NodeClaims that were lost with their NodePool; the names of their nodes."""
    snapshot = sweep.snapshot
    decoded = garbage.without_undecoded_nodeclaims(sweep.instances, sweep.undecoded)
    lost = garbage.nodes_without_nodeclaim(snapshot.nodes, snapshot.node_claims, decoded, now=sweep.context.now)
    return lost_nodeclaims.restore(sweep.context, lost, snapshot.node_pools, decoded) if lost else frozenset()


def _collect_nodes(sweep: _Sweep, restored: frozenset[str]) -> None:
    claims, nodes, now = sweep.snapshot.node_claims, sweep.snapshot.nodes, sweep.context.now
    decoded = garbage.without_undecoded_nodeclaims(sweep.instances, sweep.undecoded)
    running = garbage.nodes_without_nodeclaim(nodes, claims, decoded, now=now)
    if running and not sweep.snapshot.node_pools and not claims:
        # Somebody has deleted the custom resource definitions, and NodePools may come back.
        sweep.context.logger.error("Kept nodes, because there is neither a NodePool nor a NodeClaim")
        return
    without_nodeclaim = {
        n.metadata.name: n
        for n in (
            *garbage.nodes_without_nodeclaim_and_instance(nodes, claims, sweep.instances, now=now),
            *running,
        )
        if n.metadata.name not in restored
    }
    continued = {name for name, n in without_nodeclaim.items() if n.metadata.deletion_timestamp is not None}
    given_up = sorted(without_nodeclaim.keys() - continued)
    given_up = list(sweep.within_limit(given_up, names=given_up))
    # Nodes that a user deleted have no limit.
    deleted = [n.metadata.name for n in garbage.deleted_nodes_with_live_nodeclaim(nodes, claims)]
    sweep.context.send_to_termination(hints.NODES_DELETING, sorted({*continued, *given_up, *deleted}))
