"""One reconcile of everything the lifecycle function owns: NodeClaims, statuses, garbage collection, repair, metrics.

Each object is reconciled on its own: an error is logged with the object's name and does not stop the others. Nothing
here terminates instances: NodeClaims are deleted, and nodes and instances are sent to the termination function.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from functions.lifecycle import cluster_metrics, realised_price
from functions.lifecycle.claims import adoption, ended_reservations, node_repair, nodeclaim_lifecycle
from functions.lifecycle.context import ReconcileContext, Report
from functions.lifecycle.garbage import garbage_collection, unused_resources
from functions.lifecycle.statuses import (
    commitment_status,
    free_addresses,
    launch_times,
    nodeclass_status,
    nodepool_status,
    validation,
)
from shared.base import aws, runtime
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.lease import run_exclusively
from shared.cluster.snapshot_reader import read_snapshot
from shared.launch import boot_failures
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.standby.held_nodes import without_standbys, without_stopped

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from functions.lifecycle.settings import LifecycleSettings


_LEASE_DURATION = timedelta(seconds=15)
"""Longer than most reconciles take. Nodes stay closed for this time if a function dies that holds the lease."""
_RUN_TIME = timedelta(seconds=20)
"""After this time an invocation leaves requested reconciles to the next one."""


def reconcile(
    settings: LifecycleSettings, *, run: str, logger: Logger, compare_with_ec2: bool, resolve_node_classes: bool
) -> Report:
    """Reconcile every NodeClaim, Node, NodePool and node class; ``run`` is the request's id.

    ``resolve_node_classes`` also resolves the node classes on AWS; ``compare_with_ec2`` also collects garbage, repairs
    nodes and writes metrics. Both cost calls, so a reconcile for a node that joins does neither.

    Only one invocation at a time nominates pods, because an older snapshot would have pods nominated for nodes that are
    full by now. If one is running already, it reconciles once more, and this one does only what hints don't ask for.
    """
    client = connect(settings)
    context = ReconcileContext(
        settings=settings,
        client=client,
        recorder=recorder(client),
        cloud_provider=EC2CloudProvider(cluster_name=settings.cluster_name),
        logger=logger,
        now=runtime.current().now(),
    )
    steps = partial(_reconcile, compare_with_ec2=compare_with_ec2, resolve_node_classes=resolve_node_classes)

    def reconcile_now() -> None:
        steps(replace(context, now=runtime.current().now()), nominate=True)

    ran = run_exclusively(
        client,
        reconcile_now,
        cluster=settings.cluster_name,
        purpose="lifecycle",
        holder=run,
        now=runtime.current().now,
        duration=_LEASE_DURATION,
        run_time=_RUN_TIME,
    )
    if ran:
        return context.report
    if compare_with_ec2 or resolve_node_classes:
        steps(context, nominate=False)
    else:
        logger.info("Another invocation is reconciling, and does so once more")
    return context.report


def _reconcile(
    context: ReconcileContext, *, compare_with_ec2: bool, resolve_node_classes: bool, nominate: bool
) -> None:
    client = context.client
    snapshot = read_snapshot(client, now=context.now, leaving=None)
    initialized_before = context.report.initialized
    failures = nodeclaim_lifecycle.reconcile_nodeclaims(context, snapshot, nominate=nominate)
    validation.write_invalid(context, snapshot)
    node_classes = {c.name: c for c in snapshot.node_classes}
    pauses = None
    # Reconciles for nodes that join leave condition Paused as it is: they read no more than they need.
    if resolve_node_classes:
        boot = boot_failures.unresolved(
            boot_failures.current(aws.dynamodb(), context.settings.table_name, now=context.now), snapshot.node_claims
        )
        node_classes = nodeclass_status.write_statuses(context, snapshot, boot)
        free_addresses.remember_short_subnets(context, node_classes)
        failures = {**nodepool_status.boot_failures_by_pool(boot, node_classes), **failures}
        pauses = nodepool_status.pauses(context, snapshot, boot, node_classes)
        if snapshot.node_overlays:
            # Imported here: few clusters have overlays.
            from functions.lifecycle.statuses import node_overlay_status  # noqa: PLC0415

            node_overlay_status.write_statuses(context, snapshot, node_classes)
    visible = without_standbys(snapshot)
    nodepool_status.write_statuses(context, visible, node_classes, failures, pauses)
    if snapshot.capacity_buffers:
        # Imported here: few clusters have buffers, and the scheduler with numpy is a large part of a cold start.
        from functions.lifecycle.statuses import capacity_buffer_status  # noqa: PLC0415

        # A node that has just been initialized has room that this snapshot doesn't know of.
        outdated = context.report.initialized > initialized_before
        current = read_snapshot(client, now=context.now, leaving=None) if outdated else snapshot
        capacity_buffer_status.write_statuses(context, without_standbys(current))
    if resolve_node_classes:
        commitment_status.write_conditions(context, visible)
        adoption.adopt(context, snapshot)
        launch_times.remember(context, snapshot)
    if compare_with_ec2:
        instances = context.cloud_provider.list()
        garbage_collection.collect(context, snapshot, instances)
        ended_reservations.relabel(context, snapshot, instances)
        node_repair.repair_nodes(context, visible)
        if visible is not snapshot and context.pause is None:
            # Imported here: few clusters have standby nodes.
            from functions.lifecycle.claims import standby_nodes  # noqa: PLC0415

            standby_nodes.sweep(context, snapshot, instances)
        if context.pause is None:
            unused_resources.delete_unused(context, snapshot, instances)
        context.report.cluster_metrics = cluster_metrics.report(
            context.settings, without_stopped(snapshot), logger=context.logger, now=context.now
        )
        context.report.realised_price = realised_price.realise(
            context.settings,
            snapshot,
            context.report.cluster_metrics.cost,
            logger=context.logger,
            now=context.now,
        )
