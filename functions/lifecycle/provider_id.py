"""Claims whose status somebody changed get back which instance they have: EC2's tag on it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.api import nodeclaim
from shared.api.meta import is_true, with_condition
from shared.cluster import resources, writes

if TYPE_CHECKING:
    from functions.lifecycle.context import Run
    from shared.api.nodeclaim import NodeClaim
    from shared.launch.instances import Instance


def restore(run: Run, claim: NodeClaim, instance: Instance) -> None:
    """Write again that the claim was launched, and as which instance; what its node shows follows from that."""
    message = f'status.providerID was "{claim.status.provider_id}", but instance {instance.id} is this claim\'s'
    run.recorder.record(claim.ref, "Warning", "ProviderIDRestored", message)
    run.logger.warning("Restored a NodeClaim's instance", extra={"nodeclaim": claim.name, "why": message})

    def change(current: NodeClaim) -> NodeClaim:
        conditions = current.status.conditions
        if not is_true(conditions, nodeclaim.LAUNCHED):
            conditions = with_condition(conditions, nodeclaim.LAUNCHED, status=True, reason="Launched", now=run.now)
        status = replace(current.status, provider_id=instance.provider_id, conditions=conditions)
        return replace(current, status=status)

    writes.update_status(run.client, resources.NODE_CLAIMS, claim, change)
