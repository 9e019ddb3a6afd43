"""Static NodePools: missing replicas are created first, so that pending pods can be scheduled on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import with_fields
from shared.disruption.disruption_queue import replaced_claims
from shared.provisioning.nodeclaim_creation import one_on_trial
from shared.provisioning.round import Feature
from shared.scheduling.static_pools import missing_replicas

if TYPE_CHECKING:
    from shared.provisioning.round import Provisioning, Round


class StaticPools(Feature, kw_only=True):
    """The NodePools with ``replicas`` of one round."""

    provisioning: Provisioning

    def before(self, round_: Round) -> Round:
        """The round with the missing replicas, which are written.

        Raises:
            LeaseLostError: reading took too long; nothing is written.
        """
        snapshot, pools = round_.snapshot, round_.resolved_pools
        replaced = replaced_claims(snapshot.node_claims)
        planned, missing = missing_replicas(snapshot, pools.instance_types, pools.not_ready, replaced)
        planned = round_.allowed(one_on_trial(planned, snapshot.node_claims, pools))
        if not planned:
            return with_fields(round_, missing_replicas=missing)
        round_.lease.check()
        replicas = self.provisioning.create_node_claims(planned, round_, decision_id=f"{round_.decision_id}/static")
        return with_fields(
            round_,
            snapshot=with_fields(snapshot, node_claims=(*snapshot.node_claims, *replicas)),
            created=replicas,
            missing_replicas=missing,
        )
