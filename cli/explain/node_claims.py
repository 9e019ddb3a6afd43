"""How far a NodeClaim has come, what it waits for, and until when it is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.cluster.pricing import offering_key
from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition, is_true
from shared.api.nodeclaim import LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT
from shared.disruption.disruption_queue import queue_entry

if TYPE_CHECKING:
    from datetime import datetime

    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.nodeclaim import NodeClaim

_STEPS = (
    (nodeclaim.LAUNCHED, "has no instance yet", "EC2 has given none so far"),
    (nodeclaim.REGISTERED, "waits for its node", "the instance has not joined the cluster yet"),
    (nodeclaim.INITIALIZED, "waits for its node to be ready", "the node isn't ready, or startup taints are left"),
)
_TIMEOUTS = {nodeclaim.LAUNCHED: LAUNCH_TIMEOUT, nodeclaim.REGISTERED: REGISTRATION_TIMEOUT}
_TOLD = (
    nodeclaim.LAUNCHED, nodeclaim.REGISTERED, nodeclaim.INITIALIZED, nodeclaim.EMPTY, nodeclaim.DRIFTED,
    nodeclaim.DISRUPTION_REASON, nodeclaim.DRAINED, nodeclaim.VOLUMES_DETACHED, nodeclaim.INSTANCE_TERMINATING,
)  # fmt: skip


def explain(observed: ObservedCluster, name: str) -> Explanation:
    """How the claim stands, and why it isn't further.

    Raises:
        UsageError: there is no such claim.
    """
    claim = next((c for c in observed.snapshot.node_claims if c.name == name), None)
    if claim is None:
        there = ", ".join(sorted(c.name for c in observed.snapshot.node_claims)[:5]) or "none"
        raise UsageError(f'there is no NodeClaim "{name}" (there: {there})')
    state, reason, criterion = _standing(claim, observed.now)
    decisions = observed.history.decisions(claim.status.node_name) if claim.status.node_name else ()
    return Explanation(
        subject=f"NodeClaim {name}",
        state=state,
        reason=reason,
        criterion=criterion,
        sections=(
            Section(title="The claim", checks=_about(claim)),
            Section(title="How far it has come", checks=_conditions(claim, observed.now)),
        ),
    ).with_words(observed.history.events(claim.ref), decisions)


def _standing(claim: NodeClaim, now: datetime) -> tuple[str, str, str]:
    mark = queue_entry(claim)
    conditions = claim.status.conditions
    if claim.metadata.deletion_timestamp is not None:
        why = f"{mark.reason}: {mark.message}" if mark is not None else "it was deleted"
        left = ", ".join(claim.metadata.finalizers)
        drained = is_true(conditions, nodeclaim.DRAINED)
        waits = "its instance is being terminated" if drained else "its node is being drained"
        return "is leaving", f"{why}; {waits}" + (f" (finalizers: {left})" if left else ""), "leaving"
    for type_, state, otherwise in _STEPS:
        if is_true(conditions, type_):
            continue
        found = condition(conditions, type_)
        said = found.message if found is not None and found.message else otherwise
        since = _since(claim, type_)
        until = ""
        if type_ in _TIMEOUTS and since is not None:
            rest = since + _TIMEOUTS[type_] - now
            until = f"; it is given up in {terminal.age(rest)}" if rest.total_seconds() > 0 else "; its time is over"
        return state, said + until, type_
    if mark is not None:
        return "goes as soon as it is replaced", f"{mark.reason}: {mark.message}", "under way"
    node = claim.status.node_name
    return "is up", f"its node {node} is initialized; `tenon explain node {node}` says why it is kept", "up"


def _since(claim: NodeClaim, type_: str) -> datetime | None:
    if type_ == nodeclaim.REGISTERED:
        launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
        if launched is not None and launched.last_transition_time is not None:
            return launched.last_transition_time
    return claim.metadata.creation_timestamp


def _about(claim: NodeClaim) -> tuple[Check, ...]:
    labels = claim.metadata.labels
    asked = next((r for r in claim.spec.requirements if r.key == names.INSTANCE_TYPE), None)
    kind, zone, capacity = offering_key(labels)
    machine = f"{kind}, {capacity}, {zone}" if claim.status.provider_id else "none yet"
    return (
        Check(what="pool", ok=None, detail=labels.get(names.NODEPOOL, "none")),
        Check(
            what="asks for",
            ok=None,
            detail=f"one of {len(asked.values)} instance types" if asked is not None else "any type",
        ),
        Check(what="machine", ok=None, detail=machine),
        Check(what="instance", ok=None, detail=claim.status.provider_id.rpartition("/")[2] or "none yet"),
        Check(what="node", ok=None, detail=claim.status.node_name or "none yet"),
    )


def _conditions(claim: NodeClaim, now: datetime) -> tuple[Check, ...]:
    checks = []
    for type_ in _TOLD:
        found = condition(claim.status.conditions, type_)
        if found is None:
            continue
        since = f"for {terminal.age(now - found.last_transition_time)}" if found.last_transition_time else ""
        step = type_ in {s[0] for s in _STEPS}
        ok = found.status == "True" if step else None
        words = ", ".join(w for w in (found.reason if found.reason != type_ else "", found.message, since) if w)
        checks.append(Check(what=type_ if step or found.status == "True" else f"not {type_}", ok=ok, detail=words))
    return tuple(checks)
