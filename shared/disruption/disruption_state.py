"""The disruption state: a snapshot, instance types, and what all methods derive from both."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pause import paused_pools
from shared.api.pods import is_daemon, is_mirror, is_reschedulable, is_terminal
from shared.base.struct import Struct, with_fields
from shared.disruption.disruption_queue import is_queued
from shared.disruption.pod_disruption_budgets import PodDisruptionBudgets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.api.pause import Pause
    from shared.cloud_provider import InstanceNetwork, NodeClass
    from shared.commitments.balance import Balance
    from shared.commitments.coverage import OwnCoverage
    from shared.disruption.command import MethodResult
    from shared.disruption.savings_evidence import SavingsEvidence
    from shared.instance_types.instance_type import InstanceType, Offering
    from shared.snapshot import Snapshot


def workload_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods that keep a node from being empty: all but terminal, DaemonSet and mirror pods.

    A pod that is being deleted still counts.
    """
    return tuple(p for p in pods if not (is_terminal(p) or is_daemon(p) or is_mirror(p)))


def _not_drifted(_claim: NodeClaim, _node_class: NodeClass, _network: InstanceNetwork | None) -> str:
    return ""


class DisruptionState(Struct, kw_only=True, dict=True):
    """A snapshot at ``now``.

    ``selected`` names claims that this reconcile has already chosen for disruption. ``nominated`` names nodes and
    claims that pods are expected on. ``chunks`` are the virtual pods of CapacityBuffers by the node or claim that has
    room for them, ``missing_chunks`` how many have none on an initialized node. ``instance_types`` and ``not_ready``
    are as in :class:`~shared.scheduling.decision.Problem`. ``node_classes`` are by pool, as resolved now.
    ``instance_networks`` are by provider id, of the instances that are known. ``is_drifted`` is the cloud provider's.
    ``evidence`` for how long savings last is by pool. ``coverage`` is what commitments pay of the nodes, by claim.
    ``reboots``: the deployment may reboot instances.
    """

    snapshot: Snapshot
    now: datetime
    selected: frozenset[str] = frozenset()
    nominated: frozenset[str] = frozenset()
    chunks: Mapping[str, tuple[Pod, ...]] = {}
    missing_chunks: int = 0
    instance_types: Mapping[str, tuple[InstanceType, ...]] = {}
    not_ready: Mapping[str, str] = {}
    node_classes: Mapping[str, NodeClass] = {}
    instance_networks: Mapping[str, InstanceNetwork] = {}
    is_drifted: Callable[[NodeClaim, NodeClass, InstanceNetwork | None], str] = _not_drifted
    evidence: Mapping[str, SavingsEvidence] = {}
    coverage: OwnCoverage | None = None
    reboots: bool = False

    @cached_property
    def pools(self) -> Mapping[str, NodePool]:
        """The valid pools, by name."""
        return {p.name: p for p in self.snapshot.node_pools}

    @cached_property
    def paused(self) -> Mapping[str, Pause]:
        """The pauses of NodePools, by name: none of their nodes is disrupted."""
        return paused_pools(self.snapshot.node_pools, self.snapshot.pause, now=self.now)

    @cached_property
    def pods(self) -> Mapping[str, tuple[Pod, ...]]:
        """The pods that aren't terminal, by node name."""
        pods_by_node: dict[str, list[Pod]] = {}
        for pod in self.snapshot.pods:
            if pod.spec.node_name and not is_terminal(pod):
                pods_by_node.setdefault(pod.spec.node_name, []).append(pod)
        return {name: tuple(pods) for name, pods in pods_by_node.items()}

    @cached_property
    def reschedulable_pods(self) -> Mapping[str, tuple[Pod, ...]]:
        """The pods that need a place elsewhere when their node goes, by its name."""
        return self.snapshot.derive("reschedulable pods", self._reschedulable_pods)

    def _reschedulable_pods(self) -> Mapping[str, tuple[Pod, ...]]:
        return {name: tuple(p for p in pods if is_reschedulable(p)) for name, pods in self.pods.items()}

    @cached_property
    def disrupting_nodes(self) -> frozenset[str]:
        """Nodes that are about to be deleted: they take no pods, and their pods need capacity elsewhere."""
        return frozenset(
            c.status.node_name for c in self.snapshot.node_claims if self.is_disrupting(c) and c.status.node_name
        )

    def is_disrupting(self, claim: NodeClaim) -> bool:
        """Whether the claim is in the queue, or was selected by this reconcile."""
        return claim.name in self.selected or is_queued(claim)

    def with_selected(self, result: MethodResult) -> DisruptionState:
        """The state after a method's commands are chosen: their nodes count as being disrupted."""
        claims = {removal.claim for command in result.commands for removal in command.removals}
        return with_fields(self, selected=self.selected | claims)

    @cached_property
    def _last_launches(self) -> Mapping[str, datetime]:
        """By pool: when it last launched a node that isn't a replacement."""
        last: dict[str, datetime] = {}
        for claim in self.snapshot.node_claims:
            pool, created = claim.metadata.labels.get(names.NODEPOOL, ""), claim.metadata.creation_timestamp
            if created is not None and names.REPLACES not in claim.metadata.annotations:
                last[pool] = max(created, last.get(pool, created))
        return last

    def time_since_launch(self, pool: str) -> timedelta:
        """How long ago the pool last launched a node that isn't a replacement."""
        return self.now - self._last_launches[pool] if pool in self._last_launches else timedelta.max

    @cached_property
    def pod_disruption_budgets(self) -> PodDisruptionBudgets:
        """The PodDisruptionBudgets."""
        return PodDisruptionBudgets(self.snapshot.pod_disruption_budgets)

    @cached_property
    def _offerings(self) -> Mapping[tuple[str, str, str, str], Offering]:
        return {
            (pool, t.name, o.zone, o.capacity_type): o
            for pool, types in self.instance_types.items()
            for t in types
            for o in t.offerings
        }

    def price(self, claim: NodeClaim) -> float | None:
        """What is saved without the claim's node, in USD per hour; None where its offering's price isn't known.

        That is the effective price of its offering now, less what a commitment pays anyway.
        """
        labels = claim.metadata.labels
        keys = names.NODEPOOL, names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE
        pool, instance_type, zone, capacity_type = (labels.get(key, "") for key in keys)
        offering = self._offerings.get((pool, instance_type, zone, capacity_type))
        if offering is None or self.coverage is None:
            return None if offering is None else offering.effective_price
        uncovered = self.coverage.uncovered_shares.get(claim.name, 1.0)
        return offering.instance_price * uncovered + offering.volume_price

    def unused_without(self, claims: Collection[str]) -> Balance | None:
        """What is left of commitments once the nodes of these claims, and those being disrupted, are gone."""
        if self.coverage is None:
            return None
        return self.coverage.without({*claims, *(c.name for c in self.snapshot.node_claims if self.is_disrupting(c))})
