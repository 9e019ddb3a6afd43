"""How a node is emptied: what to do now, and what is waited for.

Pure: the claim, its node and the pods there, in; one :class:`Step`, out. Carrying a step out and asking again is all
there is to a drain, so it survives any crash. Groups leave one after the other, critical daemons last, so that pods
can still reach DNS and write their logs. Rules: Karpenter's terminator (reference: karpenter.md, section 6).

A pod that is not to be disrupted is never evicted: the drain waits for it to end by itself, for its protection to run
out, or for the claim's deadline, which overrides it like any budget (Karpenter's ``IsEvictable`` and ``IsDrainable``,
pkg/utils/pod/scheduling.go). Karpenter goes on to the next group meanwhile; here daemons stay as long as it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.duration import DurationError, parse_duration
from shared.api.pods import (
    FOREVER,
    do_not_disrupt,
    is_daemon,
    is_mirror,
    is_owned_by_node,
    is_protected,
    is_terminal,
    is_terminating,
)
from shared.api.taints import DISRUPTED, tolerates
from shared.termination import delayed_eviction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.storage import VolumeAttachment

STUCK_AFTER = timedelta(minutes=1)
"""A pod that long past its deletion is passed over: its kubelet won't confirm any more."""
_CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
_DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Step:
    """What to do now, in this order; ``terminate`` only when nothing else is left.

    ``evict`` are pods to evict, ``force`` pods to delete outright with so many seconds of grace because the claim's
    deadline leaves no more, ``waiting_for`` says in words what the drain waits for. ``stay`` are pods that would be
    evicted now if there were a place for them, ``protected`` those that are not to be disrupted. ``latest`` is the next
    moment at which time itself has something to be done: a pod whose own grace begins to run, that stays or is
    protected no longer, or the deadline.
    """

    evict: tuple[Pod, ...] = ()
    stay: tuple[Pod, ...] = ()
    protected: tuple[Pod, ...] = ()
    force: tuple[tuple[Pod, int], ...] = ()
    waiting_for: str = ""
    drained: bool = False
    terminate: bool = False
    latest: datetime | None = None


def deadline(claim: NodeClaim) -> datetime | None:
    """When the claim's terminationGracePeriod ends, or None when it has none.

    The annotation wins over the spec: whoever deletes in a hurry sets it.
    """
    stamped = claim.metadata.annotations.get(names.TERMINATION_TIMESTAMP)
    if stamped is not None:
        try:
            moment = datetime.fromisoformat(stamped)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            return moment
    if claim.spec.termination_grace_period is None or claim.metadata.deletion_timestamp is None:
        return None
    try:
        grace = parse_duration(claim.spec.termination_grace_period)
    except DurationError:
        return None
    return None if grace is None else claim.metadata.deletion_timestamp + grace


def next_step(
    claim: NodeClaim,
    pods: Iterable[Pod],
    attachments: Iterable[VolumeAttachment],
    volume_of: Mapping[str, str],
    *,
    now: datetime,
) -> Step:
    """What to do now for a claim that is being deleted, given the pods and volume attachments of its node.

    ``volume_of`` maps a volume claim ("namespace/name") to its PersistentVolume.
    """
    pods = tuple(pods)
    end = deadline(claim)
    remaining = [p for p in pods if _must_leave(p, now)]
    if end is not None and now >= end:
        return Step(force=tuple((p, 0) for p in remaining), terminate=True)
    force = tuple((p, _grace_left(p, end, now)) for p in remaining if _is_out_of_time(p, end, now))
    forced = {p.key for p, _ in force}
    rest = [p for p in remaining if p.key not in forced]
    group = [p for p in _first_group(rest) if not is_terminating(p)]
    protected = tuple(p for p in group if is_protected(p.metadata.annotations, since=p.status.start_time, now=now))
    group = [p for p in group if p not in protected]
    stay = _staying(claim, group, end, now)
    if remaining:
        return Step(
            evict=tuple(p for p in group if p.key not in stay),
            stay=tuple(p for p in group if p.key in stay),
            protected=protected,
            force=force,
            waiting_for=_in_words([p.key for p in remaining], stay),
            latest=min((*stay.values(), *_protection_ends(protected), *_ends(rest, end)), default=None),
        )
    attached = sorted(_detachable(attachments, pods, volume_of))
    if attached:
        return Step(waiting_for=f"volume {attached[0]} to be detached", drained=True, latest=end)
    return Step(drained=True, terminate=True)


