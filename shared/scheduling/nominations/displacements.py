"""Pods that lost the machines launched for them, and the brake against launching the same machine again and again.

A new machine may refuse a pod although it has room: a rule, a port or a volume was read wrongly, or something keeps the
pod away that plans don't know. After two such machines, the pod gets no other within half an hour.

A new machine may have no room for its pod after all: DaemonSet pods request more than planned and preempt it, or the
kubelet evicts it. Its successor is pending again, and the same machine would be launched again without end. So after
two such machines in a row, pods of the workload get a larger machine, one pod at a time; after the third, none until
the oldest counts no more. Each further one in a row counts twice as long as the one before, up to four hours: the same
three would be launched again each half hour otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.meta import RawQuantities
from shared.api.pods import controller, is_daemon, requests
from shared.api.quantity import CPU, MEMORY, QuantityError, add, format_resources, parse_resources
from shared.base.struct import Struct, WireStruct, with_fields
from shared.scheduling.decision import UnschedulableReason
from shared.scheduling.nominations.planned_pods import closed_windows, initialized_for, is_planned, planned_pods

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.snapshot import Snapshot

WINDOW, _LONGEST_WINDOW = timedelta(minutes=30), timedelta(hours=4)
"""For how long a machine counts that a workload's pod has lost: one of the first three in a row, and one of many."""
SAME_SIZE_LIMIT = 2
"""At most this many machines of a size that the scheduler chose are launched in a row."""
MACHINE_LIMIT = 3
"""At most this many machines are launched in a row at all."""
REFUSING_LIMIT = 2
"""At most this many machines are launched for a pod that they refuse."""
ROOM_FOR_DAEMON = "has no room for a DaemonSet's pod"
"""In the message of the event of a pod that is evicted to make room on its node, if a DaemonSet's pod needs it."""
_MAX_WORKLOADS = 100
_MAX_REFUSED = 50


class LostMachine(WireStruct, kw_only=True):
    """A machine that had no room for a pod which it was launched for; ``allocatable`` as in the NodeClaim's status.

    ``refused``: it had room, and yet these pods (namespace/name) weren't bound there. ``number`` counts the machines
    that the workload lost in a row.
    """

    at: datetime
    allocatable: RawQuantities = {}
    refused: tuple[str, ...] = ()
    number: int = 1

    @property
    def window(self) -> timedelta:
        """For how long it counts; it is remembered for twice as long."""
        doublings = min(max(0, self.number - MACHINE_LIMIT), 10)
        return min(WINDOW * (1 << doublings), _LONGEST_WINDOW)

    @property
    def until(self) -> datetime:
        """When it counts no more."""
        return self.at + self.window


Record = dict[str, dict[str, LostMachine]]
"""The lost machines by workload (namespace/prefix of its pods' names) and NodeClaim."""


class PossibleLoss(Struct, kw_only=True):
    """A NodeClaim whose planned pods (namespace/name) of a workload are missing or terminating.

    ``kept_out``: nothing but DaemonSets and planned pods runs there, and yet a planned pod is pending that what is left
    doesn't hold: no other proof is needed. ``refused``: the pods that are pending although the machine has room.
    """

    workload: str
    claim: NodeClaim
    pods: tuple[str, ...]
    kept_out: bool
    refused: tuple[str, ...] = ()

    @property
    def needs_no_proof(self) -> bool:
        """Whether the snapshot proves the loss."""
        return self.kept_out or bool(self.refused)


class Brake(Struct, kw_only=True):
    """The snapshot to plan with instead, and why some pods get no machine now."""

    snapshot: Snapshot
    refused: Mapping[str, UnschedulableReason]


def workload_of(pod: Pod) -> str:
    """What the names of the pods of one controller begin with, with the namespace; a bare pod's whole name."""
    owner = controller(pod.metadata)
    return pod.key if owner is None else f"{pod.metadata.namespace}/{owner.name}-"


def possible_losses(snapshot: Snapshot, workloads: Collection[str]) -> tuple[PossibleLoss, ...]:
    """The registered NodeClaims of the last half hour that lost planned pods of these workloads, newest first."""
    claims = [claim for claim in snapshot.node_claims if _is_recent(claim, snapshot.taken_at)]
    if not claims:
        return ()
    pods = {pod.key: pod for pod in snapshot.pods}
    closed = closed_windows(snapshot)
    on_node: dict[str, list[Pod]] = {claim.status.node_name: [] for claim in claims}
    for pod in snapshot.pods:
        if pod.spec.node_name in on_node:
            on_node[pod.spec.node_name].append(pod)
    losses = [
        loss
        for claim in claims
        for loss in _possible_losses(
            claim, workloads, pods, on_node[claim.status.node_name], is_closed=claim.name in closed
        )
    ]
    return tuple(sorted(losses, key=lambda loss: (_created(loss.claim), loss.claim.name), reverse=True))


