"""What the cluster and EC2 don't both know of is put right or given up; work that nobody follows is taken up again."""

from __future__ import annotations

from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from functions.lifecycle import node_repair
from functions.lifecycle.provider_id import restore
from functions.lifecycle.unused_resources import clear
from shared import hints
from shared.api import labels as names
from shared.api import nodeclaim
from shared.cluster import resources
from shared.launch.instances import describe_cluster_instances, instance_id
from shared.termination import garbage, requeue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.lifecycle.context import Run
    from shared.api.meta import Struct
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.writes import O
    from shared.launch.instances import Instance
    from shared.snapshot import Snapshot


def collect(run: Run, snapshot: Snapshot) -> None:
    """Compare with EC2, each with what the other doesn't know of; what must be drained or ended is told on.

    Termination is told of every deletion that nobody follows: of claims whose next look is overdue, and of nodes that
    are deleted or left alone while their claim doesn't go. So no hint of a deletion has to arrive.
    """
    instances = describe_cluster_instances(run.settings.cluster_name)
    claims, nodes = snapshot.node_claims, snapshot.nodes
    unread = {i.ref.name for i in snapshot.invalid if i.ref.kind in {"Node", nodeclaim.KIND}}
    loose = garbage.without_unreadable_nodeclaims(instances, unread)
    _put_right(run, snapshot, instances, unread)
    _repair(run, snapshot)
    for node in garbage.nodes_without_instance_id(nodes):
        message = f'its providerID "{node.spec.provider_id}" names no EC2 instance, so its NodeClaim can\'t be found'
        run.recorder.record(node.ref, "Warning", "ProviderIDUnknown", message)
    orphans = garbage.instances_without_nodeclaim(loose, claims, nodes, now=run.now)
    run.report.orphans += len(orphans)
    if orphans:
        run.logger.warning("Instances without a NodeClaim will be terminated", extra={"instances": orphans})
    run.send(hints.INSTANCES_ORPHANED, orphans)
    leaving = [c for c in claims if c.metadata.deletion_timestamp is not None]
    run.send(hints.DRAIN, [c.name for c in leaving if requeue.is_overdue(c, now=run.now)])
    alone = [
        *garbage.nodes_without_nodeclaim_and_instance(nodes, claims, instances, now=run.now),
        *garbage.nodes_without_nodeclaim(nodes, claims, loose, now=run.now),
        *garbage.deleted_nodes_of_nodeclaims(nodes, claims),
    ]
    run.send(hints.NODES_DELETING, sorted({n.metadata.name for n in alone}))
    run.each("leftovers", partial(clear, run.client, run.settings.cluster_name, snapshot, instances))


def _put_right(run: Run, snapshot: Snapshot, instances: tuple[Instance, ...], unread: set[str]) -> None:
    """Claims that name the wrong instance get their own back; those without an instance or a node are given up."""
    claims = snapshot.node_claims
    restored = set()
    for claim, instance in garbage.nodeclaims_with_wrong_instance(claims, instances):
        restored.add(claim.name)
        run.each(claim.ref, partial(restore, run, claim, instance))
    gone = {
        c.name: c for c in garbage.nodeclaims_without_instance(claims, instances, now=run.now) if c.name not in restored
    }
    for claim in gone.values():
        run.each(claim.ref, partial(_give_up_lost, run, claim))
    for claim in garbage.nodeclaims_without_node(claims, snapshot.nodes):
        if not {claim.name, claim.status.node_name} & (gone.keys() | restored | unread):
            run.each(claim.ref, partial(_give_up_bereft, run, claim))


def _give_up_lost(run: Run, claim: NodeClaim) -> None:
    known = instance_id(claim.status.provider_id)
    message = f"instance {known} is gone; it was terminated from outside"
    if not known:
        message = f'status.providerID "{claim.status.provider_id}" names no instance, and none is tagged with its name'
    run.give_up(claim, "InstanceGone", message)
    run.report.lost += 1


def _give_up_bereft(run: Run, claim: NodeClaim) -> None:
    known, node = instance_id(claim.status.provider_id), claim.status.node_name
    run.give_up(claim, "NodeGone", f"node {node} was deleted while instance {known} runs, which now goes too")
    run.report.lost += 1


def _repair(run: Run, snapshot: Snapshot) -> None:
    """Replace nodes that are unhealthy for too long. Their kubelets answer nobody, so nothing is waited for."""
    for pool in snapshot.node_pools:
        found = node_repair.decide(pool, snapshot.node_claims, snapshot.nodes, now=run.now)
        if found.blocked:
            run.recorder.record(pool.ref, "Warning", "NodeRepairBlocked", found.blocked)
        for one in found.repairs:
            run.each(one.claim.ref, partial(_replace, run, one.claim, one.message))


def _replace(run: Run, claim: NodeClaim, message: str) -> None:
    stamps = {names.TERMINATION_TIMESTAMP: run.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    run.update(resources.NODE_CLAIMS, claim, partial(_stamped, stamps=stamps))
    run.give_up(claim, "NodeUnhealthy", message)
    run.report.repaired += 1


def _stamped(obj: O, *, stamps: Mapping[str, str]) -> O:
    """The object with these annotations."""
    annotations = {**obj.metadata.annotations, **stamps}
    metadata = replace(obj.metadata, annotations=annotations)
    return cast("O", replace(cast("Struct", obj), metadata=metadata))
