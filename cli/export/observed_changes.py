"""Counters of what changed between two reads of the cluster: NodeClaims, nodes, disruption, and startups of pods.

The functions count the same in CloudWatch, but only with full observability, at a price for each label. Counting here
is free and has Karpenter's labels. What comes and goes between two reads isn't counted, nor what happens while the
export doesn't run; as any counter of Prometheus, these start at zero with the process.
"""

from __future__ import annotations

import math
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING

from cli.export import families
from cli.export.exposition import Sample, sample
from shared.api import labels as names
from shared.api.duration import duration_or_none
from shared.api.labels import offering_key
from shared.api.meta import condition
from shared.api.pods import is_reschedulable, is_terminal
from shared.disruption.disruption_queue import queue_entry
from shared.scheduling.state.state_nodes import pods_by_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from cli.export.families import Family
    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.snapshot import Snapshot

_WINDOW = timedelta(minutes=10)
"""Startups of pods that the quantiles are of."""
_QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
PROVISIONED = "provisioned"
"""The reason of NodeClaims for pending pods, or of static NodePools."""
DELETE, REPLACE, TERMINATE_FIRST = "delete", "replace", "terminate-first"
_REASONS = ("unhealthy", "empty", "drifted", "underutilized", "expired")
_CONSOLIDATION_REASONS = ("empty", "underutilized")
_POLICIES = {
    "WhenEmpty": "when_empty",
    "WhenEmptyOrUnderutilized": "when_empty_or_underutilized",
    "Balanced": "balanced",
}

Labels = tuple[tuple[str, str], ...]


