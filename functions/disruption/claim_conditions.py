"""Writes the conditions Empty, Consolidatable and Drifted on NodeClaims, before anything is decided by them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.cluster.errors import ApiError
from shared.disruption import consolidatable, drift, emptiness
from shared.disruption.candidates import initialized_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.disruption.disruption_state import DisruptionState


def write_conditions(client: Client, state: DisruptionState, *, logger: Logger) -> DisruptionState:
    """Write the conditions that have changed; returns the state with the claims as written."""
    written: dict[str, NodeClaim] = {}
    for claim, change in _changes(state):
        current = written.get(claim.name, claim)
        if change(current) == current:
            continue
        try:
            written[claim.name] = writes.update_status(client, resources.NODE_CLAIMS, current, change)
        except ApiError as error:
            logger.warning("Couldn't write a condition", extra={"nodeclaim": claim.name, "why": str(error)})
    claims = tuple(written.get(c.name, c) for c in state.snapshot.node_claims)
    return with_fields(state, snapshot=with_fields(state.snapshot, node_claims=claims))


def _changes(state: DisruptionState) -> list[tuple[NodeClaim, Callable[[NodeClaim], NodeClaim]]]:
    drifted = {c.claim.name: drift.disruption_message(state, c) for c in drift.find_candidates(state)}
    return [
        *(
            (change.claim, partial(emptiness.with_empty_condition, is_empty=change.is_empty, now=state.now))
            for change in emptiness.empty_condition_changes(state)
        ),
        *(
            (claim, partial(consolidatable.with_consolidatable_condition, is_consolidatable=is_due, now=state.now))
            for claim, is_due in consolidatable.consolidatable_changes(state)
        ),
        *(
            (claim, partial(drift.with_drifted_condition, message=drifted.get(claim.name, ""), now=state.now))
            for claim, _ in initialized_nodes(state)
            if claim.metadata.labels.get(names.NODEPOOL) not in state.paused  # kept as they are
        ),
    ]
