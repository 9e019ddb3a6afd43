"""What earlier decisions have promised: machines on their way, and the pods that they were bought for.

A full machine is planned to its last milli-core, and no second look would fill it the same way. So pods keep the place
that was planned for them until their machine is up, and buy nothing meanwhile. When machines come up one by one, the
scheduler fills the first with pods of the others: whoever lost its place so waits until the others are up, and only
then is it known who has no room. Nothing is stored but the pods' names on the claim; a promise ends by itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition
from shared.api.pods import requests
from shared.api.quantity import QuantityError
from shared.scheduling.rules.host_ports import host_ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources
    from shared.scheduling.state.state_nodes import ClusterState, StateNode
    from shared.snapshot import Snapshot

NOMINATION_WINDOW = timedelta(seconds=10)
"""How long after a node is up its pods may still come: the longest that kube-scheduler lets a pod wait between tries
(podMaxBackoffSeconds)."""
DEFERRAL_TIMEOUT = timedelta(minutes=2)
"""How old a claim may be while a pod that lost its place there waits for other machines: most come up sooner."""

_MAX_ANNOTATION_LENGTH = 200 * 1024
"""Characters of names on one claim; all annotations of an object may have 256 KiB."""


@dataclass(frozen=True)
class Nominations:
    """The places less what is promised on them, the pods by the place that they keep, and those that wait for room."""

    cluster_state: ClusterState
    nominated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deferred: frozenset[str] = frozenset()


def planned_pods_annotation(pods: Iterable[str]) -> str:
    """Pods (namespace/name) as a claim's annotation names them; too many are cut off, and count as not promised."""
    text = ",".join(pods)
    return text if len(text) <= _MAX_ANNOTATION_LENGTH else text[: text.rindex(",", 0, _MAX_ANNOTATION_LENGTH)]


def nominate(cluster_state: ClusterState, snapshot: Snapshot, waiting: Mapping[str, Pod]) -> Nominations:
    """Seat the waiting pods (by namespace/name) on the machines that were bought for them, as far as they fit there.

    Pods that are neither ``seated`` nor ``held`` are free to be placed anywhere.
    """
    promises = list(_nominating_claims(cluster_state, snapshot)) if waiting else []
    if not promises:
        return Nominations(cluster_state)
    rooms: dict[str, _NominatedNode] = {}
    lost: list[tuple[bytes, str, Resources]] = []
    promised: set[str] = set()
    for claim, place in promises:
        room = rooms.setdefault(place.name, _NominatedNode(place, _terms(claim), _up_for(claim, snapshot.taken_at)))
        for key in claim.metadata.annotations[names.PLANNED_PODS].split(","):
            pod = waiting.get(key)
            if pod is None or key in promised or _is_younger(pod, claim):
                continue
            promised.add(key)
            try:
                asked = requests(pod)
            except QuantityError:
                continue
            is_open = room.up_for is None or room.up_for < NOMINATION_WINDOW
            if is_open and room.add_pod(pod, asked):
                continue
            # One that runs on a node that is leaving had its place: it is planned for like any other.
            if not pod.spec.node_name and _age(claim, snapshot.taken_at) < DEFERRAL_TIMEOUT:
                lost.append((room.terms, key, asked))
    deferred = _defer(sorted(lost, key=lambda entry: entry[1]), [r for r in rooms.values() if r.up_for is None])
    places = tuple(rooms[p.name].place() if p.name in rooms else p for p in cluster_state.nodes)
    nominated = {name: tuple(sorted(p.key for p in room.pods)) for name, room in rooms.items() if room.pods}
    return Nominations(replace(cluster_state, nodes=places), nominated, deferred)


