"""The cluster that a command works on: its snapshot, what can be launched for it, and its history.

A live cluster and files give the same value, so every command works on both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.cluster.history import NoHistory
from cli.cluster.price_origin import AWS, PriceOrigin
from cli.cluster.services import ObservedServices
from shared.api.nodepool import node_class_for
from shared.api.pause import paused_pools
from shared.api.zonal_shift import format_shifts
from shared.base.struct import Struct, with_fields
from shared.disruption import disruption_queue
from shared.disruption.disruption_state import DisruptionState
from shared.disruption.load_history import LoadHistory
from shared.disruption.savings_evidence import savings_evidence
from shared.disruption.simulated_scheduling import with_chunks
from shared.disruption.workloads import current_workloads
from shared.launch.drift import node_class_drift
from shared.launch.resolved_node_pools import node_class_of
from shared.scheduling.decision import SchedulingPolicies
from shared.scheduling.scheduler import schedule_on_existing_nodes
from shared.standby.held_nodes import without_standbys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from cli.cluster.history import History
    from cli.cluster.node_groups import ObservedGroups
    from cli.cluster.offerings import OfferingSource
    from cli.workloads import Workload
    from shared.cloud_provider import ResolvedNodePools
    from shared.scheduling.decision import UnschedulableReason
    from shared.snapshot import Snapshot


class ObservedCluster(Struct, kw_only=True):
    """``name`` says which cluster or files were read; ``notes`` are shown to the user.

    ``unreadable_pods`` are by namespace/name, ``workloads`` by kind in lower case, namespace and name. ``refresh``
    reads pods, NodeClaims and nodes again; it is None for files. ``services`` reads the Services. ``load`` is the
    stored load history. ``node_groups`` are those that the deployment scales. ``prices`` is where prices come from.
    """

    name: str
    now: datetime
    snapshot: Snapshot
    offerings: OfferingSource
    history: History = NoHistory()
    notes: tuple[str, ...] = ()
    unreadable_pods: Mapping[str, UnschedulableReason] = {}
    workloads: Mapping[tuple[str, str, str], Workload] = {}
    policies: SchedulingPolicies = SchedulingPolicies()
    load: LoadHistory = LoadHistory()
    refresh: Callable[[], Snapshot] | None = None
    services: Callable[[], ObservedServices] = ObservedServices
    node_groups: ObservedGroups | None = None
    prices: PriceOrigin = AWS

    @property
    def pauses(self) -> tuple[str, ...]:
        """What is paused, since when, by whom, until when and why: the cluster, NodePools, or zones shifted away."""
        return pause_messages(self.snapshot, self.now)


def pause_messages(snapshot: Snapshot, now: datetime) -> tuple[str, ...]:
    """One sentence for each pause: the cluster's, or those of NodePools; and one for the zones shifted away."""
    shifted = snapshot.shifted_zones
    zones = f"traffic is shifted away from {format_shifts(shifted)}: nothing is launched, removed or replaced there"
    pools = sorted(paused_pools(snapshot.node_pools, snapshot.pause, now=now).items())
    pauses = [snapshot.pause] if snapshot.pause is not None else [pause for _, pause in pools]
    return (*(pause.message for pause in pauses), *((zones,) if shifted else ()))


def disruption_view(observed: ObservedCluster, resolved_pools: ResolvedNodePools) -> DisruptionState:
    """The input of the disruption methods."""
    snapshot = observed.snapshot
    classes = {p.name: node_class_of(p, snapshot.node_classes) for p in snapshot.node_pools}
    stated = {p.name: node_class_for(p, c) for p in snapshot.node_pools if (c := classes[p.name]) is not None}
    state = DisruptionState(
        snapshot=snapshot,
        now=observed.now,
        nominated=disruption_queue.replacement_names(snapshot.node_claims),
        instance_types=resolved_pools.instance_types,
        not_ready=resolved_pools.not_ready,
        coverage=resolved_pools.coverage,
        node_classes={**stated, **resolved_pools.node_classes},
        is_drifted=node_class_drift,
        evidence=savings_evidence(observed.load, current_workloads(snapshot).workloads, now=observed.now),
    )
    if not snapshot.capacity_buffers:
        return state
    return with_chunks(state, schedule_on_existing_nodes(snapshot, state.disrupting_nodes))


def chunks_by_node(snapshot: Snapshot) -> dict[str, int]:
    """By node: the chunks of CapacityBuffers that have their room there, after the pods."""
    if not snapshot.capacity_buffers:
        return {}
    snapshot = without_standbys(snapshot)
    return {name: len(chunks) for name, chunks in schedule_on_existing_nodes(snapshot).chunks.items()}


def as_decided(observed: ObservedCluster) -> ObservedCluster:
    """The same as functions decide on it: without standby nodes, and with node groups as NodePools."""
    snapshot = without_standbys(observed.snapshot)
    if observed.node_groups is not None:
        snapshot = observed.node_groups.presented(snapshot)
    return with_snapshot(observed, snapshot)


def with_snapshot(observed: ObservedCluster, snapshot: Snapshot) -> ObservedCluster:
    """The same with another snapshot."""
    return with_fields(observed, snapshot=snapshot)
