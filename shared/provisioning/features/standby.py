"""Standby nodes: hidden from the decision, used where it launches nodes, and bought again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.base.struct import with_fields
from shared.provisioning.launching import unlaunched_claims
from shared.provisioning.round import Feature
from shared.standby import purchases
from shared.standby.starting import StandbyNodes

if TYPE_CHECKING:
    from shared.provisioning.round import Provisioning, Round


class Standby(Feature, kw_only=True):
    """The standby nodes of one round."""

    provisioning: Provisioning
    nodes: StandbyNodes

    def before(self, round_: Round) -> Round:
        """The round without them."""
        return with_fields(round_, snapshot=self.nodes.hidden)

    def after(self, round_: Round) -> Round:
        """The round with standby nodes in place of new ones."""
        schedule = partial(round_.schedule, resolved_pools=round_.resolved_pools)
        types = round_.resolved_pools.launchable_types
        return with_fields(round_, decision=self.nodes.use(round_.decision, round_.snapshot, schedule, types))

    def write(self, round_: Round) -> Round:
        """Mark those that are used as starting; the provisioner buys missing ones, once in a run."""
        starting = self.nodes.mark_starting(round_.decision, decision_id=round_.decision_id, now=round_.now)
        snapshot = round_.snapshot
        started = with_fields(
            round_,
            snapshot=with_fields(snapshot, node_claims=(*snapshot.node_claims, *starting)),
            unlaunched=(*round_.unlaunched, *unlaunched_claims(starting)),
        )
        if round_.attempt > 0 or self.provisioning.by != "provisioner":
            return started
        everything = self.nodes.after(starting)
        plan = purchases.plan_standbys(everything, round_.resolved_pools, enabled=self.nodes.enabled)
        cluster = self.provisioning.settings.cluster_name
        planned = round_.allowed(purchases.reserve(self.provisioning.client, plan, cluster=cluster, now=round_.now))
        bought = self.provisioning.create_node_claims(
            planned,
            with_fields(round_, snapshot=everything),
            decision_id=f"{round_.decision_id}/standby",
            standby=True,
        )
        return with_fields(started, created=(*started.created, *bought), missing_standbys=plan.problems)


def standby(provisioning: Provisioning, round_: Round) -> Standby:
    """The feature for the cluster's standby nodes."""
    nodes = StandbyNodes(
        client=provisioning.client,
        everything=round_.snapshot,
        enabled=provisioning.settings.standby == "on",
        unusable=provisioning.unusable_standbys,
    )
    return Standby(provisioning=provisioning, nodes=nodes)