class ObservedChanges:
    """Counts from one snapshot to the next."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._claims: dict[str, NodeClaim] | None = None
        self._nodes: dict[str, str] = {}
        self._disrupted: set[tuple[str, str]] = set()
        """The uids of claims in the disruption queue, with the id of the command, that were counted."""
        self._seen_pods: set[str] = set()
        self._waiting_pods: set[str] = set()
        self._startups: deque[tuple[datetime, float]] = deque()
        self._startup_count = 0
        self._startup_sum = 0.0

    def observe(self, snapshot: Snapshot) -> None:
        """Count what has changed since the last snapshot; the first one is only remembered."""
        is_first = self._claims is None
        for pool in snapshot.node_pools:
            self._begin(pool.name)
        self._observe_claims(snapshot, is_first=is_first)
        self._observe_nodes(snapshot.nodes, is_first=is_first)
        self._observe_pods(snapshot.pods, is_first=is_first)
        oldest = snapshot.taken_at - _WINDOW
        while self._startups and self._startups[0][0] < oldest:
            self._startups.popleft()

    def samples(self) -> Iterator[Sample]:
        """The counters now."""
        by_name = {family.name: family for family in families.ALL}
        for (name, labels), count in sorted(self._counts.items()):
            yield sample(by_name[name], count, **dict(labels))
        yield sample(families.PODS_STARTUP, self._startup_count, suffix="_count")
        yield sample(families.PODS_STARTUP, self._startup_sum, suffix="_sum")
        seconds = sorted(duration for _, duration in self._startups)
        for quantile in _QUANTILES if seconds else ():
            rank = max(1, math.ceil(quantile * len(seconds)))
            yield sample(families.PODS_STARTUP, seconds[rank - 1], quantile=f"{quantile:g}")

    def _begin(self, pool: str) -> None:
        """Counters of a NodePool begin at zero, so that their first increase is seen."""
        self._add(families.CLAIMS_CREATED, 0, nodepool=pool, reason=PROVISIONED)
        self._add(families.NODES_CREATED, 0, nodepool=pool)
        self._add(families.NODES_TERMINATED, 0, nodepool=pool)
        for reason in _REASONS:
            for decision in (DELETE, REPLACE):
                self._add(families.DECISIONS, 0, decision=decision, reason=reason)

    def _add(self, family: Family, amount: float = 1, **labels: str) -> None:
        key = (family.name, tuple(sorted(labels.items())))
        self._counts[key] = self._counts.get(key, 0) + amount

    def _observe_claims(self, snapshot: Snapshot, *, is_first: bool) -> None:
        claims = {c.metadata.uid: c for c in snapshot.node_claims}
        before = self._claims or {}
        for uid, claim in claims.items():
            labels = claim.metadata.labels
            if not is_first and uid not in before:
                self._add(
                    families.CLAIMS_CREATED,
                    nodepool=labels.get(names.NODEPOOL, ""),
                    reason=_creation_reason(claim, claims),
                )
            self._observe_disruption(claim, snapshot, is_first=is_first)
        for uid in before.keys() - claims.keys():
            labels = before[uid].metadata.labels
            _, zone, capacity_type = offering_key(labels)
            self._add(
                families.CLAIMS_TERMINATED,
                nodepool=labels.get(names.NODEPOOL, ""),
                capacity_type=capacity_type,
                zone=zone,
            )
        self._disrupted &= {(uid, entry.id) for uid, c in claims.items() if (entry := queue_entry(c)) is not None}
        self._claims = claims

    def _observe_disruption(self, claim: NodeClaim, snapshot: Snapshot, *, is_first: bool) -> None:
        """Count a claim in the disruption queue once its command is executed: it has replacements, or is deleted."""
        entry = queue_entry(claim)
        uid = claim.metadata.uid
        if entry is None or not (entry.replacements or claim.metadata.deletion_timestamp is not None):
            return
        if (uid, entry.id) in self._disrupted:
            return
        amount, reason = 0 if is_first else 1, entry.reason.lower()
        if all(decision != entry.id for _, decision in self._disrupted):
            without = TERMINATE_FIRST if entry.terminate_first else DELETE
            self._add(families.DECISIONS, amount, decision=REPLACE if entry.replacements else without, reason=reason)
        self._disrupted.add((uid, entry.id))
        labels = {
            "nodepool": claim.metadata.labels.get(names.NODEPOOL, ""),
            "capacity_type": offering_key(claim.metadata.labels)[2],
            "reason": reason,
            "consolidation_policy": _consolidation_policy(reason, claim, snapshot),
            "termination_mode": _termination_mode(claim),
        }
        self._add(families.CLAIMS_DISRUPTED, amount, **labels)
        if entry.terminate_first:
            self._add(
                families.TERMINATE_FIRST_DECISIONS,
                amount,
                nodepool=labels["nodepool"],
                reason=reason,
                terminate_first_reason=entry.terminate_first,
            )
        self._add(families.PODS_DISRUPTED, amount * _pods_to_move(claim, snapshot), **labels)

    def _observe_nodes(self, current: Iterable[Node], *, is_first: bool) -> None:
        nodes = {n.metadata.uid: pool for n in current if (pool := n.metadata.labels.get(names.NODEPOOL))}
        if not is_first:
            for uid in nodes.keys() - self._nodes.keys():
                self._add(families.NODES_CREATED, nodepool=nodes[uid])
            for uid in self._nodes.keys() - nodes.keys():
                self._add(families.NODES_TERMINATED, nodepool=self._nodes[uid])
        self._nodes = nodes

    def _observe_pods(self, current: Iterable[Pod], *, is_first: bool) -> None:
        """Count the startup of each pod that was not ready when it was last seen, or that is new."""
        seen, waiting = set(), set()
        for pod in current:
            uid = pod.metadata.uid
            seen.add(uid)
            ready = condition(pod.status.conditions, "Ready")
            if ready is None or ready.status != "True":
                if uid in self._waiting_pods or uid not in self._seen_pods:
                    waiting.add(uid)
                continue
            is_new = not is_first and uid not in self._seen_pods
            created = pod.metadata.creation_timestamp
            if is_terminal(pod) or not (is_new or uid in self._waiting_pods) or created is None:
                continue
            since = ready.last_transition_time
            if since is not None:
                self._count_startup(since, max(0.0, (since - created).total_seconds()))
        self._seen_pods, self._waiting_pods = seen, waiting

    def _count_startup(self, at: datetime, seconds: float) -> None:
        self._startups.append((at, seconds))
        self._startup_count += 1
        self._startup_sum += seconds


def _consolidation_policy(reason: str, claim: NodeClaim, snapshot: Snapshot) -> str:
    """The NodePool's policy in Karpenter's form, such as "when_empty"; "" where the reason isn't consolidation."""
    if reason not in _CONSOLIDATION_REASONS:
        return ""
    pool = next((p for p in snapshot.node_pools if p.name == claim.metadata.labels.get(names.NODEPOOL)), None)
    return _POLICIES.get(pool.spec.disruption.consolidation_policy, "") if pool is not None else ""


def _termination_mode(claim: NodeClaim) -> str:
    """How long the drain may take: graceful without a bound, eventual with one, forceful with none at all.

    A period that can't be read counts as none.
    """
    own, bound = claim.spec.termination_grace_period, claim.metadata.annotations.get(names.TERMINATION_GRACE_PERIOD)
    periods = [period for text in (own, bound) if (period := duration_or_none(text)) is not None]
    if not periods:
        return "graceful"
    return "eventual" if min(periods) else "forceful"


def _pods_to_move(claim: NodeClaim, snapshot: Snapshot) -> int:
    node = claim.status.node_name
    return sum(is_reschedulable(pod) for pod in pods_by_node(snapshot).get(node, ())) if node else 0


def _creation_reason(claim: NodeClaim, claims: dict[str, NodeClaim]) -> str:
    """The reason of the disruption command that the claim is a replacement of, or that it is for pods."""
    if names.REPLACES not in claim.metadata.annotations:
        return PROVISIONED
    entries = (queue_entry(c) for c in claims.values())
    decision = claim.metadata.annotations[names.REPLACES]
    return next((entry.reason.lower() for entry in entries if entry is not None and entry.id == decision), PROVISIONED)
