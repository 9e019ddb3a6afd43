"""Drift: nodes that no longer match their NodePool or node class. They are replaced, within budgets.

Drift is found by comparing hashes of the template and of the class, where both have the same hash version (hashes of
other versions prove nothing; lifecycle stamps those objects again), and by what requirements and selectors select now.
Rules: Karpenter's drift (reference: docs/facts/karpenter.md, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.hash import is_node_pool_hash, node_pool_hash_version
from shared.api.meta import is_true, with_condition
from shared.base.struct import with_fields
from shared.disruption import graceful_disruption
from shared.disruption.candidates import all_candidates, dynamic_candidates
from shared.disruption.command import DRIFTED, MethodResult
from shared.scheduling.rules.requirements import RequirementError, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.command import Command
    from shared.disruption.disruption_state import DisruptionState


REASON = DRIFTED
NEEDS_PRICES = True


def disruption_message(state: DisruptionState, candidate: Candidate) -> str:
    """How the node has drifted; empty when it hasn't."""
    message = _template_drift(candidate.claim, candidate.pool) or _requirement_drift(candidate)
    node_class = state.node_classes.get(candidate.pool.name)
    if message or node_class is None:
        return message
    network = state.instance_networks.get(candidate.claim.status.provider_id)
    return state.is_drifted(candidate.claim, node_class, network)


def find_candidates(state: DisruptionState) -> tuple[Candidate, ...]:
    """The nodes that have drifted, sorted by claim, those of static pools too."""
    return tuple(c for c in all_candidates(state) if disruption_message(state, c))


def compute(state: DisruptionState, budgets: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """One command for the first that budgets allow (static pools: :mod:`shared.disruption.static_disruption`)."""
    drifted = [(c, message) for c in dynamic_candidates(state) if (message := disruption_message(state, c))]
    return graceful_disruption.compute(state, budgets, drifted, reason=DRIFTED)


def validate(command: Command, state: DisruptionState, _budgets: BudgetTracker) -> str:
    """Why the command can't be executed; empty when it can."""
    return graceful_disruption.validate(command, state)


def with_drifted_condition(claim: NodeClaim, message: str, *, now: datetime) -> NodeClaim:
    """The claim with its ``Drifted`` condition set by ``message`` (empty: not drifted)."""
    if not message and not is_true(claim.status.conditions, nodeclaim.DRIFTED):
        return claim
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.DRIFTED,
        status=bool(message),
        reason="Drifted" if message else "NotDrifted",
        message=message,
        now=now,
        generation=claim.metadata.generation,
    )
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions))


def _template_drift(claim: NodeClaim, pool: NodePool) -> str:
    annotations = claim.metadata.annotations
    if annotations.get(names.NODEPOOL_HASH_VERSION) != node_pool_hash_version(pool):
        return ""
    if is_node_pool_hash(annotations.get(names.NODEPOOL_HASH, ""), pool):
        return ""
    return f"the template of NodePool {pool.name} has changed"


def _requirement_drift(candidate: Candidate) -> str:
    """The label that the NodePool doesn't allow; none where the NodePool is as it was when the NodeClaim was made.

    Something else has changed that node then, such as an admission webhook, which would change its replacement too.
    """
    generation = candidate.pool.metadata.generation
    if generation and candidate.claim.metadata.annotations.get(names.NODEPOOL_GENERATION) == str(generation):
        return ""
    labels = {**candidate.node.metadata.labels, **candidate.claim.metadata.labels}
    try:
        requirements = parse(candidate.pool.spec.template.spec.requirements)
    except RequirementError:
        return ""
    for key, allowed in sorted(requirements.items()):
        value = labels.get(key)
        if not allowed.has(value):
            actual = f"is {value}" if value is not None else "is missing"
            return f"label {key} {actual}, which NodePool {candidate.pool.name} no longer allows"
    return ""
