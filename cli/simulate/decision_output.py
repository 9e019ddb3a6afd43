"""A scheduling decision as JSON values and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api.nodepool import node_group_of
from shared.api.quantity import format_quantity, format_resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.scheduling.decision import Decision, PlannedNodeClaim, UnschedulableReason


def as_json(decision: Decision, refused: Mapping[str, UnschedulableReason]) -> dict[str, Any]:
    """The decision as JSON values, quantities as strings; ``refused`` are pods that can't be read."""
    errors = {**{k: r.message for k, r in decision.pod_errors.items()}, **{k: r.message for k, r in refused.items()}}
    return {
        "nodeClaims": [_claim(c) for c in decision.new_node_claims],
        "existingNodes": {name: list(pods) for name, pods in sorted(decision.existing_nodes.items())},
        "errors": dict(sorted(errors.items())),
        "stats": dict(decision.stats),
    }


def _owner(pool_name: str) -> dict[str, str]:
    group = node_group_of(pool_name)
    return {"nodeGroup": group} if group else {"nodePool": pool_name}


def _claim(claim: PlannedNodeClaim) -> dict[str, Any]:
    return {
        **_owner(claim.node_pool),
        "pods": list(claim.pods),
        "instanceTypes": list(claim.instance_types),
        "requirements": [
            {
                "key": r.key,
                "operator": r.operator,
                "values": list(r.values),
                **({"minValues": r.min_values} if r.min_values is not None else {}),
            }
            for r in claim.requirements
        ],
        "requests": format_resources(claim.requests),
        "labels": dict(sorted(claim.labels.items())),
        "taints": [{"key": t.key, "effect": t.effect, **({"value": t.value} if t.value else {})} for t in claim.taints],
        "cheapest": {
            "instanceType": claim.cheapest.instance_type,
            "zone": claim.cheapest.zone,
            "capacityType": claim.cheapest.capacity_type,
            "price": claim.cheapest.price,
        },
    }


def show(decision: Decision, refused: Mapping[str, UnschedulableReason]) -> None:
    """Print the decision as a table, then the errors and the totals."""
    from cli import terminal  # noqa: PLC0415 (slow to import, and --json doesn't need it)

    console = terminal.console()
    if decision.new_node_claims:
        columns = ("nodepool", "cheapest type", "zone", "capacity", "$/h", "types", "pods", "requests")
        table = terminal.table(*columns, right=("$/h", "types", "pods"), optional=("types", "requests", "zone"))
        for claim in decision.new_node_claims:
            table.add_row("", *_cells(claim))
        console.print(table)
    for name, pods in sorted(decision.existing_nodes.items()):
        console.print(f"{name}: {terminal.plural(len(pods), 'pod')}", markup=False)
    errors = {**decision.pod_errors, **refused}
    for key, error in sorted(errors.items()):
        console.print(f"{key}: {error.message}", markup=False, style=terminal.BAD)
    price = sum(c.cheapest.price for c in decision.new_node_claims)
    on_new_nodes = sum(len(c.pods) for c in decision.new_node_claims)
    on_existing_nodes = sum(len(pods) for pods in decision.existing_nodes.values())
    new_nodes = terminal.plural(len(decision.new_node_claims), "new node")
    if line := chunks_line(decision):
        console.print(line, markup=False)
    console.print(
        f"{terminal.plural(on_new_nodes, 'pod')} on {new_nodes} for {price:.4f} USD/h, "
        f"{on_existing_nodes} on existing nodes, {len(errors)} unschedulable",
        markup=False,
    )


def chunks_line(decision: Decision) -> str:
    """Where the chunks of CapacityBuffers are; empty if there are none."""
    launched = sum(len(claim.chunks) for claim in decision.new_node_claims)
    existing = sum(len(chunks) for chunks in decision.chunks.values())
    errors = len(decision.chunk_errors)
    if not launched + existing + errors:
        return ""
    return f"chunks of CapacityBuffers: {launched} on new nodes, {existing} on existing nodes, {errors} unschedulable"


def _cells(claim: PlannedNodeClaim) -> list[str]:
    requests = [
        f"{name} {format_quantity(name, claim.requests[name])}" for name in ("cpu", "memory") if name in claim.requests
    ]
    return [
        claim.node_pool,
        claim.cheapest.instance_type,
        claim.cheapest.zone,
        claim.cheapest.capacity_type,
        f"{claim.cheapest.price:.4f}",
        str(len(claim.instance_types)),
        str(len(claim.pods)),
        ", ".join(requests),
    ]