def with_losses(record: Record, losses: Iterable[PossibleLoss], *, now: datetime) -> Record:
    """The record with these losses, and without those that are long over."""
    updated = {
        workload: kept
        for workload, machines in record.items()
        if (kept := {claim: machine for claim, machine in machines.items() if now - machine.at < 2 * machine.window})
    }
    for loss in losses:
        refused = () if loss.kept_out else loss.refused[:_MAX_REFUSED]
        lost = updated.setdefault(loss.workload, {})
        number = 1 + max((machine.number for machine in lost.values()), default=0)
        machine = LostMachine(at=now, allocatable=loss.claim.status.allocatable, refused=refused, number=number)
        lost.setdefault(loss.claim.name, machine)
    newest = sorted(updated.items(), key=lambda entry: max(m.at for m in entry[1].values()), reverse=True)
    return dict(newest[:_MAX_WORKLOADS])


def brake(snapshot: Snapshot, record: Record, new_pods: Collection[str]) -> Brake | None:
    """The brake for pods (namespace/name) that would get new machines; None if none of them lost machines."""
    record = _counting(record, snapshot.taken_at)
    enlarged: dict[str, Pod] = {}
    refused: dict[str, UnschedulableReason] = {}
    waiting_for = _claims_on_their_way(snapshot, record)
    accepted = _accepted_workloads(snapshot, record)
    for pod in sorted((p for p in snapshot.pods if p.key in new_pods), key=lambda p: p.key):
        workload = workload_of(pod)
        refusing = _refusing(record.get(workload, {}), pod.key, is_accepted=workload in accepted)
        if len(refusing) >= REFUSING_LIMIT:
            refused[pod.key] = UnschedulableReason(message=_refused(refusing))
            continue
        machines = {name: m for name, m in record.get(workload, {}).items() if not m.refused}
        if len(machines) < SAME_SIZE_LIMIT:
            continue
        if len(machines) >= MACHINE_LIMIT:
            refused[pod.key] = UnschedulableReason(message=_too_many_machines(machines))
        elif workload in waiting_for:
            refused[pod.key] = UnschedulableReason(message=_waiting(machines, waiting_for[workload]))
        else:
            enlarged[pod.key] = _with_more_overhead(pod, machines.values())
            waiting_for[workload] = f"that of pod {pod.key}"
    if not enlarged and not refused:
        return None
    pods = tuple(enlarged.get(pod.key, pod) for pod in snapshot.pods if pod.key not in refused)
    return Brake(snapshot=with_fields(snapshot, pods=pods), refused=refused)


def _counting(record: Record, now: datetime) -> Record:
    """The record without the machines that count no more."""
    return {
        workload: {claim: machine for claim, machine in machines.items() if now < machine.until}
        for workload, machines in record.items()
    }


def _is_recent(claim: NodeClaim, now: datetime) -> bool:
    created = claim.metadata.creation_timestamp
    return (
        claim.metadata.deletion_timestamp is None
        and created is not None
        and now - created < WINDOW
        and bool(claim.status.node_name)
        and bool(claim.metadata.annotations.get(names.PLANNED_PODS))
    )


def _possible_losses(
    claim: NodeClaim,
    workloads: Collection[str],
    pods: Mapping[str, Pod],
    on_node: Sequence[Pod],
    *,
    is_closed: bool,
) -> Iterator[PossibleLoss]:
    """The NodeClaim's possible losses; ``on_node`` are the pods of its node, ``is_closed`` its nomination window."""
    lost: defaultdict[str, list[str]] = defaultdict(list)
    pending: set[str] = set()
    refused: defaultdict[str, list[str]] = defaultdict(list)
    runs_nothing_else = _runs_nothing_else(claim, on_node)
    for key, workload in _planned_of(claim, workloads):
        pod = pods.get(key)
        # A preempted pod may be terminating for as long as machines take to come.
        if pod is None or pod.metadata.deletion_timestamp is not None or not is_planned(pod, claim):
            lost[workload].append(key)
        elif pod.spec.node_name:
            continue
        elif not _fits(pod, claim, on_node):
            if is_closed or runs_nothing_else:  # then at once, before another machine is launched
                lost[workload].append(key)
                pending.add(workload)
        elif is_closed:
            lost[workload].append(key)
            refused[workload].append(key)
    for workload, keys in lost.items():
        kept_out = workload in pending and runs_nothing_else
        yield PossibleLoss(
            workload=workload, claim=claim, pods=tuple(keys), kept_out=kept_out, refused=tuple(refused[workload])
        )


