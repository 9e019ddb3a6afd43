"""Gangs: what was launched for a part of one goes back, and the whole is tried again elsewhere.

Decisions plan gangs all or nothing (:mod:`shared.scheduling.gangs`), but EC2 may launch less than was planned. The next
round plans the rest wherever it fits. If it fits nowhere, or a machine of the gang isn't launched within a minute, the
gang's NodeClaims are deleted: its pods would wait at the price of their nodes. Offerings without capacity are
remembered, so that the whole is then planned in another zone or with another type.

Each such attempt buys machines for a minute, so there is a brake: after two in a row the gang waits, longer each time.
The attempts are counted on the cluster's Lease, with its check. A run that dies after the count and before the
deletions leaves a gang that the next round finds incomplete again.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason, ObjectRef, decode_annotation, is_true
from shared.api.pod_references import PROVISIONING_REQUEST
from shared.api.pods import is_daemon, is_mirror, pod_group_key
from shared.base.plurals import plural
from shared.base.runtime import KUBERNETES_THREADS, in_threads
from shared.base.struct import Struct, with_fields
from shared.cluster import pod_groups, resources, writes
from shared.provisioning.round import Feature
from shared.scheduling.buffers.chunk_placement import PODS_FIRST
from shared.scheduling.buffers.chunks import chunk_pods
from shared.scheduling.decision import UnschedulableReason
from shared.scheduling.gangs import counts
from shared.scheduling.nominations.planned_pods import planned_pods

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.api.pod_references import PodGroupKey
    from shared.provisioning.round import Provisioning, Round
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot

LAUNCH_TIMEOUT = timedelta(minutes=1)
"""A machine that isn't launched by then leaves its gang incomplete."""
WAITS = tuple(timedelta(minutes=m) for m in (0, 0, 5, 10, 20, 40, 60))
"""How long a gang waits after its first, second, … incomplete launch; after more, as after the last of these."""
_FORGOTTEN = timedelta(hours=2)
"""How long after its wait an attempt is remembered."""
_MOST_REMEMBERED = 50


class Attempts(Struct):
    """How often a gang was launched in part, and until when it waits."""

    count: int
    until: datetime


class Gangs(Feature, kw_only=True):
    """The gangs of one round."""

    provisioning: Provisioning
    attempts: dict[str, Attempts]
    given_back: dict[PodGroupKey, tuple[NodeClaim, ...]]
    """The NodeClaims that this round deletes, by gang."""

    def before(self, round_: Round) -> Round:
        """The round with the gangs that wait marked."""
        groups = dict(round_.snapshot.pod_groups)
        for key, group in groups.items():
            attempts = self.attempts.get(str(key))
            if attempts is not None and attempts.until > round_.now and not group.problem:
                often = f"{plural(attempts.count, 'time')} EC2 launched only a part of its nodes"
                groups[key] = with_fields(group, problem=f"{often}, next attempt at {attempts.until:%H:%M} UTC")
        return with_fields(round_, snapshot=with_fields(round_.snapshot, pod_groups=groups))

    def after(self, round_: Round) -> Round:
        """The round without launches for gangs that something else has cut, and with what is counted."""
        members = _members(round_.snapshot)
        cut = _cut(members, round_)
        decision = _without(round_.decision, {pod: key for key in cut for pod in members[key]})
        used = _used_nodes(round_.snapshot)
        for key, pods in members.items():
            claims = tuple(c for c in round_.snapshot.node_claims if _is_launched_for(c, pods, used))
            if claims and (key in cut or any(_is_overdue(claim, round_.now) for claim in claims)):
                self.given_back[key] = claims
                count = self.attempts[str(key)].count + 1 if str(key) in self.attempts else 1
                self.attempts[str(key)] = Attempts(count, round_.now + WAITS[min(count, len(WAITS)) - 1])
        text = _text(self.attempts)
        annotations = dict(round_.lease_annotations)
        if text != round_.lease.annotations.get(names.INCOMPLETE_GANGS, ""):
            annotations[names.INCOMPLETE_GANGS] = text
        return with_fields(round_, decision=decision, lease_annotations=annotations)

    def write(self, round_: Round) -> Round:
        """The round after the NodeClaims that go back are deleted, none of which is launched any more."""
        deleted = {claim.name for claims in self.given_back.values() for claim in claims}
        if not deleted:
            return round_
        members = _members(round_.snapshot)
        for key, claims in self.given_back.items():
            errors = _errors(round_.decision)
            why = next((errors[pod].message for pod in sorted(members[key]) if pod in errors), "")
            self._report(key, claims, why, now=round_.now)
            in_threads(self._delete, claims, threads=KUBERNETES_THREADS)
        return with_fields(round_, unlaunched=tuple(c for c in round_.unlaunched if c.name not in deleted))

    def _delete(self, claim: NodeClaim) -> None:
        writes.delete(self.provisioning.client, resources.NODE_CLAIMS, claim)

    def _report(self, key: PodGroupKey, claims: Iterable[NodeClaim], why: str, *, now: datetime) -> None:
        launched = Counter(_offering(c) for c in claims if is_true(c.status.conditions, nodeclaim.LAUNCHED))
        tried = ", ".join(f"{count} × {offering}" for offering, count in sorted(launched.items()))
        until = self.attempts[str(key)].until
        again = "at once" if until <= now else f"at {until:%H:%M} UTC"
        given_back = f"EC2 launched a part of its nodes ({tried}), which are given back"
        message = f"{given_back if tried else 'its nodes could not be launched'}; next attempt {again}"
        resource = pod_groups.RESOURCES[key.api_group]
        ref = ObjectRef(api_version=resource.api_version, kind=resource.kind, name=key.name, namespace=key.namespace)
        self.provisioning.recorder.record(
            ref, "Warning", EventReason("GangIncomplete"), f"{message}. {why}".rstrip(". ")
        )
        self.provisioning.logger.warning(
            "A gang was launched in part, and its NodeClaims are deleted",
            extra={"podgroup": str(key), "launched": tried, "why": why, "next_attempt": again},
        )


