"""Restores ``status.providerID`` of a NodeClaim after somebody changed or removed it, from the instance's tag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.meta import is_true, with_condition
from shared.base.struct import with_fields
from shared.cluster import resources, writes

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import Instance


def restore_provider_id(context: ReconcileContext, claim: NodeClaim, instance: Instance) -> None:
    """Write the instance's provider ID and condition Launched; the rest of the status follows from the node."""
    message = f'status.providerID was "{claim.status.provider_id}"; restored instance {instance.id} from its tag'
    context.recorder.record(claim.ref, "Warning", "ProviderIDRestored", message)
    context.logger.warning("Restored a NodeClaim's providerID", extra={"nodeclaim": claim.name, "why": message})

    def change(current: NodeClaim) -> NodeClaim:
        conditions = current.status.conditions
        if not is_true(conditions, nodeclaim.LAUNCHED):
            conditions = with_condition(
                conditions,
                nodeclaim.LAUNCHED,
                status=True,
                reason="Launched",
                now=context.now,
                generation=current.metadata.generation,
            )
        conditions = nodeclaim.with_ready(conditions, now=context.now, generation=current.metadata.generation)
        status = with_fields(current.status, provider_id=instance.provider_id, conditions=conditions)
        return with_fields(current, status=status)

    writes.update_status(context.client, resources.NODE_CLAIMS, claim, change)