def _planned_of(claim: NodeClaim, workloads: Collection[str]) -> Iterator[tuple[str, str]]:
    """The planned pods of these workloads, each with its workload."""
    for key in planned_pods(claim):
        for workload in (f"{key.rpartition('-')[0]}-", key):
            if workload in workloads:
                yield key, workload


def _runs_nothing_else(claim: NodeClaim, on_node: Iterable[Pod]) -> bool:
    """Whether only DaemonSets' pods and the planned ones run on the NodeClaim's node."""
    planned = set(planned_pods(claim))
    return all(is_daemon(pod) or pod.key in planned for pod in on_node)


def _fits(pod: Pod, claim: NodeClaim, on_node: Iterable[Pod]) -> bool:
    """Whether what the other pods leave of the NodeClaim's node holds the pod: then something else keeps it away."""
    try:
        left = parse_resources(claim.status.allocatable)
        for bound in on_node:
            for name, amount in requests(bound).items():
                left[name] = left.get(name, 0) - amount
        return all(amount <= left.get(name, 0) for name, amount in requests(pod).items())
    except QuantityError:
        return True


def _claims_on_their_way(snapshot: Snapshot, record: Record) -> dict[str, str]:
    """By workload of the record: a NodeClaim that isn't initialized yet and is planned for it."""
    return {
        workload: f"NodeClaim {claim.name}"
        for claim in snapshot.node_claims
        if claim.metadata.deletion_timestamp is None and initialized_for(claim, snapshot.taken_at) is None
        for _, workload in _planned_of(claim, record)
    }


def _accepted_workloads(snapshot: Snapshot, record: Record) -> frozenset[str]:
    """The workloads of the record that have a pod on a machine of the last half hour: not all machines refuse them."""
    new_nodes = {claim.status.node_name for claim in snapshot.node_claims if _is_recent(claim, snapshot.taken_at)}
    bound = (pod for pod in snapshot.pods if pod.spec.node_name in new_nodes)
    return frozenset(workload for pod in bound if (workload := workload_of(pod)) in record)


def _refusing(machines: Mapping[str, LostMachine], pod: str, *, is_accepted: bool) -> dict[str, LostMachine]:
    """The machines that refused the pod; if none accepts its workload, those that refused any pod of it."""
    return {
        name: machine
        for name, machine in machines.items()
        if pod in machine.refused or (machine.refused and not is_accepted)
    }


def _with_more_overhead(pod: Pod, machines: Iterable[LostMachine]) -> Pod:
    """The pod as if it needed all CPU and memory of the largest lost machine besides its own."""
    overhead = dict.fromkeys((CPU, MEMORY), 0)
    for machine in machines:
        try:
            allocatable = parse_resources(machine.allocatable)
        except QuantityError:
            continue
        overhead = {name: max(amount, allocatable.get(name, 0)) for name, amount in overhead.items()}
    try:
        total = add(overhead, parse_resources(pod.spec.overhead))
    except QuantityError:
        return pod
    return with_fields(pod, spec=with_fields(pod.spec, overhead={**format_resources(total)}))


def _too_many_machines(machines: Mapping[str, LostMachine]) -> str:
    again = min(machine.until for machine in machines.values())
    return (
        f"{_losses(machines)}, so no other is launched before {again:%H:%M} UTC: compare the requests of the pods and "
        "of the DaemonSets with what they use"
    )


def _refused(machines: Mapping[str, LostMachine]) -> str:
    again = min(machine.until for machine in machines.values())
    return (
        f"{len(machines)} nodes that were launched for pods of this workload had room for them, and yet kube-scheduler "
        f"didn't bind them there ({', '.join(sorted(machines))}), so no other is launched before {again:%H:%M} UTC: "
        "the events of the pod and of the nodes say what keeps them apart"
    )


def _waiting(machines: Mapping[str, LostMachine], claim: str) -> str:
    return f"{_losses(machines)}, so a larger one is tried with one pod first: {claim}"


def _losses(machines: Mapping[str, LostMachine]) -> str:
    count, claims = len(machines), ", ".join(sorted(machines))
    return f"{count} machines in a row that were launched for pods of this workload had no room for them ({claims})"


def _created(claim: NodeClaim) -> float:
    created = claim.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0
