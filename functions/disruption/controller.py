"""One reconcile of disruption: reads the state, works off the queue, runs the fast methods, consolidates, and requeues.

It decides and writes while it holds the cluster's lease. Consolidation takes seconds, so it searches without the lease,
and validates its command under the lease on a new snapshot. Candidates that become due later are requeued for the
second at which they do, so they don't wait for the next scheduled sweep.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from functions.disruption import requeue
from functions.disruption.claim_conditions import write_conditions
from functions.disruption.command_execution import CommandExecutor, DisruptionReport
from functions.disruption.load_recording import record_load
from functions.disruption.room_requests import request_room
from functions.disruption.savings_search import SavingsSearch
from functions.disruption.soft_taints import write_soft_taints
from functions.disruption.state_reader import StateReader
from shared.base.struct import with_fields
from shared.cluster.lease import LeaseHeldError, hold
from shared.disruption.methods import BY_REASON, FAST_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from functions.disruption.decision_records import DecisionRecorder
    from functions.disruption.replacements import Replacements
    from functions.disruption.requeue import RequeueSender
    from functions.disruption.settings import DisruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.base.runtime import Runtime
    from shared.cloud_provider import CloudProvider
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.cluster.lease import Lease
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.command import Command, MethodResult
    from shared.disruption.disruption_state import DisruptionState

_LEASE_ATTEMPTS = 6
_LEASE_RETRY_SECONDS = 0.5


class DisruptionController:
    """One reconcile. ``run`` is the request's id, which command ids start with.

    ``until``: consolidation stops searching then at the latest.
    """

    def __init__(
        self,
        settings: DisruptionSettings,
        *,
        run: str,
        client: Client,
        recorder: Recorder,
        cloud_provider: CloudProvider,
        replacements: Replacements,
        decisions: DecisionRecorder,
        requeue_sender: RequeueSender,
        sqs: Callable[[], SQSClient],
        runtime: Runtime,
        until: datetime,
        logger: Logger,
    ) -> None:
        self._settings = settings
        self._run = run
        self._client = client
        self._recorder = recorder
        self._replacements = replacements
        self._decisions = decisions
        self._requeue_sender = requeue_sender
        self._sqs = sqs
        self._runtime = runtime
        self._logger = logger
        self._state_reader = StateReader(
            client=client,
            cloud_provider=cloud_provider,
            runtime=runtime,
            logger=logger,
            reboots=settings.reboot == "on",
        )
        self._executor = CommandExecutor(
            settings=settings,
            client=client,
            recorder=recorder,
            replacements=replacements,
            decisions=decisions,
            sqs=sqs,
            command_ids=(f"{run}/{number}" for number in itertools.count()),
            now=runtime.now,
            logger=logger,
        )
        self._savings_search = SavingsSearch(replacements=replacements, runtime=runtime, until=until)

    def reconcile(self, *, consolidate: bool) -> DisruptionReport:
        """Process the queue, execute what is due, and requeue what becomes due later.

        ``consolidate``: request room on full nodes, write soft taints, and run consolidation too, unless replacements
        are being launched or claims were deleted.

        Raises:
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long.
        """
        with self._wait_for_lease() as lease:
            cluster = self._state_reader.read(lease)
            self._executor.remove_standbys(cluster)
            deleted, waiting_since = self._executor.process_queue(cluster.state)
            state = write_conditions(self._client, cluster.state, logger=self._logger)
            state, results, claims = self._run_fast_methods(lease, state, cluster.budgets)
        if consolidate:
            request_room(state, self._settings, self._recorder, sqs=self._sqs)
            write_soft_taints(self._client, state, logger=self._logger)
        self._replacements.launch(claims, state.snapshot)
        consolidated = None
        if consolidate:
            state = self._with_evidence(state)
            if not (claims or deleted or self._executor.report.rebooted):
                consolidated = self._consolidate(state, cluster.budgets)
        all_results = results if consolidated is None else [*results, consolidated]
        blocked = (candidate for result in all_results for candidate in result.blocked)
        self._decisions.record_all_blocked(blocked, state.snapshot, now=self._runtime.now())
        self._decisions.record_warnings(warning for result in results for warning in result.warnings)
        report = self._executor.report
        self._requeue(results, consolidated, since=self._runtime.now() if report.replacements else waiting_since)
        return report

    def _run_fast_methods(
        self, lease: Lease, state: DisruptionState, budgets: BudgetTracker
    ) -> tuple[DisruptionState, list[MethodResult], list[NodeClaim]]:
        """Execute the fast methods' commands; returns the state then, their results and the replacements to launch."""
        claims: list[NodeClaim] = []
        results: list[MethodResult] = []
        for method in FAST_METHODS:
            needs_prices = method.NEEDS_PRICES and method.find_candidates(state)
            method_state = self._replacements.with_prices(state) if needs_prices else state
            if method_state is None:
                continue
            result = method.compute(method_state, budgets, bool)
            results.append(result)
            for command in result.commands:
                lease.check(budgets.record(command))
                claims += self._executor.start(command, state) or ()
            if claims or self._executor.report.rebooted:
                break  # The other methods don't know the nodes that come, or come back. They follow next time.
            state = state.with_selected(result)
        return state, results, claims

    def _with_evidence(self, state: DisruptionState) -> DisruptionState:
        """The state with what the load so far says about how long savings last; it also records the load now."""
        cluster = self._settings.cluster_name
        evidence = record_load(self._client, state.snapshot, cluster=cluster, now=state.now, logger=self._logger)
        return with_fields(state, evidence=evidence)

    def _consolidate(self, state: DisruptionState, budgets: BudgetTracker) -> MethodResult | None:
        """Search without the lease, and start the command if it is still valid; None if no search was needed."""
        result = self._savings_search.search(state, budgets)
        for command in result.commands if result is not None else ():
            with contextlib.suppress(LeaseHeldError):
                self._replacements.launch(self._validate_and_start(command), state.snapshot)
        return result

    def _validate_and_start(self, command: Command) -> Sequence[NodeClaim]:
        """Start the command if it is still valid on a new snapshot; returns the replacements to launch."""
        with self._wait_for_lease() as lease:
            cluster = self._state_reader.read(lease)
            with_prices = self._replacements.with_prices(cluster.state)
            if with_prices is None:
                return ()
            invalid = BY_REASON[command.reason].validate(command, with_prices, cluster.budgets)
            if invalid:
                self._logger.info("A command is no longer valid", extra={"nodes": command.nodes, "why": invalid})
                return ()
            lease.check(cluster.budgets.record(command))
            return self._executor.start(command, cluster.state) or ()

    def _requeue(
        self, results: Sequence[MethodResult], consolidated: MethodResult | None, *, since: datetime | None
    ) -> None:
        """Look again when candidates become due, and while replacements are waited for, which exist ``since`` then."""
        times = [r.requeue_at for r in results if r.requeue_at is not None]
        if since is not None:
            times.append(requeue.next_round(self._runtime.now(), since=since))
        if times:
            self._requeue_sender.send_at(min(times), key=requeue.DUE_NODES)
        if consolidated is not None and consolidated.requeue_at is not None:
            self._requeue_sender.send_at(consolidated.requeue_at, key=requeue.CONSOLIDATION)

    @contextlib.contextmanager
    def _wait_for_lease(self) -> Iterator[Lease]:
        """Hold the lease, after a few attempts if another function holds it; decisions take a few seconds at most.

        The drains of what is deleted meanwhile start at the end, also if something fails.
        """
        cluster, holder = self._settings.cluster_name, f"disruption/{self._run}"
        with contextlib.ExitStack() as stack:
            stack.callback(self._executor.start_drains)
            for attempt in range(1, _LEASE_ATTEMPTS + 1):
                try:
                    lease = stack.enter_context(
                        hold(self._client, cluster=cluster, holder=holder, now=self._runtime.now)
                    )
                except LeaseHeldError:
                    if attempt == _LEASE_ATTEMPTS:
                        raise
                    self._runtime.sleep(_LEASE_RETRY_SECONDS)
                else:
                    yield lease
                    return
