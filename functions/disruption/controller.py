"""One reconcile of disruption: continues queued commands, starts those that are due, and runs consolidation.

It decides and writes while it holds the cluster's lease. Consolidation takes seconds, so it searches without the lease,
and validates its command under the lease on a new snapshot. Candidates that become due later are requeued for the
second at which they do, so they don't wait for the next scheduled sweep.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from dataclasses import replace as with_fields
from datetime import timedelta
from typing import TYPE_CHECKING

from functions.disruption import requeue
from functions.disruption.claim_conditions import write_conditions
from functions.disruption.command_execution import CommandExecutor
from functions.disruption.decision_records import DecisionRecorder
from functions.disruption.instance_networks import instance_networks
from functions.disruption.load_recording import record_load
from functions.disruption.no_savings import NoSavings, fingerprint
from functions.disruption.replacements import Replacements
from functions.disruption.room_requests import request_room
from functions.disruption.soft_taints import write_soft_taints
from shared.api.nodepool import node_class_for
from shared.api.pause import read_pause
from shared.base import runtime
from shared.cluster.connect import connect
from shared.cluster.errors import NotFoundError
from shared.cluster.events import recorder
from shared.cluster.lease import Lease, LeaseHeldError, hold
from shared.cluster.snapshot_reader import read_snapshot
from shared.disruption import consolidation, disruption_queue, emptiness
from shared.disruption.budgets import BudgetTracker
from shared.disruption.command import UNDERUTILIZED
from shared.disruption.disruption_state import DisruptionState
from shared.disruption.methods import BY_REASON, FAST_METHODS
from shared.disruption.simulated_scheduling import with_chunks
from shared.instance_types.catalog_store import CatalogMissingError
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.launch.resolved_node_pools import node_class_of
from shared.scheduling.scheduler import schedule_on_existing_nodes
from shared.standby.held_nodes import without_standbys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.disruption.settings import DisruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.command import Command, MethodResult
    from shared.snapshot import Snapshot

_QUEUE_INTERVAL = timedelta(seconds=5)
"""How long after this reconcile the queue is processed again while claims wait for replacements."""
_SEARCH_TIMEOUT = timedelta(seconds=15)
"""How long consolidation searches in one run; the next run starts from the cluster as it is then."""
_LEASE_ATTEMPTS = 6
_LEASE_RETRY_SECONDS = 0.5
_MAX_RECORDED = 50
"""How many blocked candidates one run records; later runs record the others."""


@dataclass(kw_only=True)
class DisruptionReport:
    """What a reconcile did, for metrics. ``saved`` is USD per hour of all commands that were started."""

    removed: int = 0
    replacements: int = 0
    saved: float = 0.0


class DisruptionController:
    """One reconcile. ``run`` is the request's id, which command ids start with."""

    def __init__(
        self, settings: DisruptionSettings, *, run: str, until: datetime, logger: Logger, requeues: int = 0
    ) -> None:
        """``until``: consolidation stops searching by then; ``requeues``: the messages of this chain so far."""
        self._requeues = requeues
        self._settings = settings
        self._run = run
        self._until = until
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._replacements = Replacements(settings, self._client, self._recorder, logger=logger)
        self._decisions = DecisionRecorder(settings.table_name, self._recorder, logger=logger)
        self._executor = CommandExecutor(
            client=self._client, recorder=self._recorder, settings=settings, decisions=self._decisions, logger=logger
        )
        self._command_count = 0
        self._everything: Snapshot
        """The last snapshot with the standby nodes, which no method knows."""
        self.report = DisruptionReport()

    def reconcile(self, *, consolidate: bool) -> DisruptionReport:
        """Process the queue, execute what is due, and requeue what becomes due later.

        ``consolidate``: request room on full nodes, write soft taints, and run consolidation too, unless replacements
        are being launched or claims were deleted.

        Raises:
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long.
        """
        with self._wait_for_lease() as lease:
            state, budgets = self._read_state(lease)
            self._executor.remove_standbys(state, self._everything)
            deleted, waiting = self._executor.process_queue(state)
            self.report.removed += deleted
            state = write_conditions(self._client, state, logger=self._logger)
            state, results, claims = self._run_fast_methods(lease, state, budgets)
        if consolidate:
            request_room(state, self._settings, self._recorder)
            write_soft_taints(self._client, state, logger=self._logger)
        self._replacements.launch(claims, state.snapshot)
        consolidated = None
        if consolidate:
            state = self._with_evidence(state)
            if not claims and not deleted:
                consolidated = self._consolidate(state, budgets)
        self._record_blocked(results if consolidated is None else [*results, consolidated], state)
        self._requeue(results, consolidated, waiting=waiting or self.report.replacements > 0)
        return self.report

    def _run_fast_methods(
        self, lease: Lease, state: DisruptionState, budgets: BudgetTracker
    ) -> tuple[DisruptionState, list[MethodResult], list[NodeClaim]]:
        """Execute the fast methods' commands; returns the state then, their results and the replacements to launch."""
        claims: list[NodeClaim] = []
        results: list[MethodResult] = []
        for method in FAST_METHODS:
            needs_prices = method is not emptiness and method.find_candidates(state)
            method_state = self._with_instance_types(state) if needs_prices else state
            if method_state is None:
                continue
            result = method.compute(method_state, budgets, bool)
            results.append(result)
            for command in result.commands:
                lease.check()
                claims += self._start(command, state) or ()
            if claims:
                break  # The other methods don't know the new nodes' capacity. They follow in the next reconcile.
            state = state.with_selected(result)
        return state, results, claims

    # --- the lease and the state ---

    def _hold_lease(self) -> contextlib.AbstractContextManager[Lease]:
        return hold(
            self._client,
            cluster=self._settings.cluster_name,
            holder=f"disruption/{self._run}",
            now=runtime.current().now,
        )

    @contextlib.contextmanager
    def _wait_for_lease(self) -> Iterator[Lease]:
        """Hold the lease, after a few attempts if another function holds it; decisions take a few seconds at most."""
        with contextlib.ExitStack() as stack:
            for attempt in range(1, _LEASE_ATTEMPTS + 1):
                try:
                    lease = stack.enter_context(self._hold_lease())
                except LeaseHeldError:
                    if attempt == _LEASE_ATTEMPTS:
                        raise
                    runtime.current().sleep(_LEASE_RETRY_SECONDS)
                else:
                    yield lease
                    return

    def _read_state(self, lease: Lease) -> tuple[DisruptionState, BudgetTracker]:
        """The cluster's state now, still without instance types and prices, and its budgets."""
        now = runtime.current().now()
        pause = read_pause(lease.annotations, now=now)
        self._everything = with_fields(read_snapshot(self._client, now=now), pause=pause)
        snapshot = without_standbys(self._everything)
        state = DisruptionState(snapshot=snapshot, now=now)
        decision = schedule_on_existing_nodes(state.snapshot, state.disrupting_nodes)
        nominated = frozenset(name for name, pods in decision.existing_nodes.items() if pods)
        cloud_provider = EC2CloudProvider(cluster_name=self._settings.cluster_name)
        node_classes = {p.name: node_class_of(p, snapshot.node_classes) for p in snapshot.node_pools}
        state = with_fields(
            with_chunks(state, decision),
            nominated=nominated | disruption_queue.replacement_names(snapshot.node_claims),
            instance_networks=instance_networks(cloud_provider, snapshot.node_classes, now=now, logger=self._logger),
            node_classes={p.name: node_class_for(p, c) for p in snapshot.node_pools if (c := node_classes[p.name])},
            is_drifted=cloud_provider.is_drifted,
        )
        return state, BudgetTracker(snapshot, now=now)

    def _with_instance_types(self, state: DisruptionState) -> DisruptionState | None:
        """The state with instance types and prices; None while there is no catalog."""
        try:
            pools = self._replacements.resolved_pools(state.snapshot, now=state.now)
        except CatalogMissingError as error:
            self._logger.warning("Can't replace nodes without an instance type catalog", extra={"why": str(error)})
            return None
        return with_fields(
            state, instance_types=pools.instance_types, not_ready=pools.not_ready, coverage=pools.coverage
        )

    def _with_evidence(self, state: DisruptionState) -> DisruptionState:
        """The state with what the load so far says about how long savings last; it also records the load now."""
        cluster = self._settings.cluster_name
        evidence = record_load(self._client, state.snapshot, cluster=cluster, now=state.now, logger=self._logger)
        return with_fields(state, evidence=evidence)

    # --- commands ---

    def _start(self, command: Command, state: DisruptionState) -> tuple[NodeClaim, ...] | None:
        """Start a command; returns its replacements as written, None if it wasn't started or was rolled back."""
        command_id = f"{self._run}/{self._command_count}"
        self._command_count += 1
        if not command.savings and not command.replacements:
            price = self._replacements.price_of_removals(command, state.snapshot)
            command = with_fields(command, savings=price)
        claims = self._replacements.node_claims(command, state.snapshot, command_id=command_id, now=state.now)
        try:
            written = self._executor.start(command, claims, state.snapshot, command_id=command_id, now=state.now)
        except NotFoundError as error:
            self._logger.warning("Couldn't start a command", extra={"nodes": command.nodes, "why": str(error)})
            return None
        if written is not None:
            self.report.replacements += len(written)
            self.report.removed += 0 if written else len(command.removals)
            self.report.saved += command.savings
        return written

    # --- consolidation ---

    def _consolidate(self, state: DisruptionState, budgets: BudgetTracker) -> MethodResult | None:
        """Search without the lease, and start the command if it is still valid; None if no search was needed."""
        due = consolidation.due_candidates(state)
        if not due or _is_consolidating(state.snapshot):
            return None
        inputs = fingerprint(state, due, budgets)
        cache = runtime.current().cache
        known: NoSavings | None = cache.get("disruption:nothing-to-save")
        no_savings = known if known is not None and known.fingerprint == inputs else None
        if no_savings is not None and state.now < no_savings.until:
            return None
        with_types = self._with_instance_types(state)
        if with_types is None:
            return None
        end = min(self._until, runtime.current().now() + _SEARCH_TIMEOUT)
        result = consolidation.compute(with_types, budgets, lambda: runtime.current().now() >= end)
        if not result.commands:
            cache["disruption:nothing-to-save"] = NoSavings(
                fingerprint=inputs,
                since=no_savings.since if no_savings is not None else state.now,
                searched_at=state.now,
                next_savings_at=result.next_savings_at,
            )
        for command in result.commands:
            with contextlib.suppress(LeaseHeldError):
                self._replacements.launch(self._validate_and_start(command), state.snapshot)
        return result

    def _validate_and_start(self, command: Command) -> Sequence[NodeClaim]:
        """Start the command if it is still valid on a new snapshot; returns the replacements to launch."""
        with self._wait_for_lease() as lease:
            state, budgets = self._read_state(lease)
            with_types = self._with_instance_types(state)
            if with_types is None:
                return ()
            invalid = BY_REASON[command.reason].validate(command, with_types, budgets)
            if invalid:
                self._logger.info("A command is no longer valid", extra={"nodes": command.nodes, "why": invalid})
                return ()
            lease.check()
            return self._start(command, state) or ()

    # --- at the end ---

    def _record_blocked(self, results: Sequence[MethodResult], state: DisruptionState) -> None:
        nodes = {n.metadata.name: n for n in state.snapshot.nodes}
        now = runtime.current().now()
        recorded = 0
        for candidate in (c for result in results for c in result.blocked):
            if recorded >= _MAX_RECORDED:
                break
            node = nodes.get(candidate.node)
            recorded += self._decisions.record_blocked(candidate, node.ref if node is not None else None, now=now)

    def _requeue(self, results: Sequence[MethodResult], consolidated: MethodResult | None, *, waiting: bool) -> None:
        times = [r.requeue_at for r in results if r.requeue_at is not None]
        if waiting:
            times.append(runtime.current().now() + _QUEUE_INTERVAL)
        if times:
            requeue.requeue_at(self._settings, min(times), key=requeue.FAST_METHODS, requeues=self._requeues)
        if consolidated is not None and consolidated.requeue_at is not None:
            requeue.requeue_at(
                self._settings, consolidated.requeue_at, key=requeue.CONSOLIDATION, requeues=self._requeues
            )


def _is_consolidating(snapshot: Snapshot) -> bool:
    """Whether a consolidation is in the queue; the next one waits for it, so that it sees its effect."""
    entries = (disruption_queue.queue_entry(c) for c in snapshot.node_claims if disruption_queue.is_queued(c))
    return any(entry is not None and entry.reason == UNDERUTILIZED for entry in entries)
