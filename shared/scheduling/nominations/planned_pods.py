"""The pods that are planned for a NodeClaim: an annotation with their names, and the window in which it holds.

The annotation is written with the NodeClaim, under the lease. Its pods are nominated for the claim's node until a
nomination window after its initialization is over.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition, parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.snapshot import Snapshot

NOMINATION_WINDOW = timedelta(seconds=10)
"""How long pods stay nominated for a node after it is initialized: the longest that kube-scheduler backs off from a pod
(podMaxBackoffSeconds)."""
LONGEST_NOMINATION_WINDOW = timedelta(seconds=30)
"""The same while kube-scheduler binds pods: it clears a nomination when it tries the pod, so a pod that is still
nominated is behind others in its queue, which takes seconds per thousand pods."""
_BINDING = timedelta(seconds=3)
"""The age of the last binding up to which kube-scheduler counts as binding pods."""
_MAX_ANNOTATION_LENGTH = 200 * 1024
"""Characters of pod names on one NodeClaim; all annotations of an object may have 256 KiB."""


def planned_pods_annotation(pods: Iterable[str]) -> str:
    """The value of the annotation that names a NodeClaim's pods (namespace/name); pods beyond its limit are cut off."""
    text = ",".join(pods)
    return text if len(text) <= _MAX_ANNOTATION_LENGTH else text[: text.rindex(",", 0, _MAX_ANNOTATION_LENGTH)]


def planned_pods(claim: NodeClaim) -> tuple[str, ...]:
    """The pods (namespace/name) that are planned for the NodeClaim."""
    text = claim.metadata.annotations.get(names.PLANNED_PODS, "")
    return tuple(text.split(",")) if text else ()


def add_planned_pods(claim: NodeClaim, pods: Iterable[str], *, now: datetime) -> dict[str, str]:
    """The annotations of the NodeClaim with these pods planned for it too; empty if all of them are already."""
    before = planned_pods(claim)
    added = set(pods).difference(before)
    if not added:
        return {}
    return {
        names.PLANNED_PODS: planned_pods_annotation([*before, *sorted(added)]),
        names.PLANNED_AT: now.isoformat(),
    }


def is_planned(pod: Pod, claim: NodeClaim) -> bool:
    """Whether a pod whose name is planned for the NodeClaim was meant, not a later one of the same name."""
    created, planned = pod.metadata.creation_timestamp, planned_at(claim)
    return created is None or planned is None or created <= planned


def planned_at(claim: NodeClaim) -> datetime | None:
    """When pods were last planned for the NodeClaim; of several that a pod is planned for, the latest counts."""
    created = claim.metadata.creation_timestamp
    added = parse_timestamp(claim.metadata.annotations.get(names.PLANNED_AT, ""))
    return max(created, added) if created is not None and added is not None else created


def is_nominated_in_status(claim: NodeClaim) -> bool:
    """Whether the lifecycle function writes the nominations of the NodeClaim's planned pods to their status."""
    return any(taint.key == names.PODS_NOT_NOMINATED_TAINT for taint in claim.spec.startup_taints)


def closed_windows(snapshot: Snapshot) -> frozenset[str]:
    """The names of the NodeClaims for whose nodes pods are nominated no more."""
    closed = set()
    window = None
    for claim in snapshot.node_claims:
        initialized = initialized_for(claim, snapshot.taken_at)
        if claim.metadata.deletion_timestamp is not None:
            closed.add(claim.name)
        elif initialized is not None and initialized >= NOMINATION_WINDOW:
            if initialized < LONGEST_NOMINATION_WINDOW and window is None:
                window = LONGEST_NOMINATION_WINDOW if _is_binding(snapshot) else NOMINATION_WINDOW
            if window is None or initialized >= window:
                closed.add(claim.name)
    return frozenset(closed)


def _is_binding(snapshot: Snapshot) -> bool:
    """Whether a pod was bound just now. Times of conditions are whole seconds."""
    since = snapshot.taken_at - _BINDING
    scheduled = (condition(pod.status.conditions, "PodScheduled") for pod in snapshot.pods if pod.spec.node_name)
    return any(
        c is not None and c.last_transition_time is not None and c.last_transition_time > since for c in scheduled
    )


def tried_version(pod: Pod) -> str:
    """The resourceVersion that kube-scheduler's last try wrote: a nomination writes another one."""
    recorded = pod.metadata.annotations.get(names.TRIED_VERSION, "") if pod.status.nominated_node_name else ""
    return recorded or pod.metadata.resource_version


def expired_nominations(
    nominated: Iterable[Pod], node_claims: Iterable[NodeClaim], closed: Collection[str]
) -> frozenset[str]:
    """Of pods that are nominated in their status, those (namespace/name) whose nomination by Tenon has ended.

    ``closed`` are the :func:`closed_windows`. Pods of one group may be nominated for each other's nodes, so a planned
    pod counts on the nodes of all NodeClaims.
    """
    claims = [claim for claim in node_claims if is_nominated_in_status(claim)]
    over = {c.status.node_name for c in claims if c.status.node_name and c.name in closed}
    candidates = {pod.key for pod in nominated if pod.status.nominated_node_name in over}
    if not candidates:
        return frozenset()
    return frozenset(candidates.intersection(key for claim in claims for key in planned_pods(claim)))


def initialized_for(claim: NodeClaim, now: datetime) -> timedelta | None:
    """How long the NodeClaim's node has been initialized; None if it isn't."""
    initialized = condition(claim.status.conditions, nodeclaim.INITIALIZED)
    if initialized is None or initialized.status != "True":
        return None
    since = initialized.last_transition_time
    return now - since if since is not None else timedelta.max
