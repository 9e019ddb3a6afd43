"""One reconcile of everything the lifecycle function owns: NodeClaims, statuses, garbage collection, metrics.

What it does, and in which order, is the list in :mod:`functions.lifecycle.steps`. Each object is reconciled on its own:
an error is logged with the object's name and does not stop the others. Nothing here terminates instances: NodeClaims
are deleted, and nodes and instances are sent to the termination function.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from functions.lifecycle.steps import STEPS, ReconcileState
from shared.base.struct import Struct, with_fields
from shared.cluster.lease import run_exclusively
from shared.cluster.snapshot_reader import read_snapshot

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext, ReconcileScope, Report

_LEASE_DURATION = timedelta(seconds=15)
"""Longer than most reconciles take. Nodes stay closed for this time if a function dies that holds the lease."""
_RUN_TIME = timedelta(seconds=20)
"""After this time an invocation leaves requested reconciles to the next one."""


class LifecycleController(Struct, kw_only=True):
    """Reconciles every NodeClaim, Node, NodePool and node class; ``run`` is the request's id."""

    context: ReconcileContext
    run: str

    def reconcile(self, scope: ReconcileScope) -> Report:
        """Reconcile everything, and return what has changed.

        Only one invocation at a time nominates pods, because an older snapshot would have pods nominated for nodes that
        are full by now. If one is running already, it reconciles once more, and this one does only what hints don't ask
        for.
        """
        clock, cluster = self.context.runtime.now, self.context.settings.cluster_name
        ran = run_exclusively(
            self.context.client,
            lambda: _reconcile(with_fields(self.context, now=clock()), scope, nominate=True),
            cluster=cluster,
            purpose="lifecycle",
            holder=self.run,
            now=clock,
            duration=_LEASE_DURATION,
            run_time=_RUN_TIME,
        )
        if not ran and (scope.compare_with_ec2 or scope.resolve_node_classes):
            _reconcile(self.context, scope, nominate=False)
        elif not ran:
            self.context.logger.info("Another invocation is reconciling, and does so once more")
        return self.context.report


def _reconcile(context: ReconcileContext, scope: ReconcileScope, *, nominate: bool) -> None:
    snapshot = read_snapshot(context.client, now=context.now, leaving=None)
    state = ReconcileState.of(snapshot, scope, nominate=nominate)
    for step in STEPS:
        if step.when(state):
            state = step.run(context, state) or state
