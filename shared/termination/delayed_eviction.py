"""Delayed eviction: pods stay on a node that still works until their replacement node is registered.

While the replacement of a NodeClaim launches, an annotation on the deleted NodeClaim (:data:`ANNOTATION`) lists which
of its pods wait for which replacement. The pods are evicted when that NodeClaim's node registers: the pod terminates in
the seconds until the node is Ready, so its downtime is a restart instead of an instance's launch. A pod is evicted
earlier if the deadline leaves just enough time for its terminationGracePeriodSeconds and its budget.

The annotation only delays evictions, so losing it is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import decode_annotation

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim

ANNOTATION = "tenon.sh/delayed-evictions"
"""On a NodeClaim that is being deleted: by name of the replacement NodeClaim, the pods that wait for its node."""
NO_REPLACEMENT = ""
"""In place of a NodeClaim's name: no replacement could be planned for these pods."""
BUDGET_MARGIN = timedelta(seconds=15)
"""Time before a pod's termination must begin, for budgets that allow one eviction after another."""
MAX_DELAY = timedelta(minutes=5)
"""How long evictions are delayed if there is no deadline."""

DelayedPods = Mapping[str, frozenset[str]]
"""By name of the replacement NodeClaim, the pods (namespace/name) that wait for it."""


def delayed_pods(claim: NodeClaim) -> DelayedPods:
    """The pods of the NodeClaim whose eviction is delayed; an invalid annotation delays none."""
    try:
        return decode_annotation(claim.metadata.annotations.get(ANNOTATION, "{}"), dict[str, frozenset[str]])
    except msgspec.MsgspecError:
        return {}


def encode(delayed: DelayedPods) -> str | None:
    """The annotation's value; None, which removes it, if no pod is delayed."""
    non_empty = {name: sorted(pods) for name, pods in sorted(delayed.items()) if pods}
    return msgspec.json.encode(non_empty).decode() if non_empty else None


def delayed_by_node(
    pods: Iterable[Pod], nodes: Container[str], *, arriving: Mapping[str, str], unplaced: Container[str]
) -> dict[str, DelayedPods]:
    """By node, the pods whose eviction is delayed after a scheduling decision for them.

    ``arriving`` maps pods to the NodeClaims they were scheduled to; ``unplaced`` pods were scheduled to none. Pods that
    were scheduled to existing nodes are not delayed. Every node of ``nodes`` with pods is in the result.
    """
    pods_by_node: dict[str, dict[str, set[str]]] = {}
    for pod in pods:
        node = pod.spec.node_name
        if node not in nodes:
            continue
        pods_by_claim = pods_by_node.setdefault(node, {})
        claim = arriving.get(pod.key, NO_REPLACEMENT if pod.key in unplaced else None)
        if claim is not None:
            pods_by_claim.setdefault(claim, set()).add(pod.key)
    return {node: {claim: frozenset(keys) for claim, keys in by.items()} for node, by in pods_by_node.items()}


def still_delayed(claim: NodeClaim, arriving: Iterable[str]) -> DelayedPods:
    """The delayed pods if only the NodeClaims ``arriving`` still wait for a node; others have one, or never will."""
    awaited = {*arriving, NO_REPLACEMENT}
    return {name: pods for name, pods in delayed_pods(claim).items() if name in awaited}


def delayed_until(claim: NodeClaim, deadline: datetime | None, grace: timedelta, *, now: datetime) -> datetime:
    """Until when the eviction of a pod with that grace period is delayed at most.

    ``deadline`` is the end of the NodeClaim's terminationGracePeriod, if it has one.
    """
    if deadline is not None:
        return deadline - grace - BUDGET_MARGIN
    return (claim.metadata.deletion_timestamp or now) + MAX_DELAY
