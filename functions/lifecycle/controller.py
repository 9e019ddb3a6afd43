"""One reconcile of everything the lifecycle function owns: NodeClaims, statuses, garbage collection, metrics.

What it does, and in which order, is the list in :mod:`functions.lifecycle.steps`. Each object is reconciled on its own:
an error is logged with the object's name and does not stop the others. Nothing here terminates instances: NodeClaims
are deleted, and nodes and instances are sent to the termination function.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from functions.lifecycle.context import HINT
from functions.lifecycle.steps import STEPS, ReconcileState
from shared.base.struct import Struct, with_fields
from shared.cluster.lease import run_exclusively
from shared.cluster.snapshot_reader import read_snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext, ReconcileScope, Report

_LEASE_DURATION = timedelta(seconds=15)
"""Longer than most runs of the exclusive steps take. Nodes stay closed for this time if a function dies that holds the
lease."""
_RUN_TIME = timedelta(seconds=20)
"""How long after its begin an invocation repeats what others request; the rest is left to the next one."""


class LifecycleController(Struct, kw_only=True):
    """Reconciles every NodeClaim, Node, NodePool and node class; ``run`` is the request's id."""

    context: ReconcileContext
    run: str

    def reconcile(self, scope: ReconcileScope) -> Report:
        """Reconcile everything, and return what has changed.

        Only one invocation at a time nominates pods and opens nodes, because an older snapshot would have pods
        nominated for nodes that are full by now. If one is doing so already, it does so once more, and this one does
        only what hints don't ask for. Joining nodes don't wait for a sweep to compare everything with EC2: it holds the
        lease for the exclusive steps only, and repeats them last if others requested it.
        """
        self._reconcile(scope, until=self.context.runtime.now() + _RUN_TIME)
        return self.context.report

    def _reconcile(self, scope: ReconcileScope, *, until: datetime) -> None:
        clock = self.context.runtime.now
        is_hint = scope == HINT
        reconcile = _Reconcile(self.context, scope)
        result = run_exclusively(
            self.context.client,
            reconcile.run_exclusive_steps,
            cluster=self.context.settings.cluster_name,
            purpose="lifecycle",
            holder=self.run,
            now=clock,
            duration=_LEASE_DURATION,
            run_time=until - clock() if is_hint else timedelta(),
        )
        if is_hint and not result.ran:
            self.context.logger.info("Another invocation is reconciling, and does so once more")
            return
        reconcile.run_other_steps()
        if result.request_left and not is_hint:
            self._reconcile(HINT, until=until)


class _Reconcile:
    """A reconcile of one scope: its exclusive steps, as often as they are requested, and then the others."""

    def __init__(self, context: ReconcileContext, scope: ReconcileScope) -> None:
        self._context = context
        self._scope = scope
        self._state: ReconcileState | None = None

    def run_exclusive_steps(self) -> None:
        """Run the steps that need the lease, on a new snapshot."""
        failures = self._state.liveness_failures if self._state is not None else {}
        self._context = with_fields(self._context, now=self._context.runtime.now())
        self._state = with_fields(self._read(nominate=True), liveness_failures=failures)
        self._run(self._state, exclusive=True)

    def run_other_steps(self) -> None:
        """Run the other steps on the snapshot of the exclusive ones, if these ran."""
        if self._state is None:
            self._run(self._read(nominate=False), exclusive=True)
        if self._state is not None:
            self._run(self._state, exclusive=False)

    def _read(self, *, nominate: bool) -> ReconcileState:
        snapshot = read_snapshot(self._context.client, now=self._context.now, leaving=None)
        return ReconcileState.of(snapshot, self._scope, nominate=nominate)

    def _run(self, state: ReconcileState, *, exclusive: bool) -> None:
        for step in STEPS:
            if step.exclusive == exclusive and step.when(state):
                state = step.run(self._context, state) or state
        self._state = state
