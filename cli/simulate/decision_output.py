"""A scheduling decision as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from shared.api.quantity import format_quantity
from shared.base.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.scheduling.decision import Decision, PlannedNodeClaim, UnschedulableReason


def show(decision: Decision, refused: Mapping[str, UnschedulableReason], *, caveat: str = "") -> None:
    """Print the decision as a table, then the errors and the totals. ``caveat`` is what to know of the prices."""
    console = terminal.console()
    if decision.new_node_claims:
        columns = ("nodepool", "cheapest type", "zone", "capacity", "$/h", "types", "pods", "requests")
        table = terminal.table(*columns, right=("$/h", "types", "pods"), optional=("types", "requests", "zone"))
        for claim in decision.new_node_claims:
            table.add_row("", *_cells(claim))
        console.print(table)
    for name, pods in sorted(decision.existing_nodes.items()):
        console.print(f"{name}: {plural(len(pods), 'pod')}")
    errors = {**decision.pod_errors, **refused}
    for key, error in sorted(errors.items()):
        console.print(f"{key}: {error.message}", style=terminal.BAD)
    price = sum(c.cheapest.price for c in decision.new_node_claims)
    on_new_nodes = sum(len(c.pods) for c in decision.new_node_claims)
    on_existing_nodes = sum(len(pods) for pods in decision.existing_nodes.values())
    new_nodes = plural(len(decision.new_node_claims), "new node")
    if line := chunks_line(decision):
        console.print(line)
    console.print(
        f"{plural(on_new_nodes, 'pod')} on {new_nodes} for {price:.4f} USD/h{f' ({caveat})' if caveat else ''}, "
        f"{on_existing_nodes} on existing nodes, {len(errors)} unschedulable",
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
