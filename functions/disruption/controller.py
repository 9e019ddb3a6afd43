"""One look at which nodes may go: what is under way goes on, what is due is begun, and savings are looked for.

Decided and written under the cluster's lease; the search for savings, which takes its time, runs without it, and what
it found is judged again under it on a new snapshot. What can't go yet is looked at again at the second its time is up,
by a delayed message, not at the next minute's sweep.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from dataclasses import replace as with_fields
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from functions.disruption.decision_records import Decisions
from functions.disruption.execution import Carrying
from functions.disruption.instance_networks import networks
from functions.disruption.replacement_launch import Buying
from functions.disruption.requeue import CONSOLIDATION, EMPTY, wake_up
from shared import runtime
from shared.api.nodepool import node_class_for
from shared.cluster import resources, writes
from shared.cluster.connect import connect
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.events import recorder
from shared.cluster.lease import Lease, LeaseHeldError, hold
from shared.cluster.snapshot_reader import read_snapshot
from shared.disruption import consolidation, disruption_queue, drift, emptiness
from shared.disruption.budgets import BudgetTracker
from shared.disruption.cluster_state import ClusterState
from shared.disruption.command import UNDERUTILIZED
from shared.disruption.methods import BY_REASON, FAST_METHODS
from shared.instance_types.catalog_store import CatalogMissingError
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.launch.node_class.readiness import node_class_of
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.disruption.settings import DisruptionSettings
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.command import BlockedCandidate, Command, MethodResult
    from shared.snapshot import Snapshot

_GO_ON_AFTER = timedelta(seconds=5)
_SEARCH = timedelta(seconds=15)
"""How long savings are looked for in one run; the next goes on from the cluster as it is then."""
_LEASE_TRIES = 6
_LEASE_WAIT_SECONDS = 0.5
_REMEMBERED = timedelta(minutes=10)
"""How long a search that found nothing stands while the cluster doesn't change."""
_TOLD = 50
"""Nodes that are told in one run why they are kept; the others are told by the next."""


@dataclass(kw_only=True)
class Report:
    """What a look came to, for its log line and metrics."""

    removed: int = 0
    replacements: int = 0
    refused: int = 0
    saved: float = 0.0
    """USD per hour, by all actions that were begun."""


