"""How far a NodeClaim is in its lifecycle, what it waits for, and when it times out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section
from cli.explain.launch_choice import launch_choice
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.labels import offering_key
from shared.api.meta import condition, is_true
from shared.api.nodeclaim import LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT
from shared.api.standby import STARTING, STOPPED, WARMING, standby_state
from shared.base.plurals import plural
from shared.disruption.disruption_queue import queue_entry

if TYPE_CHECKING:
    from datetime import datetime

    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim

_STEPS = (
    (nodeclaim.LAUNCHED, "is not launched", "EC2 has not launched an instance yet"),
    (nodeclaim.REGISTERED, "is not registered", "the node has not joined the cluster yet"),
    (nodeclaim.INITIALIZED, "is not initialized", "the node is not ready, or has startup taints"),
)
_MAX_SIMILAR = 5
_TIMEOUTS = {nodeclaim.LAUNCHED: LAUNCH_TIMEOUT, nodeclaim.REGISTERED: REGISTRATION_TIMEOUT}
_SHOWN_CONDITIONS = (
    nodeclaim.LAUNCHED, nodeclaim.REGISTERED, nodeclaim.INITIALIZED, nodeclaim.EMPTY, nodeclaim.DRIFTED,
    nodeclaim.DISRUPTION_REASON, nodeclaim.REBOOTING, nodeclaim.DRAINED, nodeclaim.VOLUMES_DETACHED,
    nodeclaim.INSTANCE_TERMINATING,
)  # fmt: skip


STANDBY_REASONS = {
    WARMING: "its NodePool asks for standby nodes; its instance is stopped when its DaemonSets' pods are ready",
    STOPPED: "its instance is stopped, and is started when pods need a node; until then it costs its volumes only",
    STARTING: "pods need it, so its instance is being started",
}


def explain(observed: ObservedCluster, name: str) -> Explanation:
    """The NodeClaim's state, and what it waits for.

    Raises:
        UsageError: the NodeClaim doesn't exist.
    """
    claim = next((c for c in observed.snapshot.node_claims if c.name == name), None)
    if claim is None:
        claim_names = ", ".join(sorted(c.name for c in observed.snapshot.node_claims)[:_MAX_SIMILAR]) or "none"
        raise UsageError(f'there is no NodeClaim "{name}" (there: {claim_names})')
    state, reason, criterion = _state(claim, observed.now)
    decisions = observed.history.decisions(claim.status.node_name) if claim.status.node_name else ()
    return Explanation(
        subject=f"NodeClaim {name}",
        state=state,
        reason=reason,
        criterion=criterion,
        sections=(
            Section(title="NodeClaim", checks=_about(claim)),
            *launch_choice(claim, observed.offerings.resolve_pools(observed.snapshot)),
            Section(title="Conditions", checks=_conditions(claim, observed.now)),
        ),
    ).with_history(observed.history.events(claim.ref), decisions)


def _state(claim: NodeClaim, now: datetime) -> tuple[str, str, str]:
    """State, reason and criterion."""
    entry = queue_entry(claim)
    disruption = f"{entry.reason}: {entry.message}" if entry is not None else ""
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted", _deletion(claim, disruption or "it was deleted"), "leaving"
    if standby_state(claim) in {STOPPED, STARTING}:
        return "is kept on standby", STANDBY_REASONS[standby_state(claim)], "standby"
    for type_, state, default_reason in _STEPS:
        if not is_true(claim.status.conditions, type_):
            return state, _step_reason(claim, type_, default_reason, now), type_
    if entry is not None:
        return "waits for its replacement", disruption, "under way"
    node = claim.status.node_name
    return "is initialized", f"its node is {node}; `tenon explain node {node}` says why it is kept", "up"


def _deletion(claim: NodeClaim, reason: str) -> str:
    drained = is_true(claim.status.conditions, nodeclaim.DRAINED)
    step = "its instance is being terminated" if drained else "its node is being drained"
    finalizers = ", ".join(claim.metadata.finalizers)
    return f"{reason}; {step}" + (f" (finalizers: {finalizers})" if finalizers else "")


def _step_reason(claim: NodeClaim, type_: str, default_reason: str, now: datetime) -> str:
    """The condition's message, and when the step times out."""
    current = condition(claim.status.conditions, type_)
    reason = current.message if current is not None and current.message else default_reason
    started = _step_start(claim, type_)
    if type_ not in _TIMEOUTS or started is None:
        return reason
    rest = started + _TIMEOUTS[type_] - now
    return f"{reason}; it times out in {terminal.age(rest)}" if rest.total_seconds() > 0 else f"{reason}; it timed out"


def _step_start(claim: NodeClaim, type_: str) -> datetime | None:
    if type_ == nodeclaim.REGISTERED:
        launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
        if launched is not None and launched.last_transition_time is not None:
            return launched.last_transition_time
    return claim.metadata.creation_timestamp


def _about(claim: NodeClaim) -> tuple[Check, ...]:
    labels = claim.metadata.labels
    requirement = next((r for r in claim.spec.requirements if r.key == names.INSTANCE_TYPE), None)
    instance_type, zone, capacity_type = offering_key(labels)
    launched = bool(claim.status.provider_id)
    details = {
        "pool": labels.get(names.NODEPOOL, "none"),
        "requirement": f"one of {plural(len(requirement.values), 'instance type')}"
        if requirement is not None
        else "any type",
        "offering": f"{instance_type}, {capacity_type}, {zone}" if launched else "none yet",
        "instance": claim.status.provider_id.rpartition("/")[2] or "none yet",
        "node": claim.status.node_name or "none yet",
    }
    return tuple(Check(name=name, ok=None, detail=detail) for name, detail in details.items())


def _conditions(claim: NodeClaim, now: datetime) -> tuple[Check, ...]:
    shown = [c for type_ in _SHOWN_CONDITIONS if (c := condition(claim.status.conditions, type_)) is not None]
    return tuple(_condition(c, now) for c in shown)


def _condition(current: Condition, now: datetime) -> Check:
    is_step = current.type in {step[0] for step in _STEPS}
    is_true_now = current.status == "True"
    since = f"for {terminal.age(now - current.last_transition_time)}" if current.last_transition_time else ""
    reason = current.reason if current.reason != current.type else ""
    return Check(
        name=current.type if is_step or is_true_now else f"not {current.type}",
        ok=is_true_now if is_step else None,
        detail=", ".join(part for part in (reason, current.message, since) if part),
    )
