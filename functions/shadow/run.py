"""One run of shadow mode, from what was observed to the next record. Pure: the same input gives the same record.

The order: nodes that were empty before new pods came are removed; new pods are bound or launch nodes; disruption runs
as often as it would have since the last run; then the time of both fleets is counted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from functions.shadow.adoption import adopt
from functions.shadow.decisions import Decider
from functions.shadow.real_fleet import count_real, dollars_per_hour, price
from functions.shadow.virtual_fleet import VirtualFleet
from functions.shadow.virtual_nodes import offering_of
from shared.api.meta import condition
from shared.base.struct import with_fields
from shared.disruption import load_history
from shared.disruption.load_history import InvalidHistoryError, LoadHistory
from shared.disruption.savings_evidence import savings_evidence
from shared.disruption.workloads import current_workloads
from shared.shadow.ledger import Ledger, Sample, date_of
from shared.shadow.record import Record, Unplaced, VirtualNode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from functions.shadow.observed import Observed
    from shared.disruption.savings_evidence import SavingsEvidence
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot

LONGEST_GAP = timedelta(hours=1)
"""After a longer time without a run neither fleet is counted: what came and went in it can't be known."""
_LATE = 1.5
"""A run that comes later than this many intervals is after a gap."""


def next_record(
    record: Record,
    observed: Observed,
    *,
    slot: int,
    now: datetime,
    interval: timedelta,
    begin_search: Callable[[], Callable[[], bool]],
) -> Record:
    """The record after this run.

    ``now`` is in whole seconds. ``begin_search`` is called before each search of consolidation, and gives what ends it.
    """
    since = record.at or now
    skipped = now - since > LONGEST_GAP
    ledger = Ledger(record.days)
    fleet = VirtualFleet(
        real=observed.snapshot,
        autoscalers=observed.autoscalers,
        nodes={node.name: node for node in record.nodes if node.ends is None},
        bindings=dict(record.bindings),
    )
    if record.at is None:
        adopt(fleet, observed, ledger, now)
    history, evidence = _load(record, fleet.snapshot(), now)
    decider = Decider(
        fleet=fleet,
        resolved_pools=observed.resolved_pools,
        catalog=observed.catalog,
        ledger=ledger,
        run=f"shadow/{slot}",
        since=now if skipped else since,
        now=now,
        begin_search=begin_search,
        evidence=evidence,
    )
    unplaced = _decide(decider, record, interval, skipped=skipped)
    ledger.observe(since, now, gap=now - since > interval * _LATE, skipped=skipped)
    _count_waiting(fleet, ledger, now)
    real = count_real(
        record,
        observed.snapshot,
        observed.autoscalers,
        observed.lifetimes,
        catalog=observed.catalog,
        ledger=None if skipped else ledger,
        now=now,
    )
    leaving = [node for node in record.nodes if node.ends is not None]
    nodes = _count_virtual([*leaving, *fleet.nodes.values()], observed.catalog, None if skipped else ledger, now)
    following = Record(
        slot=slot,
        at=now,
        since=record.since or now,
        nodes=nodes,
        bindings=fleet.stored_bindings(),
        unplaced=unplaced,
        real=real,
        load=load_history.encode(history),
        derived=[*observed.derived.pools],
        notes=list(observed.notes),
    )
    _sample(following, fleet, observed.catalog, ledger)
    # Days that had ended when the last run counted are archived.
    following.days = [day for day in ledger.days if day.date >= date_of(since)]
    return following


def _decide(decider: Decider, record: Record, interval: timedelta, *, skipped: bool) -> dict[str, Unplaced]:
    """Decide on the fleet; returns the pods that have no node now, and counts for how long they had none."""
    fleet, now, since = decider.fleet, decider.now, decider.since
    fleet.unbind_overcommitted()
    if record.at is not None and not skipped:
        new = fleet.unbound_pods()
        created = (pod.metadata.creation_timestamp for pod in new if pod.metadata.uid not in record.unplaced)
        decider.remove_empty(by=max(since, min([now, *(at for at in created if at is not None)])))
    decision = decider.provision()
    if record.at is not None:
        decider.disrupt(within=min(now - since, interval))
    decider.update_empty_conditions()
    return _count_unplaced(decider, record, decision, skipped=skipped)


