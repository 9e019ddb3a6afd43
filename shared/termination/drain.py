"""How a node is drained: which pods are evicted or deleted now, and what the drain waits for.

Pure: the NodeClaim, its node's pods and volume attachments, in; one :class:`DrainStep`, out. A drain is a repetition of
such steps, so it survives any crash. Pods are evicted in groups, critical daemons last, so that the others can still
resolve names and write their logs. Rules: Karpenter's node/termination/terminator (docs/facts/karpenter.md, section 6).

A pod that is not to be disrupted is never evicted: the drain waits until it terminates by itself, until its annotation
expires, or for the NodeClaim's deadline, which overrides it like any budget (Karpenter's ``IsEvictable`` and
``IsDrainable``, pkg/utils/pod/scheduling.go). Karpenter evicts the next group meanwhile; Tenon evicts it later.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.duration import duration_or_none
from shared.api.meta import annotated, parse_timestamp, timestamp
from shared.api.pods import (
    FOREVER,
    claim_of,
    do_not_disrupt,
    is_daemon,
    is_mirror,
    is_owned_by_node,
    is_protected,
    is_terminal,
    is_terminating,
)
from shared.api.taints import DISRUPTED, tolerates
from shared.base.struct import Struct, with_fields
from shared.termination import delayed_eviction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.storage import VolumeAttachment

STUCK_TERMINATING_AFTER = timedelta(minutes=1)
"""A pod this long past its deletion is ignored: its kubelet no longer confirms it."""
_SECOND = timedelta(seconds=1)
"""The annotation has whole seconds."""
_KUBELET_REPORT = timedelta(seconds=1)
"""How long after its end a pod is gone from the API."""
_CRITICAL_PRIORITY_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
_DEFAULT_GRACE_SECONDS = 30


class DrainStep(Struct, kw_only=True):
    """What to do now, in this order; ``terminate`` only when nothing else is left to do.

    ``evict`` are pods to evict. ``delayed`` are pods whose eviction waits for a replacement node, ``protected`` pods
    that are not to be disrupted. ``delete`` are pods to delete over their budgets, with the seconds of grace that the
    deadline leaves. ``waiting_for`` is a message. ``requeue_by`` is when the step changes by time alone: a pod must be
    deleted, a delay or a protection ends, or the deadline is reached.
    """

    evict: tuple[Pod, ...] = ()
    delayed: tuple[Pod, ...] = ()
    protected: tuple[Pod, ...] = ()
    delete: tuple[tuple[Pod, int], ...] = ()
    waiting_for: str = ""
    drained: bool = False
    terminate: bool = False
    requeue_by: datetime | None = None


def termination_deadline(claim: NodeClaim) -> datetime | None:
    """When the NodeClaim's drain must have ended, or None when nothing bounds it.

    That is the end of its terminationGracePeriod. The annotation of a time overrides the spec: an interruption sets it
    to an earlier one. Disruption bounds the drain of an unhealthy node by another annotation; the earlier time holds.

    >>> from shared.api.meta import ObjectMeta
    >>> from shared.api.nodeclaim import NodeClaim, NodeClaimSpec
    >>> deleted = datetime(2026, 11, 26, 10, tzinfo=UTC)
    >>> spec = NodeClaimSpec(termination_grace_period="1h")
    >>> str(termination_deadline(NodeClaim(metadata=ObjectMeta(deletion_timestamp=deleted), spec=spec)))
    '2026-11-26 11:00:00+00:00'
    """
    ends = (_annotated_end(claim) or _grace_period_end(claim), _bound_end(claim))
    return min((end for end in ends if end is not None), default=None)


def with_termination_timestamp(claim: NodeClaim, deadline: datetime) -> NodeClaim:
    """The NodeClaim with the annotation that says when its drain ends."""
    annotations = {names.TERMINATION_TIMESTAMP: timestamp(deadline)}
    return with_fields(claim, metadata=annotated(claim.metadata, annotations))


def deadline_reason(claim: NodeClaim, node_name: str) -> str:
    """What the drain's deadline is: the end of the terminationGracePeriod, or an earlier one that disruption set."""
    deadline = termination_deadline(claim)
    own = _grace_period_end(claim)
    if deadline is None or (own is not None and deadline >= own - _SECOND):
        return f"the terminationGracePeriod of node {node_name} ends"
    return f"node {node_name} must be drained by {deadline.astimezone(UTC):%H:%M:%S} UTC"