def gangs(provisioning: Provisioning, round_: Round) -> Gangs:
    """The feature with the attempts that the cluster's Lease remembers."""
    attempts = _read(round_.lease.annotations.get(names.INCOMPLETE_GANGS, ""), round_.now)
    return Gangs(provisioning=provisioning, attempts=attempts, given_back={})


def _members(snapshot: Snapshot) -> dict[PodGroupKey, set[str]]:
    """The pods (namespace/name) without a node of each gang, and those of ProvisioningRequests."""
    members: dict[PodGroupKey, set[str]] = {key: set() for key in snapshot.pod_groups}
    for pod in snapshot.pods:
        if not pod.spec.node_name and (key := pod_group_key(pod)) in members and key is not None:
            members[key].add(pod.key)
    if any(key.api_group == PROVISIONING_REQUEST for key in members):
        for chunk in chunk_pods(snapshot).values():
            if (key := pod_group_key(chunk)) in members and key is not None:
                members[key].add(chunk.key)
    return members


def _errors(decision: Decision) -> Mapping[str, UnschedulableReason]:
    """Why pods and chunks have no place; chunks that wait until pods have their nodes may still get one."""
    waiting = {chunk: why for chunk, why in decision.chunk_errors.items() if why is not PODS_FIRST}
    return {**waiting, **decision.pod_errors} if waiting else decision.pod_errors


def _cut(members: Mapping[PodGroupKey, Collection[str]], round_: Round) -> set[PodGroupKey]:
    """The gangs of which fewer pods run or have a place than are needed at once."""
    snapshot, errors = round_.snapshot, _errors(round_.decision)
    running = Counter(pod_group_key(pod) for pod in snapshot.pods if pod.spec.node_name and counts(pod))
    return {
        key
        for key, pods in members.items()
        if running[key] + sum(pod not in errors for pod in pods) < snapshot.pod_groups[key].minimum
    }


def _used_nodes(snapshot: Snapshot) -> set[str]:
    """The nodes with a pod that isn't a DaemonSet's."""
    return {p.spec.node_name for p in snapshot.pods if p.spec.node_name and not (is_daemon(p) or is_mirror(p))}


def _without(decision: Decision, cut: Mapping[str, PodGroupKey]) -> Decision:
    """The decision without what it launches for these pods alone; those that lose their place get a reason."""
    dropped = [
        claim
        for claim in decision.new_node_claims
        if (planned := {*claim.pods, *claim.chunks}) and cut.keys() >= planned
    ]
    if not dropped:
        return decision
    dropped_ids = set(map(id, dropped))

    def why(pod: str) -> UnschedulableReason:
        return UnschedulableReason(message=f"{cut[pod]}: another of its pods has no place; no node is launched for it")

    return with_fields(
        decision,
        new_node_claims=tuple(c for c in decision.new_node_claims if id(c) not in dropped_ids),
        pod_errors={**{pod: why(pod) for claim in dropped for pod in claim.pods}, **decision.pod_errors},
        chunk_errors={**{pod: why(pod) for claim in dropped for pod in claim.chunks}, **decision.chunk_errors},
    )


def _is_launched_for(claim: NodeClaim, pods: Collection[str], used: Collection[str]) -> bool:
    """Whether it was created for these pods alone, and its node isn't one of those ``used`` by pods."""
    planned = planned_pods(claim)
    is_for_them = bool(planned) and all(pod in pods for pod in planned)
    return is_for_them and claim.status.node_name not in used and claim.metadata.deletion_timestamp is None


def _is_overdue(claim: NodeClaim, now: datetime) -> bool:
    created = claim.metadata.creation_timestamp
    is_launched = is_true(claim.status.conditions, nodeclaim.LAUNCHED)
    return not is_launched and created is not None and now - created >= LAUNCH_TIMEOUT


def _offering(claim: NodeClaim) -> str:
    labels = claim.metadata.labels
    return " ".join(labels.get(k, "?") for k in (names.INSTANCE_TYPE, names.CAPACITY_TYPE, names.ZONE))


def _read(text: str, now: datetime) -> dict[str, Attempts]:
    """The attempts that aren't forgotten yet; what can't be read doesn't count."""
    if not text:
        return {}
    try:
        attempts = decode_annotation(text, dict[str, Attempts])
    except msgspec.MsgspecError:
        return {}
    return {key: a for key, a in attempts.items() if now < a.until + _FORGOTTEN}


def _text(attempts: Mapping[str, Attempts]) -> str:
    newest = sorted(attempts.items(), key=lambda item: item[1].until, reverse=True)[:_MOST_REMEMBERED]
    return msgspec.json.encode(dict(newest), order="deterministic").decode() if newest else ""
