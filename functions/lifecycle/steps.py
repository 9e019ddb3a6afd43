"""The steps of a reconcile in the order in which they run, each with when it runs and which steps it must follow.

A step gets what the reconcile knows so far, and returns it with what it adds, or None. Steps of optional features are
imported where they run, so that a cluster without buffers, overlays or standby nodes doesn't load them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.lifecycle import cluster_metrics, realised_price
from functions.lifecycle.claims import adoption, ended_reservations, instance_tags, nodeclaim_lifecycle
from functions.lifecycle.compared_instances import ComparedInstances, list_instances
from functions.lifecycle.garbage import garbage_collection, unused_resources
from functions.lifecycle.statuses import (
    commitment_status,
    free_addresses,
    karpenter_lease,
    launch_times,
    nodeclass_status,
    nodepool_status,
    validation,
)
from shared.api import labels as names
from shared.api.nodeclaim import is_rebooting
from shared.api.standby import standby_state
from shared.base.struct import Struct, with_fields
from shared.cluster.snapshot_reader import read_snapshot
from shared.launch import boot_failures
from shared.standby.held_nodes import without_standbys, without_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from functions.lifecycle.claims.liveness import LivenessFailure
    from functions.lifecycle.context import ReconcileContext, ReconcileScope
    from shared.api.meta import EventReason
    from shared.api.nodeclass import EC2NodeClass
    from shared.launch.boot_failures import BootFailure
    from shared.snapshot import Snapshot


class ReconcileState(Struct, kw_only=True):
    """What a reconcile knows: the snapshot that it began with, and what its steps have added.

    ``visible`` is the snapshot without standby nodes. ``nominate``: the lease is held, so pods may be nominated.
    ``node_classes`` are by name, with their resolved statuses once they are resolved. ``pauses`` are (reason, message)
    by NodePool; None: they weren't read. ``is_outdated``: a node has been initialized since the snapshot.
    """

    scope: ReconcileScope
    nominate: bool
    snapshot: Snapshot
    visible: Snapshot
    node_classes: Mapping[str, EC2NodeClass]
    liveness_failures: Mapping[str, LivenessFailure] = {}
    """By NodePool: the last NodeClaim that was given up in this invocation."""
    boot_failures: Mapping[tuple[str, str], BootFailure] = {}
    """By NodePool and node class: the machine that died at boot, or never joined."""
    pauses: Mapping[str, tuple[EventReason, str]] | None = None
    compared: ComparedInstances = ComparedInstances(instances=())
    is_outdated: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot, scope: ReconcileScope, *, nominate: bool) -> ReconcileState:
        """The state in which a reconcile begins."""
        return cls(
            scope=scope,
            nominate=nominate,
            snapshot=snapshot,
            visible=without_standbys(snapshot),
            node_classes={c.name: c for c in snapshot.node_classes},
        )


class Step(Struct, kw_only=True):
    """A step of the reconcile. ``after`` are the names of steps whose results or writes it needs.

    ``exclusive``: it needs the lease, so that no two invocations run it at once.
    """

    name: str
    run: Callable[[ReconcileContext, ReconcileState], ReconcileState | None]
    when: Callable[[ReconcileState], bool]
    after: tuple[str, ...] = ()
    exclusive: bool = False


# --- when a step runs ---


def always(_state: ReconcileState) -> bool:
    """In each reconcile, also in one for a node that joins."""
    return True


def resolving_node_classes(state: ReconcileState) -> bool:
    """On the schedule, and after changes of NodePools and node classes."""
    return state.scope.resolve_node_classes


def comparing_with_ec2(state: ReconcileState) -> bool:
    """On the schedule."""
    return state.scope.compare_with_ec2


def comparing_all_with_ec2(state: ReconcileState) -> bool:
    """As :func:`comparing_with_ec2`, if EC2 answered about every zone."""
    return comparing_with_ec2(state) and state.compared.unanswered_zones is None


def with_node_overlays(state: ReconcileState) -> bool:
    """As :func:`resolving_node_classes`, if the cluster has NodeOverlays."""
    return resolving_node_classes(state) and bool(state.snapshot.node_overlays)


def with_capacity_buffers(state: ReconcileState) -> bool:
    """In each reconcile, if the cluster has CapacityBuffers."""
    return bool(state.snapshot.capacity_buffers)


def with_cluster_limits(state: ReconcileState) -> bool:
    """As :func:`resolving_node_classes`, if there are limits over all NodePools, or were."""
    return resolving_node_classes(state) and (
        bool(state.snapshot.cluster_limits)
        or any(c.type == "WithinClusterLimits" for p in state.snapshot.node_pools for c in p.status.conditions)
    )


def with_drift_waves(state: ReconcileState) -> bool:
    """As :func:`resolving_node_classes`, if a NodePool has, or had, waves of drift."""
    annotations = {names.DRIFT_WAVES, names.DRIFT_ROLLOUT}
    return resolving_node_classes(state) and any(
        p.metadata.annotations.keys() & annotations for p in state.snapshot.node_pools
    )


def with_standby_nodes(state: ReconcileState) -> bool:
    """As :func:`comparing_all_with_ec2`, if the cluster has standby nodes."""
    return comparing_all_with_ec2(state) and any(standby_state(c) for c in state.snapshot.node_claims)


def with_rebooting_nodes(state: ReconcileState) -> bool:
    """In each reconcile that holds the lease, so that no two call one reboot, if a node reboots."""
    return state.nominate and any(is_rebooting(c) for c in state.snapshot.node_claims)


# --- what a step does ---


def _on_snapshot(
    action: Callable[[ReconcileContext, Snapshot], None],
) -> Callable[[ReconcileContext, ReconcileState], None]:
    return lambda context, state: action(context, state.snapshot)


def _reconcile_nodeclaims(context: ReconcileContext, state: ReconcileState) -> ReconcileState:
    initialized_before = context.report.initialized
    failures = nodeclaim_lifecycle.reconcile_nodeclaims(context, state.snapshot, nominate=state.nominate)
    return with_fields(
        state,
        liveness_failures={**state.liveness_failures, **failures},
        is_outdated=context.report.initialized > initialized_before,
    )


def _advance_reboots(context: ReconcileContext, state: ReconcileState) -> None:
    from functions.lifecycle.claims import reboot

    reboot.advance_reboots(context, state.snapshot)


def _read_boot_failures(context: ReconcileContext, state: ReconcileState) -> ReconcileState:
    known = boot_failures.current(context.aws.dynamodb(), context.settings.table_name, now=context.now)
    return with_fields(state, boot_failures=boot_failures.unresolved(known, state.snapshot.node_claims))


def _resolve_node_classes(context: ReconcileContext, state: ReconcileState) -> ReconcileState:
    resolved = nodeclass_status.write_statuses(context, state.snapshot, state.boot_failures)
    return with_fields(state, node_classes=resolved)


def _follow_zonal_shifts(context: ReconcileContext, state: ReconcileState) -> ReconcileState | None:
    if context.settings.zonal_shift != "on":
        return None
    from functions.lifecycle.statuses import zonal_shifts

    shifts = zonal_shifts.follow_shifts(context, state.snapshot, state.node_classes)
    if not shifts:
        return None
    return with_fields(
        state,
        snapshot=with_fields(state.snapshot, shifted_zones=shifts),
        visible=with_fields(state.visible, shifted_zones=shifts),
    )


def _read_pauses(context: ReconcileContext, state: ReconcileState) -> ReconcileState:
    paused = nodepool_status.pauses(context, state.snapshot, state.boot_failures, state.node_classes)
    return with_fields(state, pauses=paused)


def _write_node_overlay_statuses(context: ReconcileContext, state: ReconcileState) -> None:
    from functions.lifecycle.statuses import node_overlay_status

    node_overlay_status.write_statuses(context, state.snapshot, state.node_classes)


def _write_nodepool_statuses(context: ReconcileContext, state: ReconcileState) -> None:
    at_boot = nodepool_status.boot_failures_by_pool(state.boot_failures, state.node_classes)
    failures = {**at_boot, **state.liveness_failures}
    nodepool_status.write_statuses(context, state.visible, state.node_classes, failures, state.pauses)


def _record_drift_rollouts(context: ReconcileContext, state: ReconcileState) -> None:
    # Imported here: few NodePools have waves.
    from functions.lifecycle.statuses import drift_rollouts

    resolved = tuple(state.node_classes.values())
    drift_rollouts.record(context, with_fields(state.visible, node_classes=resolved))


def _write_capacity_buffer_statuses(context: ReconcileContext, state: ReconcileState) -> None:
    # An optional feature, and the scheduler with numpy is a large part of a cold start.
    from functions.lifecycle.statuses import capacity_buffer_status

    visible = state.visible
    if state.is_outdated:
        visible = without_standbys(read_snapshot(context.client, now=context.now, leaving=None))
    capacity_buffer_status.write_statuses(context, visible)


def _write_cluster_limit_conditions(context: ReconcileContext, state: ReconcileState) -> None:
    from functions.lifecycle.statuses import cluster_limit_status

    cluster_limit_status.write_conditions(context, state.visible)


def _write_hourly_limits(context: ReconcileContext, state: ReconcileState) -> None:
    is_held = any(c.type == "WithinHourlyLimits" for p in state.visible.node_pools for c in p.status.conditions)
    if context.last_hour or is_held:
        from functions.lifecycle.statuses import hourly_limit_status

        hourly_limit_status.write_conditions(context, state.visible)


def _list_instances(context: ReconcileContext, state: ReconcileState) -> ReconcileState:
    return with_fields(state, compared=list_instances(context, state.snapshot))


def _tag_instances(context: ReconcileContext, state: ReconcileState) -> None:
    if context.pause is None:
        instance_tags.tag(context, state.snapshot, state.compared.instances)


def _collect_garbage(context: ReconcileContext, state: ReconcileState) -> None:
    garbage_collection.collect(context, state.compared.comparable(state.snapshot), state.compared.instances)


def _relabel_ended_reservations(context: ReconcileContext, state: ReconcileState) -> None:
    ended_reservations.relabel(context, state.snapshot, state.compared.instances)
    ended_reservations.end_capacity_blocks(context, state.snapshot, state.node_classes)


def _sweep_standby_nodes(context: ReconcileContext, state: ReconcileState) -> None:
    if context.pause is not None:
        return
    from functions.lifecycle.claims import standby_nodes

    standby_nodes.sweep(context, state.snapshot, state.compared.instances)


def _delete_unused_resources(context: ReconcileContext, state: ReconcileState) -> None:
    if context.pause is None:
        unused_resources.delete_unused(context, state.snapshot, state.compared)


def _measure(context: ReconcileContext, state: ReconcileState) -> None:
    measured = cluster_metrics.report(
        context.aws.s3(),
        context.settings.catalog_bucket,
        without_stopped(state.snapshot),
        logger=context.logger,
        now=context.now,
    )
    context.report.cluster_metrics = measured
    context.report.realised_price = realised_price.realise(context, state.snapshot, measured.cost)


STEPS: tuple[Step, ...] = (
    # What follows leaves alone what a pause says.
    Step(
        name="Karpenter's lease",
        run=lambda context, _state: karpenter_lease.pause_while_held(context),
        when=comparing_with_ec2,
        exclusive=True,
    ),
    Step(name="NodeClaims", run=_reconcile_nodeclaims, when=always, exclusive=True),
    # A node that is back is initialized in the next reconcile, which its hints bring within seconds.
    Step(name="reboots", run=_advance_reboots, when=with_rebooting_nodes, after=("NodeClaims",), exclusive=True),
    Step(name="invalid objects", run=_on_snapshot(validation.write_invalid), when=always),
    Step(name="boot failures", run=_read_boot_failures, when=resolving_node_classes, after=("NodeClaims",)),
    Step(
        name="node classes",
        run=_resolve_node_classes,
        when=resolving_node_classes,
        after=("boot failures",),
    ),
    # What follows leaves alone what is in the zones that traffic is shifted away from.
    Step(name="zonal shifts", run=_follow_zonal_shifts, when=comparing_with_ec2, after=("node classes",)),
    Step(
        name="short subnets",
        run=lambda context, state: free_addresses.remember_short_subnets(context, state.node_classes),
        when=resolving_node_classes,
        after=("node classes",),
    ),
    # Reconciles for nodes that join leave condition Paused as it is: they read no more than they need.
    Step(
        name="pauses",
        run=_read_pauses,
        when=resolving_node_classes,
        after=("boot failures", "node classes"),
    ),
    Step(
        name="NodeOverlay statuses",
        run=_write_node_overlay_statuses,
        when=with_node_overlays,
        after=("node classes",),
    ),
    Step(
        name="NodePool statuses",
        run=_write_nodepool_statuses,
        when=always,
        after=("NodeClaims", "boot failures", "node classes", "pauses"),
    ),
    Step(
        name="drift rollouts",
        run=_record_drift_rollouts,
        when=with_drift_waves,
        after=("node classes", "NodePool statuses"),
    ),
    # A node that has just been initialized has room, which counts at once.
    Step(
        name="CapacityBuffer statuses",
        run=_write_capacity_buffer_statuses,
        when=with_capacity_buffers,
        after=("NodeClaims",),
    ),
    # These five write to NodePools too: their conditions and annotations, not their status as a whole.
    Step(
        name="commitment conditions",
        run=lambda context, state: commitment_status.write_conditions(context, state.visible),
        when=resolving_node_classes,
        after=("NodePool statuses",),
    ),
    Step(
        name="cluster limit conditions",
        run=_write_cluster_limit_conditions,
        when=with_cluster_limits,
        after=("NodePool statuses",),
    ),
    Step(name="hourly limits", run=_write_hourly_limits, when=resolving_node_classes, after=("NodePool statuses",)),
    Step(name="adoption", run=_on_snapshot(adoption.adopt), when=resolving_node_classes, after=("NodePool statuses",)),
    Step(
        name="launch times", run=_on_snapshot(launch_times.remember), when=resolving_node_classes, after=("adoption",)
    ),
    # A NodeClaim may get its instance's providerID back in the first step, and is no garbage then.
    Step(name="instances", run=_list_instances, when=comparing_with_ec2, after=("NodeClaims",)),
    Step(name="instance tags", run=_tag_instances, when=comparing_with_ec2, after=("instances",)),
    Step(
        name="garbage collection",
        run=_collect_garbage,
        when=comparing_with_ec2,
        after=("NodeClaims", "instances", "zonal shifts"),
    ),
    Step(
        name="ended reservations",
        run=_relabel_ended_reservations,
        when=comparing_all_with_ec2,
        after=("instances",),
    ),
    Step(
        name="standby nodes",
        run=_sweep_standby_nodes,
        when=with_standby_nodes,
        after=("instances", "garbage collection"),
    ),
    Step(
        name="unused resources",
        run=_delete_unused_resources,
        when=comparing_all_with_ec2,
        after=("instances",),
    ),
    Step(name="metrics", run=_measure, when=comparing_with_ec2, after=("NodeClaims",)),
)
"""All steps. An error in one ends the reconcile; an error about one object is logged, and the next object follows."""