def _must_leave(pod: Pod, now: datetime) -> bool:
    if is_terminal(pod) or is_mirror(pod) or is_owned_by_node(pod) or tolerates(pod.spec.tolerations, DISRUPTED):
        return False
    deleted = pod.metadata.deletion_timestamp
    return deleted is None or now - deleted < STUCK_AFTER


def _is_out_of_time(pod: Pod, end: datetime | None, now: datetime) -> bool:
    """Whether the pod must be deleted now: it keeps just its own grace before the deadline, or would outstay it."""
    if end is None:
        return False
    if pod.metadata.deletion_timestamp is not None:
        return pod.metadata.deletion_timestamp > end
    return now >= end - _grace(pod)


def _staying(claim: NodeClaim, pods: list[Pod], end: datetime | None, now: datetime) -> dict[str, datetime]:
    """Which of the pods stay for a place that is still to come, each with the moment until which it does at most."""
    waiting = frozenset[str]().union(*delayed_eviction.delayed_pods(claim).values())
    ends = {p.key: delayed_eviction.delayed_until(claim, end, _grace(p), now=now) for p in pods if p.key in waiting}
    return {key: moment for key, moment in ends.items() if now < moment}


def _in_words(pods: list[str], stay: Iterable[str]) -> str:
    first = min(stay, default="") or min(pods)
    what = f"{len(pods)} pods, such as {first}" if len(pods) > 1 else f"pod {first}"
    return f"{what}, which stays until there is a place for it" if stay else what


def _protection_ends(pods: Iterable[Pod]) -> Iterator[datetime]:
    """When each of these protected pods is protected no longer, where that is known."""
    for pod in pods:
        duration = do_not_disrupt(pod.metadata.annotations)
        if duration is not None and duration != FOREVER and pod.status.start_time is not None:
            yield pod.status.start_time + duration


def _ends(pods: list[Pod], end: datetime | None) -> tuple[datetime, ...]:
    """When each of the pods runs out of time, and the deadline itself."""
    if end is None:
        return ()
    return (end, *(end - _grace(p) for p in pods if not is_terminating(p)))


def _grace(pod: Pod) -> timedelta:
    seconds = pod.spec.termination_grace_period_seconds
    return timedelta(seconds=_DEFAULT_GRACE_SECONDS if seconds is None else seconds)


def _grace_left(pod: Pod, end: datetime | None, now: datetime) -> int:
    left = _grace(pod) if end is None else min(_grace(pod), max(end - now, timedelta()))
    return int(left.total_seconds())


def _first_group(pods: list[Pod]) -> list[Pod]:
    """The pods that leave next: noncritical, noncritical daemons, critical, critical daemons."""
    groups: dict[int, list[Pod]] = {}
    for pod in pods:
        rank = 2 * (pod.spec.priority_class_name in _CRITICAL) + is_daemon(pod)
        groups.setdefault(rank, []).append(pod)
    return groups[min(groups)] if groups else []


def _detachable(attachments: Iterable[VolumeAttachment], pods: Iterable[Pod], volume_of: Mapping[str, str]) -> set[str]:
    """Volumes that will be detached: all but those of pods that stay on the node to its end."""
    staying = {
        volume_of.get(f"{p.metadata.namespace}/{v.persistent_volume_claim.claim_name}")
        for p in pods
        if not is_terminal(p)
        for v in p.spec.volumes
        if v.persistent_volume_claim is not None
    }
    attached = {a.spec.source.persistent_volume_name or a.metadata.name for a in attachments}
    return {volume for volume in attached if volume not in staying}