def _count_unplaced(decider: Decider, record: Record, decision: Decision, *, skipped: bool) -> dict[str, Unplaced]:
    """Count for how long pods had no node, since the last run or since they were created; returns those without one."""
    ledger, now, since = decider.ledger, decider.now, decider.since
    present = set() if skipped else {pod.metadata.uid for pod in decider.fleet.real.pods}
    for uid, before in record.unplaced.items():
        if uid in present:
            ledger.add_unplaced(before.pod, before.reason, since, now)
    waiting = {pod.metadata.uid: pod for pod in decider.fleet.unbound_pods()}
    unplaced = {uid: Unplaced(pod.key, _reason(decision, pod.key)) for uid, pod in sorted(waiting.items())}
    for uid in waiting.keys() - record.unplaced.keys():
        created = waiting[uid].metadata.creation_timestamp or now
        ledger.add_unplaced(unplaced[uid].pod, unplaced[uid].reason, min(now, max(since, created)), now)
    return unplaced


def _reason(decision: Decision, pod: str) -> str:
    error = decision.pod_errors.get(pod)
    return error.message if error is not None else "it lost its node in the last decision"


def _load(record: Record, snapshot: Snapshot, now: datetime) -> tuple[LoadHistory, Mapping[str, SavingsEvidence]]:
    """The load history with the load now, and what it says about how long savings last."""
    try:
        stored = load_history.decode(record.load, now=now) if record.load else LoadHistory()
    except InvalidHistoryError:
        stored = LoadHistory()
    current = current_workloads(snapshot)
    history = load_history.updated(stored, current, now=now)
    return history, savings_evidence(history, current.workloads, now=now)


def _count_waiting(fleet: VirtualFleet, ledger: Ledger, now: datetime) -> None:
    """Count for how long pods waited for their real nodes, each once."""
    for pod in fleet.bound_in_both():
        if pod.metadata.uid in fleet.waited:
            continue
        fleet.waited.add(pod.metadata.uid)
        scheduled = condition(pod.status.conditions, "PodScheduled")
        at = scheduled.last_transition_time if scheduled is not None and scheduled.status == "True" else None
        created = pod.metadata.creation_timestamp
        seconds = round((at - created).total_seconds()) if at is not None and created is not None else 0
        if seconds > 0:
            day = ledger.day(now)
            day.waited_pods += 1
            day.waited_seconds += seconds


def _count_virtual(
    nodes: Sequence[VirtualNode], catalog: InstanceTypeCatalog, ledger: Ledger | None, now: datetime
) -> list[VirtualNode]:
    """Add the nodes' time since it was last counted to the ledger; returns the nodes that haven't ended."""
    remaining = []
    for node in nodes:
        end = min(now, node.ends) if node.ends is not None else now
        if ledger is not None:
            offering = offering_of(node.claim.metadata.labels)
            ledger.use("shadow", offering, price(catalog, offering), node.counted, end)
        if node.ends is None or node.ends > now:
            remaining.append(with_fields(node, counted=now))
    return remaining


def _sample(record: Record, fleet: VirtualFleet, catalog: InstanceTypeCatalog, ledger: Ledger) -> None:
    real = [node.offering for node in record.real.values() if node.autoscaler]
    shadow = [offering_of(node.claim.metadata.labels) for node in record.nodes]
    assert record.at is not None
    day = ledger.day(record.at)
    day.runs += 1
    day.samples.append(
        Sample(
            at=record.at,
            real=round(dollars_per_hour(real, catalog), 6),
            shadow=round(dollars_per_hour(shadow, catalog), 6),
            real_nodes=len(real),
            shadow_nodes=len(shadow),
            pods=len(fleet.bindings),
        )
    )
