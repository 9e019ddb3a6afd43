"""The condition ``Consolidatable``: that consolidateAfter has passed since the last pod event on the node.

As Karpenter's (nodeclaim/disruption/consolidation.go), for those who watch it; what is disrupted is decided from pods.
A pod's arrival is seen on the pod, its leaving while it terminates or by the condition ``Empty``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import condition, with_condition
from shared.api.pods import is_daemon
from shared.base.struct import with_fields
from shared.disruption.candidates import dynamic_candidates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState


def consolidatable_changes(state: DisruptionState) -> Iterator[tuple[NodeClaim, bool]]:
    """The claims of dynamic pools whose condition has to be set or removed."""
    for candidate in dynamic_candidates(state):
        due = _consolidatable_at(candidate, state.pods.get(candidate.name, ()))
        is_due = due is not None and due <= state.now
        current = condition(candidate.claim.status.conditions, nodeclaim.CONSOLIDATABLE)
        if is_due != (current is not None and current.status == "True"):
            yield candidate.claim, is_due


def with_consolidatable_condition(claim: NodeClaim, *, is_consolidatable: bool, now: datetime) -> NodeClaim:
    """The claim with the condition, or without it: it is never false."""
    conditions = claim.status.conditions
    if is_consolidatable:
        conditions = with_condition(
            conditions,
            nodeclaim.CONSOLIDATABLE,
            status=True,
            reason=nodeclaim.CONSOLIDATABLE,
            now=now,
            generation=claim.metadata.generation,
        )
    else:
        conditions = [c for c in conditions if c.type != nodeclaim.CONSOLIDATABLE]
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions))


def _consolidatable_at(candidate: Candidate, pods: Iterable[Pod]) -> datetime | None:
    """When consolidateAfter has passed since the last pod event, or since the node was initialized; None: never."""
    try:
        delay = parse_duration(candidate.pool.spec.disruption.consolidate_after)
    except DurationError:
        return None
    initialized = condition(candidate.claim.status.conditions, nodeclaim.INITIALIZED)
    if delay is None or initialized is None or initialized.status != "True":
        return None
    events = (time for pod in pods if not is_daemon(pod) for time in _event_times(pod))
    times = (initialized.last_transition_time, candidate.claim.status.last_pod_event_time, *events)
    last = max((time for time in times if time is not None), default=None)
    return None if last is None else last + delay


def _event_times(pod: Pod) -> Iterator[datetime | None]:
    """When the pod came to its node, and when it began to leave."""
    yield pod.status.start_time or pod.metadata.creation_timestamp
    if pod.metadata.deletion_timestamp is not None:
        # The deletion's time is that at which the grace period ends.
        yield pod.metadata.deletion_timestamp - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