class Disruption:
    """One run: the tools it works with, and its steps."""

    def __init__(self, settings: DisruptionSettings, *, run: str, until: datetime, logger: Logger) -> None:
        """``until``: the search for savings ends then at the latest."""
        self._settings = settings
        self._run = run
        self._until = until
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._buying = Buying(settings, self._client, self._recorder, logger=logger)
        self._carrying = Carrying(
            client=self._client,
            recorder=self._recorder,
            settings=settings,
            decisions=Decisions(settings.table_name, self._recorder, logger=logger),
        )
        self._begun = 0
        self.report = Report()

    def look(self, *, everything: bool) -> Report:
        """Go on, decide, carry out, and see to it that somebody looks when the next time is up.

        ``everything``: look for savings too.

        Raises:
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long.
        """
        with self._hold() as lease:
            view, slots = self._view()
            went, waiting = self._carrying.go_on(view.snapshot, now=view.now)
            self.report.removed += went
            view = self._note(view)
            written: list[NodeClaim] = []
            commands: list[MethodResult] = []
            for method in FAST_METHODS:
                equipped = self._equipped(view) if method.find_candidates(view) and method is not emptiness else view
                command = method.compute(equipped, slots, bool) if equipped is not None else None
                if command is None:
                    continue
                commands.append(command)
                for action in command.commands:
                    lease.check()
                    written += self._begin(action, view) or ()
                if written:
                    break  # What was bought is room that nobody has counted yet; the others look again soon.
                view = view.with_selected(command)
        self._buying.launch(written, view.snapshot)
        saving: MethodResult | None = None
        if everything and not self._begun and not went:
            saving = self._save(view)
        self._conclude(commands, saving, view, waiting=waiting or self.report.replacements > 0)
        return self.report

    def _hold(self) -> contextlib.AbstractContextManager[Lease]:
        return hold(
            self._client,
            cluster=self._settings.cluster_name,
            holder=f"disruption/{self._run}",
            now=runtime.current().now,
        )

    def _view(self) -> tuple[ClusterState, BudgetTracker]:
        """The cluster now, before anything is known of prices."""
        cloud_provider = EC2CloudProvider(cluster_name=self._settings.cluster_name)
        now = runtime.current().now()
        snapshot = read_snapshot(self._client, now=now)
        view = ClusterState(snapshot=snapshot, now=now)
        problem = Problem(
            snapshot=snapshot, instance_types={p.name: () for p in snapshot.node_pools}, leaving=view.disrupting_nodes
        )
        awaited = frozenset(name for name, pods in schedule(problem).existing_nodes.items() if pods)
        classes = {p.name: node_class_of(p, snapshot.node_classes) for p in snapshot.node_pools}
        view = with_fields(
            view,
            nominated=awaited | disruption_queue.replacement_names(snapshot.node_claims),
            instance_networks=networks(cloud_provider, now=now, logger=self._logger),
            is_drifted=cloud_provider.is_drifted,
            node_classes={p.name: node_class_for(p, c) for p in snapshot.node_pools if (c := classes[p.name])},
        )
        return view, BudgetTracker(snapshot, now=now)

    def _equipped(self, view: ClusterState) -> ClusterState | None:
        """The view with what can be bought; None when nobody knows."""
        try:
            offers = self._buying.resolved_pools(view.snapshot, now=view.now)
        except CatalogMissingError as error:
            self._logger.warning("Nothing can be replaced without a catalog", extra={"why": str(error)})
            return None
        return with_fields(view, instance_types=offers.instance_types, not_ready=offers.not_ready)

    def _note(self, view: ClusterState) -> ClusterState:
        """Write since when claims are empty, or no longer, and how they have drifted; the view as it is after that."""
        noted: dict[str, NodeClaim] = {}
        changes: list[tuple[NodeClaim, Callable[[NodeClaim], NodeClaim]]] = [
            (o.claim, partial(emptiness.with_empty_condition, is_empty=o.is_empty, now=view.now))
            for o in emptiness.empty_condition_changes(view)
        ]
        drifted = {c.claim.name: drift.disruption_message(view, c) for c in drift.find_candidates(view)}
        changes += [
            (claim, partial(drift.with_drifted_condition, message=drifted.get(claim.name, ""), now=view.now))
            for claim, _ in view.initialized
        ]
        for claim, change in changes:
            current = noted.get(claim.name, claim)
            if change(current) == current:
                continue
            try:
                noted[claim.name] = writes.update_status(self._client, resources.NODE_CLAIMS, current, change)
            except ApiError as error:
                self._logger.warning("What was seen was not noted", extra={"nodeclaim": claim.name, "why": str(error)})
        claims = tuple(noted.get(c.name, c) for c in view.snapshot.node_claims)
        return with_fields(view, snapshot=with_fields(view.snapshot, node_claims=claims))

    def _begin(self, action: Command, view: ClusterState) -> tuple[NodeClaim, ...] | None:
        id_ = f"{self._run}/{self._begun}"
        self._begun += 1
        if not action.savings and not action.replacements:
            action = with_fields(action, savings=self._buying.worth(action, view.snapshot))
        claims = self._buying.claims(action, view.snapshot, id_=id_, now=view.now)
        try:
            written = self._carrying.begin(action, claims, view.snapshot, id_=id_, now=view.now)
        except NotFoundError as error:
            self._logger.warning("An action was not begun", extra={"nodes": action.nodes, "why": str(error)})
            return None
        if written is not None:
            self.report.replacements += len(written)
            self.report.removed += 0 if written else len(action.removals)
            self.report.saved += action.savings
        return written

    # --- savings ---

    def _save(self, view: ClusterState) -> MethodResult | None:
        """Look for savings, and begin what is found if it still holds on the cluster as it is then."""
        if not consolidation.due_candidates(view) or _is_saving(view.snapshot):
            return None
        trace = _trace(view.snapshot)
        known: tuple[str, datetime] | None = runtime.current().cache.get("disruption:nothing-to-save")
        if known is not None and known[0] == trace and view.now - known[1] < _REMEMBERED:
            return None
        equipped = self._equipped(view)
        if equipped is None:
            return None
        end = min(self._until, runtime.current().now() + _SEARCH)
        command = consolidation.compute(
            equipped, BudgetTracker(view.snapshot, now=view.now), lambda: runtime.current().now() >= end
        )
        if not command.commands:
            runtime.current().cache["disruption:nothing-to-save"] = trace, view.now
            return command
        for action in command.commands:
            with contextlib.suppress(LeaseHeldError):
                self._buying.launch(self._begin_if_valid(action), view.snapshot)
        return command

    def _begin_if_valid(self, action: Command) -> Sequence[NodeClaim]:
        with self._hold_patiently() as lease:
            view, slots = self._view()
            equipped = self._equipped(view)
            if equipped is None:
                return ()
            obstacle = BY_REASON[action.reason].validate(action, equipped, slots)
            if obstacle:
                self._logger.info("A saving is gone", extra={"nodes": action.nodes, "why": obstacle})
                return ()
            lease.check()
            return self._begin(action, view) or ()

    @contextlib.contextmanager
    def _hold_patiently(self) -> Iterator[Lease]:
        """The lease, as soon as whoever decides now is done; decisions take a second or few."""
        with contextlib.ExitStack() as stack:
            for tries in range(_LEASE_TRIES, 0, -1):
                try:
                    lease = stack.enter_context(self._hold())
                except LeaseHeldError:
                    if tries == 1:
                        raise
                    runtime.current().sleep(_LEASE_WAIT_SECONDS)
                else:
                    yield lease
                    return

    # --- afterwards ---

    def _conclude(
        self, commands: Sequence[MethodResult], saving: MethodResult | None, view: ClusterState, *, waiting: bool
    ) -> None:
        nodes = {n.metadata.name: n for n in view.snapshot.nodes}
        told = 0
        for command in (*commands, *((saving,) if saving is not None else ())):
            self.report.refused += len(command.blocked)
            for refused in command.blocked:
                if told < _TOLD:
                    told += self._tell(refused, nodes)
        prompt = [c.requeue_at for c in commands if c.requeue_at is not None]
        later = [saving.requeue_at] if saving is not None and saving.requeue_at is not None else []
        if waiting:
            prompt.append(runtime.current().now() + _GO_ON_AFTER)
        if prompt:
            wake_up(self._settings, min(prompt), key=EMPTY)
        if later:
            wake_up(self._settings, min(later), key=CONSOLIDATION)

    def _tell(self, refused: BlockedCandidate, nodes: Mapping[str, Node]) -> bool:
        node = nodes.get(refused.node)
        ref = node.ref if node is not None else None
        return self._carrying.decisions.refused(refused, ref, now=runtime.current().now())


def _is_saving(snapshot: Snapshot) -> bool:
    """Whether an earlier saving is still under way: one after the other, so that each sees what came of the last."""
    marks = (disruption_queue.queue_entry(c) for c in snapshot.node_claims if disruption_queue.is_queued(c))
    return any(m is not None and m.reason == UNDERUTILIZED for m in marks)


def _trace(snapshot: Snapshot) -> str:
    """Equal as long as nothing has changed that a search for savings depends on, but for prices and time."""
    parts = [
        *(f"{p.metadata.uid}@{p.spec.node_name}" for p in snapshot.pods),
        *(c.metadata.uid for c in snapshot.node_claims),
        *(f"{p.metadata.uid}@{p.metadata.generation}" for p in snapshot.node_pools),
        *(f"{b.metadata.uid}@{b.status.disruptions_allowed}" for b in snapshot.pod_disruption_budgets),
    ]
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()
