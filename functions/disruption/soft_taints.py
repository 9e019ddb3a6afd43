"""Writes the soft taints of nodes that new pods should avoid (:mod:`shared.disruption.soft_taints`).

A taint that can't be written is left to the next sweep: it is a preference, and nothing depends on it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.cluster import resources, writes
from shared.cluster.errors import ApiError
from shared.disruption import soft_taints

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from shared.cluster.client import Client
    from shared.disruption.disruption_state import DisruptionState

MAX_CHANGES = 50
"""Nodes that one sweep changes at most; the others follow in the next ones."""


def write_soft_taints(client: Client, state: DisruptionState, *, logger: Logger) -> None:
    """Add and remove soft taints."""
    changed: dict[str, list[str]] = {"filled_first": [], "filled_next": [], "filled_last": []}
    for node, count in soft_taints.changed_nodes(state)[:MAX_CHANGES]:
        try:
            writes.update(client, resources.NODES, node, partial(soft_taints.with_soft_taints, count=count))
        except ApiError as error:
            logger.info("Couldn't change soft taints", extra={"node": node.metadata.name, "why": str(error)})
            continue
        list(changed.values())[count].append(node.metadata.name)
    if any(changed.values()):
        logger.info("Changed which nodes new pods avoid", extra=changed)
