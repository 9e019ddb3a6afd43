"""Garbage collection: repairs or deletes what only one of the cluster and EC2 knows, and resumes lost drains.

The cases are in :mod:`shared.termination.garbage`. NodeClaims are deleted here; nodes and instances are sent to the
termination function, which checks them again. Deletions that no message announced are sent too, so a lost message only
delays a drain until the next reconcile.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from functions.lifecycle.provider_id import restore_provider_id
from shared import hints
from shared.api import nodeclaim
from shared.cloud_provider import instance_id
from shared.termination import garbage, requeue

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot


def collect(context: ReconcileContext, snapshot: Snapshot, instances: tuple[Instance, ...]) -> None:
    """Compare the cluster with EC2's instances, and delete or report what only one of them knows."""
    undecoded = {i.ref.name for i in snapshot.invalid if i.ref.kind in {"Node", nodeclaim.KIND}}
    _collect_nodeclaims(context, snapshot, instances, undecoded)
    for node in garbage.nodes_without_instance_id(snapshot.nodes):
        message = f'spec.providerID "{node.spec.provider_id}" is no EC2 instance, so its NodeClaim is unknown'
        context.recorder.record(node.ref, "Warning", "ProviderIDUnknown", message)
    _collect_instances(context, snapshot, garbage.without_undecoded_nodeclaims(instances, undecoded))
    deleted = [c for c in snapshot.node_claims if c.metadata.deletion_timestamp is not None]
    context.send_to_termination(hints.DRAIN, [c.name for c in deleted if requeue.is_overdue(c, now=context.now)])
    _collect_nodes(context, snapshot, instances, undecoded)


def _collect_nodeclaims(
    context: ReconcileContext, snapshot: Snapshot, instances: tuple[Instance, ...], undecoded: set[str]
) -> None:
    """Restore NodeClaims that name a wrong instance; delete those without an instance or a node."""
    claims = snapshot.node_claims
    restored = set()
    for claim, instance in garbage.nodeclaims_with_wrong_instance(claims, instances):
        restored.add(claim.name)
        context.attempt(claim.ref, partial(restore_provider_id, context, claim, instance))
    without_instance = garbage.nodeclaims_without_instance(claims, instances, now=context.now)
    instance_gone = {c.name: c for c in without_instance if c.name not in restored}
    for claim in instance_gone.values():
        context.attempt(claim.ref, partial(_delete_without_instance, context, claim))
    for claim in garbage.nodeclaims_without_node(claims, snapshot.nodes):
        if not {claim.name, claim.status.node_name} & (instance_gone.keys() | restored | undecoded):
            context.attempt(claim.ref, partial(_delete_without_node, context, claim))


def _collect_instances(context: ReconcileContext, snapshot: Snapshot, instances: tuple[Instance, ...]) -> None:
    instance_ids = garbage.instances_without_nodeclaim(instances, snapshot.node_claims, snapshot.nodes, now=context.now)
    if instance_ids:
        context.logger.warning("Terminating instances without a NodeClaim", extra={"instances": instance_ids})
    context.send_to_termination(hints.INSTANCES_ORPHANED, instance_ids)


def _collect_nodes(
    context: ReconcileContext, snapshot: Snapshot, instances: tuple[Instance, ...], undecoded: set[str]
) -> None:
    claims, nodes = snapshot.node_claims, snapshot.nodes
    decoded = garbage.without_undecoded_nodeclaims(instances, undecoded)
    to_terminate = [
        *garbage.nodes_without_nodeclaim_and_instance(nodes, claims, instances, now=context.now),
        *garbage.nodes_without_nodeclaim(nodes, claims, decoded, now=context.now),
        *garbage.deleted_nodes_with_live_nodeclaim(nodes, claims),
    ]
    context.send_to_termination(hints.NODES_DELETING, sorted({n.metadata.name for n in to_terminate}))


def _delete_without_instance(context: ReconcileContext, claim: NodeClaim) -> None:
    provider_id = claim.status.provider_id
    message = f"instance {instance_id(provider_id)} is gone; it was not terminated by Tenon"
    if not instance_id(provider_id):
        message = f'status.providerID "{provider_id}" is no instance, and no instance is tagged with this NodeClaim'
    context.delete_nodeclaim(claim, "InstanceGone", message)


def _delete_without_node(context: ReconcileContext, claim: NodeClaim) -> None:
    instance, node = instance_id(claim.status.provider_id), claim.status.node_name
    context.delete_nodeclaim(claim, "NodeGone", f"node {node} is gone; terminating its instance {instance}")
