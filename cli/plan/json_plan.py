"""The output of ``tenon plan --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.cluster.price_origin import OriginName
from cli.json_output import Output, Time, moment
from cli.plan import json_traffic
from cli.plan.commitments import CommitmentUse, commitment_use
from cli.plan.json_traffic import PlannedCrossZoneTraffic
from cli.simulate import json_decision
from cli.simulate.json_decision import SchedulingDecision

if TYPE_CHECKING:
    from cli.cluster.observed_cluster import ObservedCluster
    from cli.plan.planning import Plan
    from shared.disruption.command import Command


class InvalidEntry(Output, frozen=True, kw_only=True):
    """An object that is left out, and why."""

    object: str
    problems: list[str]


class PlannedCost(Output, frozen=True, kw_only=True):
    """USD per hour of instances: ``after`` is ``before - lost + launches - savings``.

    ``decided_savings`` is what decisions count of the savings: also volumes, and what commitments pay.
    ``unpriced_nodes`` have no known price. ``prices`` is where prices come from.
    """

    before: float
    after: float
    lost: float
    launches: float
    savings: float
    decided_savings: float
    unpriced_nodes: int
    prices: OriginName


class UnneededNode(Output, frozen=True, kw_only=True):
    """A node of a node group that isn't needed; null: it isn't removed."""

    node: str
    node_group: str
    removed_in_seconds: float | None


class KeptGroupNode(Output, frozen=True, kw_only=True):
    """A node of a node group that is kept."""

    node: str
    node_group: str
    reason: str


class PlannedGroups(Output, frozen=True, kw_only=True):
    """The nodes of node groups."""

    unneeded: list[UnneededNode]
    kept: list[KeptGroupNode]


class Replacement(Output, frozen=True, kw_only=True):
    """A node that is launched in place of others, with its cheapest offering in USD per hour."""

    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float


class DisruptionAction(Output, frozen=True, kw_only=True):
    """Nodes that would be removed together. ``savings`` is USD per hour as decided; pods are namespace/name."""

    reason: str
    message: str
    nodes: list[str]
    pods_to_move: list[str]
    savings: float
    replacements: list[Replacement]


class KeptNode(Output, frozen=True, kw_only=True):
    """A node that isn't disrupted, and why."""

    node: str
    node_claim: str
    reason: str
    message: str


class WaitingNode(Output, frozen=True, kw_only=True):
    """A node that will be disrupted later."""

    node: str
    reason: str
    due: Time


class PlannedDisruption(Output, frozen=True, kw_only=True):
    """What disruption would do. ``search_ended``: consolidation was searched to the end."""

    actions: list[DisruptionAction]
    kept: list[KeptNode]
    waiting: list[WaitingNode]
    search_ended: bool


class PlanOutput(Output, frozen=True, kw_only=True):
    """What would be launched and disrupted now. ``lost_nodes`` are those that ``--without`` takes away.

    ``commitments`` is null where Savings Plans and Reserved Instances don't count, or there are none.
    """

    cluster: str
    at: Time
    pauses: list[str]
    notes: list[str]
    invalid: list[InvalidEntry]
    cost_per_hour: PlannedCost
    commitments: CommitmentUse | None
    cross_zone_traffic: PlannedCrossZoneTraffic
    lost_nodes: list[str]
    launches: SchedulingDecision
    node_groups: PlannedGroups
    disruption: PlannedDisruption


def output(observed: ObservedCluster, plan: Plan) -> PlanOutput:
    """The plan; prices in USD per hour, times in UTC."""
    return PlanOutput(
        cluster=observed.name,
        at=moment(observed.now),
        pauses=list(observed.pauses),
        notes=[*observed.notes, *plan.notes],
        invalid=[InvalidEntry(object=str(i.ref), problems=list(i.problems)) for i in plan.snapshot.invalid],
        cost_per_hour=PlannedCost(
            before=round(plan.cost_before, 6),
            after=round(plan.cost_after, 6),
            lost=round(plan.lost_cost, 6),
            launches=round(plan.launch_cost, 6),
            savings=round(plan.savings, 6),
            decided_savings=round(plan.disruption.decided_savings, 6),
            unpriced_nodes=plan.unpriced,
            prices=observed.prices.name,
        ),
        commitments=commitment_use(plan),
        cross_zone_traffic=json_traffic.output(plan.traffic),
        lost_nodes=list(plan.lost),
        launches=json_decision.output(plan.launches, {}),
        node_groups=_groups(observed),
        disruption=PlannedDisruption(
            actions=[_action(a) for a in plan.disruption.actions],
            kept=[
                KeptNode(node=b.node, node_claim=b.claim, reason=b.reason, message=b.message)
                for b in plan.disruption.blocked
            ],
            waiting=[WaitingNode(node=p.node, reason=p.reason, due=moment(p.due)) for p in plan.disruption.pending],
            search_ended=plan.disruption.search_completed,
        ),
    )


def _groups(observed: ObservedCluster) -> PlannedGroups:
    groups = observed.node_groups
    if groups is None:
        return PlannedGroups(unneeded=[], kept=[])
    unneeded = []
    for member in groups.scale_down.unneeded:
        due = groups.removal_due(member.name, observed.now)
        seconds = due.total_seconds() if due is not None else None
        unneeded.append(UnneededNode(node=member.name, node_group=member.group.name, removed_in_seconds=seconds))
    return PlannedGroups(
        unneeded=unneeded,
        kept=[
            KeptGroupNode(node=node, node_group=groups.group_by_node[node], reason=reason)
            for node, reason in sorted(groups.scale_down.reasons.items())
        ],
    )


def _action(action: Command) -> DisruptionAction:
    return DisruptionAction(
        reason=action.reason,
        message=action.message,
        nodes=list(action.nodes),
        pods_to_move=sorted(key for r in action.removals for key in r.pods),
        savings=round(action.savings, 6),
        replacements=[
            Replacement(
                node_pool=c.node_pool,
                instance_type=c.cheapest.instance_type,
                zone=c.cheapest.zone,
                capacity_type=c.cheapest.capacity_type,
                price=c.cheapest.price,
            )
            for c in action.replacements
        ],
    )
