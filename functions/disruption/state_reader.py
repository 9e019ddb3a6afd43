"""Reads the disruption state: the cluster as it is now, and what disruption derives from it before any method runs.

No method knows standby nodes. The snapshot with them is kept next to the state, for the step that removes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.disruption.instance_networks import instance_networks
from shared.api.nodepool import node_class_for
from shared.api.standby import standby_state
from shared.base.struct import Struct, with_fields
from shared.cluster.cluster_pause import state_of
from shared.cluster.snapshot_reader import read_snapshot
from shared.disruption import disruption_queue
from shared.disruption.budgets import BudgetTracker
from shared.disruption.disruption_state import DisruptionState
from shared.disruption.simulated_scheduling import with_chunks
from shared.launch.resolved_node_pools import node_class_of
from shared.scheduling.scheduler import schedule_on_existing_nodes
from shared.standby.held_nodes import without_standbys

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from shared.base.runtime import Runtime
    from shared.cloud_provider import CloudProvider
    from shared.cluster.client import Client
    from shared.cluster.lease import Lease
    from shared.snapshot import Snapshot


class ClusterState(Struct, kw_only=True):
    """One read of the cluster: the state that methods decide from, what its budgets allow, and ``everything``.

    The latter is the state's snapshot with the standby nodes.
    """

    state: DisruptionState
    budgets: BudgetTracker
    everything: Snapshot

    @property
    def has_standbys(self) -> bool:
        """Whether the cluster has standby nodes."""
        return any(standby_state(claim) for claim in self.everything.node_claims)


class StateReader(Struct, kw_only=True):
    """Reads the state, as often as one reconcile needs it."""

    client: Client
    cloud_provider: CloudProvider
    runtime: Runtime
    logger: Logger
    reboots: bool = False
    """Whether the deployment may reboot instances."""

    def read(self, lease: Lease) -> ClusterState:
        """The cluster's state now, still without instance types and prices, and its budgets. The lease is held."""
        now = self.runtime.now()
        everything = state_of(lease.annotations, now=now).on(read_snapshot(self.client, now=now))
        snapshot = without_standbys(everything)
        state = DisruptionState(snapshot=snapshot, now=now, reboots=self.reboots)
        decision = schedule_on_existing_nodes(state.snapshot, state.disrupting_nodes)
        nominated = frozenset(name for name, pods in decision.existing_nodes.items() if pods)
        node_classes = {p.name: node_class_of(p, snapshot.node_classes) for p in snapshot.node_pools}
        networks = instance_networks(
            self.cloud_provider,
            snapshot.node_classes,
            instances=len(everything.node_claims),
            cache=self.runtime.cache,
            now=now,
            logger=self.logger,
        )
        state = with_fields(
            with_chunks(state, decision),
            nominated=nominated | disruption_queue.replacement_names(snapshot.node_claims),
            instance_networks=networks,
            node_classes={p.name: node_class_for(p, c) for p in snapshot.node_pools if (c := node_classes[p.name])},
            is_drifted=self.cloud_provider.is_drifted,
        )
        return ClusterState(state=state, budgets=BudgetTracker(snapshot, now=now), everything=everything)
