"""Tenon's decisions on the virtual fleet: the functions' own scheduling and disruption, without writing anything.

A launch takes the cheapest offering at current prices. A node runs from the moment at which the first of its new pods
was created. An empty node ends when its consolidateAfter is over, a node whose pods move after the usual overlap of a
boot and a drain. Pure: time comes in as an argument.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from functions.shadow.virtual_nodes import launched, offering_of
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import parse_duration
from shared.api.meta import condition
from shared.base.struct import MutableStruct
from shared.disruption import emptiness
from shared.disruption.budgets import BudgetTracker
from shared.disruption.command import EMPTY
from shared.disruption.disruption_state import DisruptionState
from shared.disruption.methods import METHODS
from shared.disruption.savings import REPLACEMENT_OVERLAP
from shared.disruption.simulated_scheduling import with_chunks
from shared.provisioning.nodeclaim_creation import new_node_claims
from shared.scheduling.decision import Decision, Problem
from shared.scheduling.scheduler import schedule, schedule_on_existing_nodes
from shared.scheduling.static_pools import missing_replicas
from shared.shadow.ledger import Event, price_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from functions.shadow.virtual_fleet import VirtualFleet
    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import ResolvedNodePools
    from shared.disruption.command import Command, Removal
    from shared.disruption.savings_evidence import SavingsEvidence
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.shadow.ledger import Ledger
    from shared.snapshot import Snapshot

_SWEEP = timedelta(minutes=1)
"""How often the disruption function runs."""


class Decider(MutableStruct, kw_only=True):
    """Decides for one run, from the run before (``since``) to ``now``; ``run`` is what names of new nodes follow from.

    ``begin_search`` is called before each search, and gives what ends it.
    """

    fleet: VirtualFleet
    resolved_pools: ResolvedNodePools
    catalog: InstanceTypeCatalog
    ledger: Ledger
    run: str
    since: datetime
    now: datetime
    begin_search: Callable[[], Callable[[], bool]]
    evidence: Mapping[str, SavingsEvidence] = {}
    _decisions: int = 0

    def provision(self) -> Decision:
        """Bind pods without a node to one that exists, or launch nodes for them; returns the decision."""
        self._launch_replicas()
        pods = {pod.key: pod for pod in self.fleet.unbound_pods()}
        snapshot = self.fleet.snapshot()
        if not pods and not snapshot.capacity_buffers:
            return Decision()
        decision = schedule(
            Problem(
                snapshot=snapshot,
                instance_types=self.resolved_pools.instance_types,
                not_ready=self.resolved_pools.not_ready,
                pods=frozenset(pods),
                unused=self.resolved_pools.unused,
            )
        )
        for node, keys in decision.existing_nodes.items():
            self.fleet.bind((pods[key].metadata.uid for key in keys if key in pods), node, since=self.now)
        self._launch(decision.new_node_claims, snapshot, pods)
        return decision

    def _launch_replicas(self) -> None:
        snapshot = self.fleet.snapshot()
        if all(pool.spec.replicas is None for pool in snapshot.node_pools):
            return
        pools = self.resolved_pools
        planned, _ = missing_replicas(snapshot, pools.instance_types, pools.not_ready, ())
        self._launch(planned, snapshot, {})

    def _launch(
        self, planned: Sequence[PlannedNodeClaim], snapshot: Snapshot, pods: Mapping[str, Pod], *, moved: bool = False
    ) -> None:
        """Launch nodes for pods (by key), each since the first of its new pods was created; ``moved`` ones aren't new.

        They are bound.
        """
        self._decisions += 1
        decision = f"{self.run}/{self._decisions}"
        claims = new_node_claims(planned, snapshot, self.resolved_pools, decision=decision)
        for plan, claim in zip(planned, claims, strict=True):
            own = [pods[key] for key in plan.pods if key in pods]
            at = self.now if moved else self._launch_time(own)
            node = launched(plan, claim, self.resolved_pools, at=at)
            self.fleet.launch(node, at=at)
            self.fleet.bind((pod.metadata.uid for pod in own), node.status.node_name, since=at)
            self.ledger.day(self.now).for_new_nodes += 0 if moved else len(own)
            self.ledger.add_event(
                Event(
                    at=at,
                    action="launched",
                    node=node.status.node_name,
                    pool=plan.node_pool,
                    offering=offering_of(node.metadata.labels),
                    price=price_text(self.catalog.price(node.metadata.labels)),
                    pods=len(own),
                )
            )

    def _launch_time(self, pods: Iterable[Pod]) -> datetime:
        """When the first of the pods was created, if that was since the last run; else now. Times are whole seconds."""
        created = (pod.metadata.creation_timestamp for pod in pods)
        return min([self.now, *(at for at in created if at is not None and at >= self.since)])

    # --- disruption ---

    def remove_empty(self, *, by: datetime) -> None:
        """Remove the nodes that have been empty for consolidateAfter by then, which is before new pods came."""
        state = self._state(by)
        result = emptiness.compute(state, BudgetTracker(state.snapshot, now=by))
        for command in result.commands:
            self._execute(command)

    def disrupt(self, *, within: timedelta) -> None:
        """Run all methods as often as the disruption function would have within that time.

        It runs each minute, and waits for the replacements of a command before the next one.
        """
        left = within
        while left > timedelta():
            commands = self._disrupt_once()
            if not commands:
                return
            left -= REPLACEMENT_OVERLAP if any(command.replacements for command in commands) else _SWEEP

    def _disrupt_once(self) -> list[Command]:
        """Execute the commands of all methods, up to the first that launches nodes; returns them."""
        self.update_empty_conditions()
        state = self._state(self.now)
        budgets = BudgetTracker(state.snapshot, now=self.now)
        executed: list[Command] = []
        for method in METHODS:
            if executed:
                state = self._state(self.now)
            commands = method.compute(state, budgets, self.begin_search()).commands
            for command in commands:
                self._execute(command)
            executed += commands
            if any(command.replacements for command in commands):
                break
        return executed

    def update_empty_conditions(self) -> None:
        """Note on NodeClaims since when their nodes have been empty."""
        for change in emptiness.empty_condition_changes(self._state(self.now)):
            self.fleet.update(emptiness.with_empty_condition(change.claim, is_empty=change.is_empty, now=self.now))

    def _state(self, now: datetime) -> DisruptionState:
        state = DisruptionState(
            snapshot=self.fleet.snapshot(),
            now=now,
            instance_types=self.resolved_pools.instance_types,
            not_ready=self.resolved_pools.not_ready,
            evidence=self.evidence,
            coverage=self.resolved_pools.coverage,
        )
        if state.snapshot.capacity_buffers:
            decision = schedule_on_existing_nodes(state.snapshot)
            state = with_chunks(state, decision)
        return state

    def _execute(self, command: Command) -> None:
        """Launch the replacements, remove the nodes, and bind the pods that move to their new nodes."""
        before = self.fleet.snapshot()
        moving = {key for removal in command.removals for key in removal.pods}
        pods = {pod.key: pod for pod in before.pods if pod.key in moving}
        for removal in command.removals:
            claim = self.fleet.nodes[removal.node].claim
            at = self._removal_time(removal, claim)
            self.fleet.remove(removal.node, at=at)
            self.ledger.add_event(
                Event(
                    at=at,
                    action="removed",
                    node=removal.node,
                    pool=claim.metadata.labels.get(names.NODEPOOL, ""),
                    offering=offering_of(claim.metadata.labels),
                    price=price_text(self.catalog.price(claim.metadata.labels)),
                    pods=len(removal.pods),
                    reason=removal.reason,
                )
            )
        self._launch(command.replacements, before, pods, moved=True)
        if moving:
            self.ledger.day(self.now).moved += len(moving)
            self.provision()

    def _removal_time(self, removal: Removal, claim: NodeClaim) -> datetime:
        """When the node's instance ends: after its pods moved, at once without any, or when it was empty for long."""
        if removal.pods:
            return self.now + REPLACEMENT_OVERLAP
        empty = condition(claim.status.conditions, nodeclaim.EMPTY)
        if removal.reason != EMPTY or empty is None or empty.last_transition_time is None:
            return self.now
        pools = {pool.name: pool for pool in self.fleet.real.node_pools}
        pool = pools[claim.metadata.labels[names.NODEPOOL]]
        delay = parse_duration(pool.spec.disruption.consolidate_after) or timedelta()
        return min(self.now, max(self.since, empty.last_transition_time + delay))
