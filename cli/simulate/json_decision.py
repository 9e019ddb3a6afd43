"""A scheduling decision as ``tenon simulate --json`` prints it, and ``tenon plan --json`` among the launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cli.json_output import Output
from shared.api.nodepool import node_group_of
from shared.api.quantity import format_resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.scheduling.decision import Decision, PlannedNodeClaim, UnschedulableReason


class ClaimRequirement(Output, frozen=True, kw_only=True):
    """A requirement of a NodeClaim."""

    key: str
    operator: str
    values: list[str]
    min_values: int | msgspec.UnsetType = msgspec.UNSET


class ClaimTaint(Output, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str | msgspec.UnsetType = msgspec.UNSET


class PricedOffering(Output, frozen=True, kw_only=True):
    """An offering; ``price`` is USD per hour."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float


class PlannedClaim(Output, frozen=True, kw_only=True):
    """A node that would be launched, of a NodePool or by a node group. Pods are namespace/name."""

    node_pool: str | msgspec.UnsetType = msgspec.UNSET
    node_group: str | msgspec.UnsetType = msgspec.UNSET
    pods: list[str]
    instance_types: list[str]
    requirements: list[ClaimRequirement]
    requests: dict[str, str]
    labels: dict[str, str]
    taints: list[ClaimTaint]
    cheapest: PricedOffering


class SchedulingDecision(Output, frozen=True, kw_only=True):
    """The node of each pod (namespace/name), or why it has none (``errors``). ``stats`` are figures of the solver."""

    node_claims: list[PlannedClaim]
    existing_nodes: dict[str, list[str]]
    errors: dict[str, str]
    stats: dict[str, float]


def output(decision: Decision, refused: Mapping[str, UnschedulableReason]) -> SchedulingDecision:
    """The decision, quantities as strings; ``refused`` are pods that can't be read."""
    errors = {**{k: r.message for k, r in decision.pod_errors.items()}, **{k: r.message for k, r in refused.items()}}
    return SchedulingDecision(
        node_claims=[_claim(c) for c in decision.new_node_claims],
        existing_nodes={name: list(pods) for name, pods in sorted(decision.existing_nodes.items())},
        errors=dict(sorted(errors.items())),
        stats=dict(decision.stats),
    )


def _claim(claim: PlannedNodeClaim) -> PlannedClaim:
    group = node_group_of(claim.node_pool)
    return PlannedClaim(
        node_pool=msgspec.UNSET if group else claim.node_pool,
        node_group=group or msgspec.UNSET,
        pods=list(claim.pods),
        instance_types=list(claim.instance_types),
        requirements=[
            ClaimRequirement(
                key=r.key,
                operator=r.operator,
                values=list(r.values),
                min_values=r.min_values if r.min_values is not None else msgspec.UNSET,
            )
            for r in claim.requirements
        ],
        requests=format_resources(claim.requests),
        labels=dict(sorted(claim.labels.items())),
        taints=[ClaimTaint(key=t.key, effect=t.effect, value=t.value or msgspec.UNSET) for t in claim.taints],
        cheapest=PricedOffering(
            instance_type=claim.cheapest.instance_type,
            zone=claim.cheapest.zone,
            capacity_type=claim.cheapest.capacity_type,
            price=claim.cheapest.price,
        ),
    )
