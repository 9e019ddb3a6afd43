"""What a batch of notices leads to: machines that go are given up and replaced at once, the others move in good time.

EC2 is asked first whether it bears the events out. Then in this order, because any line may be the last: scarce
offerings are remembered, every machine that goes is given up (its drain will begin whatever comes next), one decision
replaces them all, and the drains begin: pods with a place that is there leave at once, the others when the machine they
wait for has joined. If somebody else is deciding, the decision is tried again. Machines that only may go, or go some
day, are replaced first and given up after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption import proactive_replacement
from functions.interruption.cordon_and_drain import Giving, Taking
from functions.interruption.deadline import is_ours, stamp
from functions.interruption.event_verification import ASKED_FOR, Verdict, weigh
from functions.interruption.instance_lookup import ask
from functions.interruption.messages.notice import Ask, Basis
from functions.interruption.node_claim_lookup import Claims
from shared import runtime
from shared.cluster import resources
from shared.cluster.connect import connect
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.events import recorder
from shared.cluster.lease import LeaseHeldError, LeaseLostError
from shared.cluster.snapshot_reader import read_snapshot
from shared.instance_types.catalog_store import CatalogMissingError
from shared.launch.instances import instance_id
from shared.provisioning.provisioner import Provisioner
from shared.termination import delayed_eviction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.interruption.batch import Message
    from functions.interruption.messages.notice import Notice
    from functions.interruption.proactive_replacement import Move
    from functions.interruption.report import Report
    from functions.interruption.settings import InterruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.provisioning import provisioner
    from shared.snapshot import Snapshot
    from shared.termination.delayed_eviction import DelayedPods

_LEASE_TRIES = 8
_LEASE_WAIT_SECONDS = 0.5
"""Decisions take a second or few; after that the message comes back, and drains wait for nobody."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """An event about a claim of ours that EC2 doesn't contradict.

    ``bounded``: the machine goes when the event says, whatever holds its pods; otherwise nobody but the event says so.
    """

    message: Message
    claim: NodeClaim
    bounded: bool

    @property
    def notice(self) -> Notice:
        """What the event comes down to."""
        return self.message.event.notice


class Responding:
    """The tools of one invocation. ``until``: no further round of launches is begun after it."""

    def __init__(
        self, settings: InterruptionSettings, *, run: str, until: datetime, report: Report, logger: Logger
    ) -> None:
        self._settings = settings
        self._run = run
        self._until = until
        self._report = report
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._claims = Claims(self._client)
        self._taking = Taking(client=self._client, settings=settings, logger=logger)

    def respond(self, messages: Sequence[Message], *, sweep: bool) -> frozenset[str]:
        """Follow the messages; the ids of those that should come back.

        Raises:
            ApiError: nothing could be looked up.
        """
        messages = [m for m in messages if m.event.notice.ask is not Ask.NOTHING and not self._is_stale(m)]
        ours, failed = self._borne_out(self._ours(messages))
        failed |= self._give_up_all([h for h in ours if h.notice.ask is Ask.GIVE_UP])
        marked = [(h.message, h.claim) for h in ours if h.notice.ask in (Ask.RISK, Ask.MAINTENANCE)]
        failed |= self._mark_all(marked)
        if marked or sweep:
            self._move(fresh=bool(marked))
        return frozenset(failed)

    def _is_stale(self, message: Message) -> bool:
        stale = runtime.current().now() - message.event.time > message.event.notice.use
        self._report["stale"] += stale
        return stale

    def _ours(self, messages: Sequence[Message]) -> list[tuple[Message, NodeClaim]]:
        if not messages:
            return []
        ids = {i for m in messages for i in m.event.notice.instance_ids}
        claims = self._claims.of(ids, latest=max(m.event.time for m in messages))
        found = [(m, claims[i]) for m in messages for i in m.event.notice.instance_ids if i in claims]
        self._report["foreign"] += len(messages) - len({m.id for m, _ in found})
        return found

    def _borne_out(self, ours: Sequence[tuple[Message, NodeClaim]]) -> tuple[list[Heard], set[str]]:
        """What is left to follow once EC2 was asked, and the messages to ask about again."""
        now = runtime.current().now()
        open_ = [(m, c) for m, c in ours if not is_ours(c)]
        named: dict[str, set[Basis]] = {}
        for message, claim in open_:
            if message.event.notice.basis is not Basis.UNASKED:
                named.setdefault(instance_id(claim.status.provider_id), set()).add(message.event.notice.basis)
        seen = ask(named, logger=self._logger) if named else {}
        heard: list[Heard] = []
        again: set[str] = set()
        for message, claim in open_:
            age = now - message.event.time
            machine = seen.get(instance_id(claim.status.provider_id))
            verdict = weigh(message.event.notice.basis, machine, age=age)
            if verdict is Verdict.FALSE:
                self._report["contradicted"] += 1
                self._logger.warning(
                    "EC2 contradicts an event, which is dropped",
                    extra={"nodeclaim": claim.name, "reason": message.event.notice.reason, "why": str(machine)},
                )
                continue
            unconfirmed = verdict is Verdict.UNCONFIRMED
            if verdict is Verdict.NOT_YET or (unconfirmed and age < ASKED_FOR):
                again.add(message.id)
            if verdict is not Verdict.NOT_YET:
                heard.append(Heard(message=message, claim=claim, bounded=not unconfirmed))
        return heard, again

    # --- machines that go ---

    def _give_up_all(self, ours: Sequence[Heard]) -> set[str]:
        now = runtime.current().now()
        givings: dict[str, Giving] = {}
        asked: dict[str, list[str]] = {}
        scarce: dict[str, NodeClaim] = {}
        again: dict[str, NodeClaim] = {}
        for heard in ours:
            message, claim, notice = heard.message, heard.claim, heard.notice
            by = (notice.by or now) if heard.bounded else None
            known = givings.get(claim.name)
            if known is not None and (by is None or (known.by is not None and known.by <= by)):
                self._report["doubled"] += 1
                asked[claim.name].append(message.id)
                continue
            if claim.metadata.deletion_timestamp is not None and (by is None or stamp(claim, by, now=now) is None):
                # Done before; but if that try didn't live to replace it, this one does.
                self._report["doubled"] += not message.again
                if message.again:
                    again[message.id] = claim
                continue
            givings[claim.name] = Giving(
                claim=claim, by=by, reason=notice.reason, message=notice.message, undecided=notice.works
            )
            asked.setdefault(claim.name, []).append(message.id)
            if notice.offering_gone:
                scarce[claim.name] = claim
        if scarce:
            self._taking.mark_scarce(scarce.values(), reason="Interrupted")
        lost = self._taking.give_up(list(givings.values()))
        self._report["given_up"] += len(givings) - len(lost)
        failed = {i for name in lost for i in asked[name]}
        undecided = [g.claim for name, g in givings.items() if g.undecided and name not in lost]
        if (givings or again) and not self._replace([*undecided, *again.values()], givings.values()):
            # One message that comes back is enough to decide for all.
            failed.add(next(iter(again), ours[0].message.id))
        for giving in givings.values():
            self._recorder.record(giving.claim.ref, "Warning", giving.reason, giving.message)
        return failed

    def _replace(self, undecided: Sequence[NodeClaim], givings: Iterable[Giving]) -> bool:
        """Decide for all, and begin the drains that wait for it. False: not finished, try again."""
        placed = self._provision(self._nodes_of(g.claim for g in givings))
        if placed is None:
            return False
        stay = self._staying(placed, self._nodes_of(undecided))
        self._taking.begin({c.name: stay.get(c.status.node_name, {}) for c in undecided})
        return not placed.throttled

    def _staying(self, placed: provisioner.ProvisioningReport, nodes: frozenset[str]) -> dict[str, DelayedPods]:
        pods = placed.snapshot.pods if placed.snapshot is not None else ()
        return delayed_eviction.delayed_by_node(
            pods, nodes, arriving=placed.nominated_claims, unplaced=placed.unschedulable
        )

    def _nodes_of(self, claims: Iterable[NodeClaim]) -> frozenset[str]:
        return frozenset(c.status.node_name for c in claims if c.status.node_name)

    def _provision(self, leaving: frozenset[str]) -> provisioner.ProvisioningReport | None:
        """Place what runs on those nodes elsewhere, and launch for it; None: nothing came of it, try again."""
        for _ in range(_LEASE_TRIES):
            try:
                report = Provisioner(self._settings, by="interruption", run=self._run, logger=self._logger).run(
                    leaving=leaving, until=self._until
                )
            except LeaseHeldError as error:
                if runtime.current().now() >= self._until:
                    break
                self._logger.info("Somebody else is deciding", extra={"why": str(error)})
                runtime.current().sleep(_LEASE_WAIT_SECONDS)
                continue
            except (ApiError, BotoCoreError, CatalogMissingError, ClientError, LeaseLostError) as error:
                self._logger.warning(
                    "Replacing will be tried again", extra={"error": type(error).__name__, "why": str(error)}
                )
                return None
            self._report["replacements"] += len(report.launched)
            return report
        self._logger.warning("Replacing is left to the next try: somebody else is deciding")
        return None

    # --- machines that may go, or go some day ---

    def _mark_all(self, ours: Sequence[tuple[Message, NodeClaim]]) -> set[str]:
        """Write on each claim what EC2 said, so that it isn't forgotten until it is followed."""
        failed = set()
        for message, claim in ours:
            notice = message.event.notice
            risk = notice.ask is Ask.RISK
            annotation = proactive_replacement.AT_RISK if risk else proactive_replacement.MAINTENANCE
            moment = message.event.time if risk else notice.by or message.event.time
            if claim.metadata.deletion_timestamp is not None:
                continue
            if claim.metadata.annotations.get(annotation) == moment.isoformat():
                self._report["doubled"] += 1
                continue
            try:
                self._client.patch(
                    resources.NODE_CLAIMS.path(claim.name),
                    {"metadata": {"annotations": {annotation: moment.isoformat()}}},
                )
            except NotFoundError:
                continue
            except ApiError as error:
                self._logger.warning("An event will be tried again", extra={"nodeclaim": claim.name, "why": str(error)})
                failed.add(message.id)
                continue
            self._report["marked"] += 1
            self._recorder.record(claim.ref, "Warning", notice.reason, notice.message)
        return failed

    def _move(self, *, fresh: bool) -> None:
        """Move what may be moved now; what may not stays marked, and the next minute looks again."""
        now = runtime.current().now()
        if not fresh and not any(proactive_replacement.is_marked(c, now=now) for c in self._claims.all().values()):
            return
        snapshot = read_snapshot(self._client, now=now)
        moves = proactive_replacement.decide(snapshot, now=now)
        for node in moves.cordon:
            self._taking.cordon(node)
            self._report["cordoned"] += 1
        if not moves.go:
            return
        self._taking.mark_scarce((m.claim for m in moves.go if m.at_risk), reason="RebalanceRecommended")
        nodes = frozenset(m.node for m in moves.go if m.node)
        placed = self._provision(nodes)
        stay = self._staying(placed, nodes) if placed is not None else {}
        go = [m for m in moves.go if m.must or (placed is not None and _has_place(m, snapshot, placed))]
        givings = [_giving(m, stay.get(m.node, {})) for m in go]
        lost = self._taking.give_up(givings)
        self._report["moved"] += len(go) - len(lost)
        for giving in givings:
            self._recorder.record(giving.claim.ref, "Normal", giving.reason, giving.message)


def _giving(move: Move, stay: DelayedPods) -> Giving:
    why = "maintenance is ahead" if not move.at_risk else "EC2 recommends to replace its machine"
    return Giving(claim=move.claim, by=move.by, reason="DisruptionTerminating", message=f"moved: {why}", stay=stay)


def _has_place(move: Move, snapshot: Snapshot, placed: provisioner.ProvisioningReport) -> bool:
    """Whether everything on the machine has a place elsewhere, and every machine that was asked for came."""
    pods = {p.key for p in snapshot.pods if move.node and p.spec.node_name == move.node}
    return not placed.unlaunched and not pods & placed.unschedulable