def _annotated_end(claim: NodeClaim) -> datetime | None:
    """The time in the annotation, or None without a valid one."""
    return parse_timestamp(claim.metadata.annotations.get(names.TERMINATION_TIMESTAMP, ""))


def _grace_period_end(claim: NodeClaim) -> datetime | None:
    """When the spec's terminationGracePeriod ends, or None when it has none."""
    return _end(claim, claim.spec.termination_grace_period)


def _bound_end(claim: NodeClaim) -> datetime | None:
    """When the grace period in the annotation ends, or None without a valid one."""
    return _end(claim, claim.metadata.annotations.get(names.TERMINATION_GRACE_PERIOD))


def _end(claim: NodeClaim, grace_period: str | None) -> datetime | None:
    deleted_at = claim.metadata.deletion_timestamp
    if grace_period is None or deleted_at is None:
        return None
    grace = duration_or_none(grace_period)
    return None if grace is None else deleted_at + grace


def last_eviction(terminating: Iterable[Pod]) -> datetime | None:
    """When the last of these pods was evicted or deleted; None without pods."""
    # The API server adds the grace period to the time of the request.
    evictions = [
        p.metadata.deletion_timestamp - timedelta(seconds=p.metadata.deletion_grace_period_seconds or 0)
        for p in terminating
        if p.metadata.deletion_timestamp is not None
    ]
    return max(evictions, default=None)


def last_termination(terminating: Iterable[Pod]) -> datetime | None:
    """When the last of these pods should have ended, a second after its grace period; None without pods."""
    ends = [p.metadata.deletion_timestamp for p in terminating if p.metadata.deletion_timestamp is not None]
    return max(ends) + _KUBELET_REPORT if ends else None


def drain_step(
    claim: NodeClaim,
    pods: Iterable[Pod],
    attachments: Iterable[VolumeAttachment],
    volume_of: Mapping[str, str],
    *,
    now: datetime,
) -> DrainStep:
    """What to do now for a NodeClaim that is being deleted, given the pods and volume attachments of its node.

    ``volume_of`` maps PersistentVolumeClaims ("namespace/name") to PersistentVolumes.
    """
    pods = tuple(pods)
    deadline = termination_deadline(claim)
    drainable = [p for p in pods if _is_drainable(p, now)]
    if deadline is not None and now >= deadline:
        return DrainStep(delete=tuple((p, 0) for p in drainable), terminate=True)
    if drainable:
        return _step_for_pods(claim, drainable, deadline, now)
    attached = sorted(_detachable_volumes(attachments, pods, volume_of))
    if attached:
        count, example = len(attached), attached[0]
        subject = f"{count} volumes, such as {example}, are" if count > 1 else f"volume {example} is"
        waiting_for = f"{subject} waiting to be detached"
        return DrainStep(waiting_for=waiting_for, drained=True, requeue_by=deadline)
    return DrainStep(drained=True, terminate=True)


def eviction_step(pods: Iterable[Pod], *, now: datetime) -> DrainStep:
    """What to evict now of a node that reboots: its instance stays, so no pod is deleted, nor waited for for long.

    Pods that can't be evicted are still there when the reboot is called; their containers start again after it.
    """
    drainable = [p for p in pods if _is_drainable(p, now)]
    protected, evictable = _split_protected(_first_group(drainable), now)
    return DrainStep(evict=tuple(evictable), protected=tuple(protected), drained=not drainable)


def _step_for_pods(claim: NodeClaim, drainable: list[Pod], deadline: datetime | None, now: datetime) -> DrainStep:
    """The step while pods are left: deletions that the deadline requires, and evictions of the first group."""
    deleted = {p.key: p for p in drainable if _must_be_deleted(p, deadline, now)}
    not_deleted = [p for p in drainable if p.key not in deleted]
    protected, evictable = _split_protected(_first_group(not_deleted), now)
    delayed_until = _delays(claim, evictable, deadline, now)
    changes = (*delayed_until.values(), *_protection_ends(protected), *_deletion_times(not_deleted, deadline))
    return DrainStep(
        evict=tuple(p for p in evictable if p.key not in delayed_until),
        delayed=tuple(p for p in evictable if p.key in delayed_until),
        protected=tuple(protected),
        delete=tuple((p, _remaining_grace(p, deadline, now)) for p in deleted.values()),
        waiting_for=_waiting_for([p.key for p in drainable], delayed_until),
        requeue_by=min(changes, default=None),
    )