@dataclass
class _NominatedNode:
    """A place's room while promises are counted off. ``up_for``: how long its node is up; None: it isn't yet."""

    origin: StateNode
    terms: bytes
    up_for: timedelta | None
    pods: list[Pod] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = dict(self.origin.available)

    def add_pod(self, pod: Pod, asked: Resources) -> bool:
        """Let the pod have its place. False if there is no room for it."""
        if any(self.left.get(name, 0) < amount for name, amount in asked.items()):
            return False
        self.take(asked)
        self.pods.append(pod)
        return True

    def take(self, asked: Resources) -> Resources:
        """Take as much as there is; what is still wanted."""
        found = {name: max(0, min(amount, self.left.get(name, 0))) for name, amount in asked.items()}
        for name, amount in found.items():
            self.left[name] = self.left.get(name, 0) - amount
        return {name: amount - found[name] for name, amount in asked.items() if amount > found[name]}

    def place(self) -> StateNode:
        """The place as it is for all others."""
        ports = self.origin.ports.union(*(host_ports(p.spec) for p in self.pods))
        return replace(self.origin, available=self.left, pods=(*self.origin.pods, *self.pods), ports=ports)


def _defer(lost: Iterable[tuple[bytes, str, Resources]], rooms: Iterable[_NominatedNode]) -> frozenset[str]:
    """Which of the pods wait: those for whom a machine of their terms is to come that is large enough for them.

    How much room is left for them is known only when the scheduler has filled it. What is free there now is taken.
    """
    coming: defaultdict[bytes, list[_NominatedNode]] = defaultdict(list)
    for room in rooms:
        coming[room.terms].append(room)
    deferred = set()
    for terms, key, asked in lost:
        some = coming[terms]
        if any(all(r.origin.available.get(name, 0) >= amount for name, amount in asked.items()) for r in some):
            deferred.add(key)
            for room in some:
                asked = room.take(asked)  # noqa: PLW2901 - what is left of it
    return frozenset(deferred)


def _nominating_claims(cluster_state: ClusterState, snapshot: Snapshot) -> Iterator[tuple[NodeClaim, StateNode]]:
    """The claims that may still have pods to come, the youngest first, each with its place."""
    claims = [
        c
        for c in snapshot.node_claims
        if c.metadata.annotations.get(names.PLANNED_PODS)
        and c.metadata.deletion_timestamp is None
        and (_age(c, snapshot.taken_at) < DEFERRAL_TIMEOUT or _up_for(c, snapshot.taken_at) is None)
    ]
    if not claims:
        return
    places = {p.name: p for p in cluster_state.nodes}
    of_provider = {n.spec.provider_id: n.metadata.name for n in snapshot.nodes if n.spec.provider_id}
    for claim in sorted(claims, key=lambda c: (_age(c, snapshot.taken_at), c.name)):
        node = claim.status.node_name or of_provider.get(claim.status.provider_id, "")
        place = places.get(node) or places.get(claim.name)
        if place is not None:
            yield claim, place


def _up_for(claim: NodeClaim, now: datetime) -> timedelta | None:
    """How long its node is up; None: it isn't."""
    up = condition(claim.status.conditions, nodeclaim.INITIALIZED)
    if up is None or up.status != "True":
        return None
    return now - up.last_transition_time if up.last_transition_time is not None else timedelta.max


def _age(claim: NodeClaim, now: datetime) -> timedelta:
    made = claim.metadata.creation_timestamp
    return now - made if made is not None else timedelta()


def _is_younger(pod: Pod, claim: NodeClaim) -> bool:
    """Whether the pod is not the one that the claim was made for, but a later one of its name."""
    made, asked = pod.metadata.creation_timestamp, claim.metadata.creation_timestamp
    return made is not None and asked is not None and made > asked


def _terms(claim: NodeClaim) -> bytes:
    """What claims have in common whose pods may take each other's places: all but the size."""
    requirements = [r for r in claim.spec.requirements if names.normalize_key(r.key) != names.INSTANCE_TYPE]
    pool = claim.metadata.labels.get(names.NODEPOOL, "")
    return msgspec.json.encode([pool, requirements, claim.spec.taints])
