"""Terminate-first: a node goes before its replacement comes, because none can be staged next to it.

So it is for a node in a full capacity reservation, and for one of a static NodePool at its node limit. The rule applies
after a replacement was simulated and failed, and only in NodePools with the annotation. The simulation is repeated
without the node, which frees its slot: if a pod would still lack a node, the node stays. Any method asks for
:func:`without_replacement`; budgets and blockers are checked before. Rules: Karpenter's designs/terminate-first
(docs/facts/karpenter-1.15.md, terminate-first-static and terminate-first-reserved).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.quantity import NODES, QuantityError, parse_resources
from shared.base.plurals import plural
from shared.base.struct import with_fields
from shared.disruption.command import Blocker, Command
from shared.disruption.simulated_scheduling import simulate_scheduling
from shared.instance_types.instance_type import RESERVATION_ID
from shared.scheduling.static_pools import plan_nodes

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool
    from shared.disruption.candidates import Candidate
    from shared.disruption.command import BlockedCandidate
    from shared.disruption.disruption_state import DisruptionState
    from shared.instance_types.instance_type import InstanceType, Offering
    from shared.scheduling.decision import PlannedNodeClaim

TERMINATE_FIRST = "tenon.sh/terminate-first"
"""Annotation on a NodePool: "true" lets its nodes go before their replacements come, where none can be staged."""
NO_RESERVED_CAPACITY = "no-reserved-capacity"
STATIC_AT_LIMIT = "static-at-limit"


def without_replacement(
    state: DisruptionState, candidate: Candidate, blocker: Blocker, *, reason: str, message: str
) -> Command | BlockedCandidate:
    """What follows where no replacement of the candidate can be staged: the command that only removes it, or why not.

    ``blocker`` says why its replacement alone failed.
    """
    cause, obstacle = _cause(state, candidate)
    if not cause or not is_allowed(candidate):
        return candidate.blocked(explained(state, candidate, blocker), reason=reason)
    still_missing = _still_missing(state, candidate)
    if still_missing:
        text = f"{blocker.message}; nor would it have a replacement if it went first: {still_missing}"
        return candidate.blocked(with_fields(blocker, message=text), reason=reason)
    removal = candidate.removal(reason=reason, message=f"{message}; it goes before its replacement comes: {obstacle}")
    return Command(removals=(removal,), terminate_first=cause)


def explained(state: DisruptionState, candidate: Candidate, blocker: Blocker) -> Blocker:
    """The blocker with the annotation that would let the candidate go first; unchanged where that wouldn't help."""
    cause, obstacle = _cause(state, candidate)
    if not cause or is_allowed(candidate):
        return blocker
    text = (
        f'{blocker.message}; {obstacle}, so no replacement can be staged: annotation {TERMINATE_FIRST}: "true" on '
        f"NodePool {candidate.pool.name} lets the node go before its replacement comes"
    )
    return with_fields(blocker, message=text)


def is_allowed(candidate: Candidate) -> bool:
    """Whether the candidate's NodePool has the annotation."""
    return candidate.pool.metadata.annotations.get(TERMINATE_FIRST) == "true"


def can_help(state: DisruptionState, candidate: Candidate) -> bool:
    """Whether the candidate may go first and holds what its replacement lacks; cheap, unlike a simulation."""
    return is_allowed(candidate) and bool(_cause(state, candidate)[0])


def _cause(state: DisruptionState, candidate: Candidate) -> tuple[str, str]:
    """What the candidate holds that its replacement lacks: Karpenter's word for it, and a sentence; empty: nothing."""
    pool, reservation = candidate.pool, _reservation(candidate)
    if pool.spec.replicas is not None and (limit := node_limit(pool)) <= _node_count(state, pool.name):
        return STATIC_AT_LIMIT, f"static NodePool {pool.name} is at its limit of {plural(limit, 'node')}"
    types = state.instance_types.get(pool.name, ())
    if reservation and any(_is_full(o, reservation) for t in types for o in t.offerings):
        return NO_RESERVED_CAPACITY, f"capacity reservation {reservation} is full"
    return "", ""


def _reservation(candidate: Candidate) -> str:
    """The id of the capacity reservation that the candidate is in; empty without one."""
    labels = candidate.claim.metadata.labels
    return labels.get(RESERVATION_ID, "") if labels.get(names.CAPACITY_TYPE) == names.RESERVED else ""


def node_limit(pool: NodePool) -> int:
    """How many nodes the NodePool may have by ``limits.nodes``."""
    try:
        return parse_resources(pool.spec.limits).get(NODES, sys.maxsize)
    except QuantityError:
        return sys.maxsize


def _node_count(state: DisruptionState, pool: str) -> int:
    """The NodePool's nodes, those that are being launched or deleted too: they count against its limit."""
    return sum(c.metadata.labels.get(names.NODEPOOL) == pool for c in state.snapshot.node_claims)


def _still_missing(state: DisruptionState, candidate: Candidate) -> str:
    """Why the candidate's pods, or its static NodePool, would lack a node once it is gone; empty when they wouldn't."""
    freed = _without(state, candidate)
    if candidate.pool.spec.replicas is not None:
        claims, why_not = plan_nodes(candidate.pool, 1, freed.snapshot, freed.instance_types, freed.not_ready)
        return "" if claims else why_not or "no node can be planned"
    simulation = simulate_scheduling(freed, [candidate])
    if not simulation.all_scheduled:
        blocker = simulation.blocker(candidate)
        return blocker.message if blocker is not None else "its pods would wait for a node that isn't initialized"
    slots = sum(_takes_slot_of(candidate, claim) for claim in simulation.node_claims)
    return (
        "" if slots <= 1 else f"its pods need {plural(slots, 'node')} in capacity reservation {_reservation(candidate)}"
    )


def _takes_slot_of(candidate: Candidate, claim: PlannedNodeClaim) -> bool:
    """Whether the planned node is for the candidate's reservation: reserved offerings are always the cheapest."""
    labels, cheapest = candidate.claim.metadata.labels, claim.cheapest
    slot = labels.get(names.INSTANCE_TYPE), labels.get(names.ZONE), names.RESERVED
    return bool(_reservation(candidate)) and slot == (cheapest.instance_type, cheapest.zone, cheapest.capacity_type)


def _without(state: DisruptionState, candidate: Candidate) -> DisruptionState:
    """The state once the candidate is gone: it counts against no limit, and its reservation has a free instance."""
    snapshot, reservation = state.snapshot, _reservation(candidate)
    return with_fields(
        state,
        snapshot=with_fields(
            snapshot,
            nodes=tuple(n for n in snapshot.nodes if n.metadata.name != candidate.name),
            node_claims=tuple(c for c in snapshot.node_claims if c.name != candidate.claim.name),
        ),
        instance_types={
            pool: tuple(_with_free_slot(t, reservation) for t in types) for pool, types in state.instance_types.items()
        }
        if reservation
        else state.instance_types,
    )


def _with_free_slot(instance_type: InstanceType, reservation: str) -> InstanceType:
    if not any(_is_full(o, reservation) for o in instance_type.offerings):
        return instance_type
    offerings = (
        with_fields(o, available=True, full=False) if _is_full(o, reservation) else o for o in instance_type.offerings
    )
    return with_fields(instance_type, offerings=tuple(offerings))


def _is_full(offering: Offering, reservation: str) -> bool:
    return offering.full and offering.labels.get(RESERVATION_ID) == reservation
