"""Node groups: they take part in the decision, and are asked for the nodes that it plans on them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.base.struct import with_fields
from shared.node_groups.scaling import read_node_groups
from shared.node_groups.services import group_services
from shared.provisioning.round import Feature

if TYPE_CHECKING:
    from shared.node_groups.scaling import NodeGroups
    from shared.provisioning.round import Provisioning, Round


class ScaledNodeGroups(Feature, kw_only=True):
    """The node groups of one round."""

    groups: NodeGroups

    def before(self, round_: Round) -> Round:
        """The round that decides for NodePools and groups together."""
        return with_fields(round_, schedule=partial(self.groups.schedule, leaving=round_.leaving))

    def write(self, round_: Round) -> Round:
        """Ask the groups for their part of the decision; the decision without it."""
        decision, scale_ups = self.groups.scale(round_.decision, now=round_.now)
        return with_fields(round_, decision=decision, scale_ups=scale_ups)


def node_groups(provisioning: Provisioning, round_: Round) -> ScaledNodeGroups | None:
    """The feature for the cluster's node groups; None if it has none to scale."""
    groups = read_node_groups(
        provisioning.client,
        round_.snapshot,
        group_services(),
        settings=provisioning.settings,
        catalog=provisioning.catalog,
        recorder=provisioning.recorder,
        logger=provisioning.logger,
        now=round_.now,
    )
    return None if groups is None else ScaledNodeGroups(groups=groups)