def _is_drainable(pod: Pod, now: datetime) -> bool:
    if is_terminal(pod) or is_mirror(pod) or is_owned_by_node(pod) or tolerates(pod.spec.tolerations, DISRUPTED):
        return False
    deleted_at = pod.metadata.deletion_timestamp
    return deleted_at is None or now - deleted_at < STUCK_TERMINATING_AFTER


def _must_be_deleted(pod: Pod, deadline: datetime | None, now: datetime) -> bool:
    """Whether the pod must be deleted now, so that its grace period ends by the deadline."""
    if deadline is None:
        return False
    if pod.metadata.deletion_timestamp is not None:
        return pod.metadata.deletion_timestamp > deadline
    return now >= deadline - _grace(pod)


def _delays(claim: NodeClaim, pods: list[Pod], deadline: datetime | None, now: datetime) -> dict[str, datetime]:
    """The pods whose eviction is delayed now, each with the moment until which it is at most."""
    annotated = frozenset[str]().union(*delayed_eviction.delayed_pods(claim).values())
    ends = {
        p.key: delayed_eviction.delayed_until(claim, deadline, _grace(p), now=now) for p in pods if p.key in annotated
    }
    return {key: end for key, end in ends.items() if now < end}


def _split_protected(group: list[Pod], now: datetime) -> tuple[list[Pod], list[Pod]]:
    """The group's pods that are not terminating: those that are not to be disrupted now, and those that may be."""
    protected: list[Pod] = []
    evictable: list[Pod] = []
    for pod in group:
        if not is_terminating(pod):
            is_kept = is_protected(pod.metadata.annotations, since=pod.status.start_time, now=now)
            (protected if is_kept else evictable).append(pod)
    return protected, evictable


def _waiting_for(pods: list[str], delayed: Collection[str]) -> str:
    example = min(delayed, default="") or min(pods)
    subject = f"{len(pods)} pods, such as {example}, are" if len(pods) > 1 else f"pod {example} is"
    delay = f"; eviction of {example} is delayed until its replacement node registers" if delayed else ""
    return f"{subject} waiting to terminate{delay}"


def _protection_ends(pods: Iterable[Pod]) -> Iterator[datetime]:
    """When the do-not-disrupt annotations of these pods expire, for those that do."""
    for pod in pods:
        duration = do_not_disrupt(pod.metadata.annotations)
        if duration is not None and duration != FOREVER and pod.status.start_time is not None:
            yield pod.status.start_time + duration


def _deletion_times(pods: list[Pod], deadline: datetime | None) -> tuple[datetime, ...]:
    """When each of the pods must be deleted to meet the deadline, and the deadline itself."""
    if deadline is None:
        return ()
    return (deadline, *(deadline - _grace(p) for p in pods if not is_terminating(p)))


def _grace(pod: Pod) -> timedelta:
    seconds = pod.spec.termination_grace_period_seconds
    return timedelta(seconds=_DEFAULT_GRACE_SECONDS if seconds is None else seconds)


def _remaining_grace(pod: Pod, deadline: datetime | None, now: datetime) -> int:
    grace = _grace(pod) if deadline is None else min(_grace(pod), max(deadline - now, timedelta()))
    return int(grace.total_seconds())


def _first_group(pods: list[Pod]) -> list[Pod]:
    """The pods that are evicted next: noncritical, noncritical daemons, critical, critical daemons."""
    groups: dict[int, list[Pod]] = {}
    for pod in pods:
        rank = 2 * (pod.spec.priority_class_name in _CRITICAL_PRIORITY_CLASSES) + is_daemon(pod)
        groups.setdefault(rank, []).append(pod)
    return groups[min(groups)] if groups else []


def _detachable_volumes(
    attachments: Iterable[VolumeAttachment], pods: Iterable[Pod], volume_of: Mapping[str, str]
) -> set[str]:
    """Attached volumes, without those of pods that are not drained."""
    kept = {
        volume_of.get(claim) for p in pods if not is_terminal(p) for v in p.spec.volumes if (claim := claim_of(p, v))
    }
    attached = {a.spec.source.persistent_volume_name or a.metadata.name for a in attachments}
    return {volume for volume in attached if volume not in kept}
