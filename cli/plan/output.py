"""A plan as text and as JSON: launches, unschedulable pods, disruption, blocked nodes, and the total."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from cli import terminal
from cli.cluster.pricing import claims_without_node
from cli.plan import traffic_output
from cli.plan.commitments import commitment_use
from cli.simulate import decision_output
from shared.api.nodepool import node_group_of
from shared.api.pods import is_pending, is_terminal
from shared.api.quantity import format_quantity
from shared.base.plurals import plural

if TYPE_CHECKING:
    from rich.console import Console

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.plan.planning import Plan
    from shared.disruption.command import Command
    from shared.scheduling.decision import PlannedNodeClaim

_MAX_ROWS = 12
"""Rows of a table that are printed; --json lists all."""
_MAX_BLOCKED_REASONS = 5
_LEAST_AMOUNT = 0.0001
"""USD per hour; amounts that differ by less are the same to a reader."""
_SMALL_CLUSTER = 10.0
"""USD per hour below which amounts have four places."""
_MAX_NODE_NAMES = 2
"""Nodes of one action that are named."""


def show(console: Console, observed: ObservedCluster, plan: Plan, *, assumptions: str) -> None:
    """Print the plan; ``assumptions`` are its changes to the cluster, empty if there are none."""
    pods = [p for p in plan.snapshot.pods if not is_terminal(p)]
    pending = sum(is_pending(p) for p in pods)
    launching = len(claims_without_node(plan.snapshot))
    head = terminal.title(
        observed.name,
        plural(len(plan.snapshot.nodes), "node") + (f", {launching} launching" if launching else ""),
        plural(len(pods), "pod") + (f", {pending:,} pending" if pending else ""),
        observed.prices.marked(f"{_usd(plan, plan.cost_before)}/h")
        + (f" plus {plan.unpriced} of unknown price" if plan.unpriced else ""),
    )
    console.print(head)
    if assumptions:
        console.print(Text(f"what if: {assumptions}", style=terminal.WARNING))
    for pause in observed.pauses:
        console.print(Text(pause, style=terminal.WARNING))
    _commitments(console, plan)
    console.print(Text(traffic_output.summary(plan.traffic), style=terminal.QUIET))
    for note in (*observed.notes, *plan.notes):
        console.print(Text(f"note: {note}", style=terminal.QUIET))
    for invalid in plan.snapshot.invalid[:_MAX_ROWS]:
        console.print(Text(f"ignored: {invalid.ref}: {'; '.join(invalid.problems)}", style=terminal.WARNING))
    _launches(console, observed, plan)
    _unplaced(console, plan)
    _disruption(console, observed, plan)
    _pending(console, observed, plan)
    _unneeded(console, observed)
    _blocked(console, plan)
    traffic_output.show_services(console, plan.traffic)
    _total(console, observed, plan)


def _usd(plan: Plan, amount: float, *, sign: bool = False) -> str:
    """An amount of the plan; all have as many places, so that a reader's sum is the one shown."""
    is_small = max(plan.cost_before, plan.cost_after) < _SMALL_CLUSTER
    return terminal.usd(amount, sign=sign, places=4 if is_small else 2)


def _commitments(console: Console, plan: Plan) -> None:
    use = commitment_use(plan)
    if use is None:
        return
    text = f"commitments: {terminal.usd(use.used_before)} of {terminal.usd(use.paid)} per hour used"
    if use.used_after != use.used_before:
        text += f", {terminal.usd(use.used_after)} after this plan"
    console.print(Text(text, style=terminal.QUIET))


def _launches(console: Console, observed: ObservedCluster, plan: Plan) -> None:
    if plan.lost:
        console.print()
        price = observed.prices.marked(f"{_usd(plan, -plan.lost_cost, sign=True)}/h")
        title = terminal.title(f"{plural(len(plan.lost), 'node')} lost", "their pods have to be rescheduled", price)
        console.print(title)
    if plan.launches.new_node_claims:
        _new_nodes(console, observed, plan)
    pods = sum(len(keys) for keys in plan.launches.existing_nodes.values())
    if pods:
        nodes = sum(1 for keys in plan.launches.existing_nodes.values() if keys)
        console.print()
        console.print(terminal.title(f"{plural(pods, 'pod')} can run", f"on {plural(nodes, 'existing node')}"))


def _new_nodes(console: Console, observed: ObservedCluster, plan: Plan) -> None:
    claims = plan.launches.new_node_claims
    console.print()
    console.print(
        terminal.title(
            f"Would launch {plural(len(claims), 'node')}",
            f"for {plural(sum(len(c.pods) for c in claims), 'pod')}",
            observed.prices.marked(f"{_usd(plan, plan.launch_cost, sign=True)}/h"),
        )
    )
    claims_by_row: dict[tuple[str, str, str, str], list[PlannedNodeClaim]] = {}
    for claim in claims:
        claims_by_row.setdefault(_row_key(claim), []).append(claim)
    has_groups = any(node_group_of(claim.node_pool) for claim in claims)
    table = terminal.table(
        "nodes", "instance type", "capacity", "zone", "nodepool or group" if has_groups else "nodepool", "$/h each",
        "pods", "requests", "alternatives",
        right=("nodes", "$/h each", "pods"), optional=("alternatives", "requests", "nodepool", "zone"),
    )  # fmt: skip
    rows = sorted(claims_by_row.items(), key=lambda row: (-len(row[1]), row[0]))
    for (instance_type, capacity_type, zone, pool), same in rows[:_MAX_ROWS]:
        table.add_row(
            "", str(len(same)), instance_type, terminal.capacity(capacity_type), zone, node_group_of(pool) or pool,
            _usd(plan, same[0].cheapest.price), str(sum(len(c.pods) for c in same)), _requests(same),
            "–" if node_group_of(pool) else plural(len(same[0].instance_types), "type"),
        )  # fmt: skip
    console.print(table)
    _more(console, len(rows))
    volumes = sum(claim.cheapest.volume_price for claim in claims)
    if volumes:
        text = f"  volumes: {terminal.usd(volumes)}/h more, which decisions count"
        console.print(text, style=terminal.QUIET)
    if saved := sorted({name for claim in claims for name in claim.saved_resources}):
        console.print(f"  cheaper types take more of the limit of {' and '.join(saved)}", style=terminal.QUIET)
    if line := decision_output.chunks_line(plan.launches):
        console.print(f"  {line}", style=terminal.QUIET)


def _row_key(claim: PlannedNodeClaim) -> tuple[str, str, str, str]:
    cheapest = claim.cheapest
    return cheapest.instance_type, cheapest.capacity_type, cheapest.zone, claim.node_pool


def _requests(claims: list[PlannedNodeClaim]) -> str:
    parts = []
    for name in ("cpu", "memory"):
        amounts = [c.requests.get(name, 0) for c in claims]
        if any(amounts):
            parts.append(f"{name} {format_quantity(name, max(amounts))}")
    return ", ".join(parts)


def _unplaced(console: Console, plan: Plan) -> None:
    errors = plan.launches.pod_errors
    if not errors:
        return
    console.print()
    console.print(terminal.title(f"Can't schedule {plural(len(errors), 'pod')}", style="bold red"))
    by_reason: dict[str, list[str]] = {}
    for key, error in errors.items():
        by_reason.setdefault(error.message, []).append(key)
    for message, keys in list(by_reason.items())[:_MAX_ROWS]:
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        console.print(Padding(Text.assemble((keys[0], "bold"), (f"{more}: ", ""), message), (0, 0, 0, 2), expand=False))
    _more(console, len(by_reason))
    console.print(Text(f"  details: tenon explain pod {next(iter(errors))}", style=terminal.QUIET))


def _disruption(console: Console, observed: ObservedCluster, plan: Plan) -> None:
    actions = plan.disruption.actions
    if not actions:
        return
    console.print()
    count = len(plan.disruption.nodes)
    console.print(
        terminal.title(
            f"Would then disrupt {plural(count, 'node')}",
            observed.prices.marked(f"{_usd(plan, -plan.savings, sign=True)}/h"),
        )
    )
    table = terminal.table(
        "reason", "nodes", "pods to move", "replaced by", "$/h",
        right=("pods to move", "$/h"), text=("nodes", "replaced by"), optional=("pods to move",),
    )  # fmt: skip
    for action in actions[:_MAX_ROWS]:
        table.add_row(
            "", action.reason, _nodes(action), str(action.pod_count or "–"), _replacements(action),
            _usd(plan, -saved, sign=True) if (saved := plan.savings_of(action)) else "–",
        )  # fmt: skip
    console.print(table)
    _more(console, len(actions))
    decided = plan.disruption.decided_savings
    if abs(decided - plan.savings) >= _LEAST_AMOUNT:
        why = "volumes and commitments" if commitment_use(plan) is not None else "volumes"
        text = f"  with {why}, as decisions count: {_usd(plan, -decided, sign=True)}/h"
        console.print(text, style=terminal.QUIET)
    if not plan.disruption.search_completed:
        console.print(Text("  the consolidation search was stopped; --search SECONDS extends it", style=terminal.QUIET))


def _nodes(action: Command) -> str:
    names = [n.partition(".")[0] for n in action.nodes]
    if len(names) == 1:
        return names[0]
    more = ", …" if len(names) > _MAX_NODE_NAMES else ""
    return f"{plural(len(names), 'node')}: {', '.join(names[:_MAX_NODE_NAMES])}{more}"


def _replacements(action: Command) -> str:
    kinds = Counter(f"{c.cheapest.instance_type} {c.cheapest.capacity_type}" for c in action.replacements)
    return ", ".join(f"{n} × {kind}" for kind, n in sorted(kinds.items())) or "–"


def _pending(console: Console, observed: ObservedCluster, plan: Plan) -> None:
    pending = plan.disruption.pending
    if not pending:
        return
    console.print()
    console.print(terminal.title(f"Waiting for consolidateAfter: {plural(len(pending), 'empty node')}"))
    for disruption in pending[:_MAX_ROWS]:
        console.print(Text(f"  {disruption.node} is disrupted in {terminal.age(disruption.due - observed.now)}"))
    _more(console, len(pending))


def _unneeded(console: Console, observed: ObservedCluster) -> None:
    groups = observed.node_groups
    nodes = groups.scale_down.unneeded if groups is not None else ()
    if groups is None or not nodes:
        return
    console.print()
    console.print(terminal.title(f"Unneeded: {plural(len(nodes), 'node')} of node groups"))
    for member in nodes[:_MAX_ROWS]:
        when = groups.removal_time(member.name, observed.now)
        console.print(Text(f"  {member.name} of {member.group.name} is removed {when}"))
    _more(console, len(nodes))


def _blocked(console: Console, plan: Plan) -> None:
    blocked = plan.disruption.blocked
    if not blocked:
        return
    console.print()
    nodes = {b.node for b in blocked}
    console.print(terminal.title(f"Disruption blocked for {plural(len(nodes), 'node')}", "tenon explain node NAME"))
    count_by_reason = Counter(f"{b.reason}: {b.message}" for b in blocked)
    for reason, count in count_by_reason.most_common(_MAX_BLOCKED_REASONS):
        console.print(Padding(Text.assemble((f"{count:>3} × ", terminal.QUIET), reason), (0, 0, 0, 2), expand=False))
    _more(console, len(count_by_reason), shown=_MAX_BLOCKED_REASONS)


def _total(console: Console, observed: ObservedCluster, plan: Plan) -> None:
    console.print()
    if not (plan.launches.new_node_claims or plan.launches.pod_errors or plan.disruption.actions or plan.lost):
        console.print(Text("Nothing to do.", style=terminal.GOOD))
        return
    after = plan.cost_after
    removed = set(plan.lost) | set(plan.disruption.nodes)
    added = len(plan.launches.new_node_claims) + sum(len(a.replacements) for a in plan.disruption.actions)
    nodes = len(plan.snapshot.nodes) + len(claims_without_node(plan.snapshot))
    nodes_after = nodes - len(removed) + added
    change = after - plan.cost_before
    share = f", {change / plan.cost_before:+.0%}".replace("-", "−") if plan.cost_before else ""
    console.print(
        Text.assemble(
            (f"{nodes:,} → {plural(nodes_after, 'node')}", "bold"),
            ", ",
            (f"{_usd(plan, plan.cost_before)} → {_usd(plan, after)} per hour", "bold"),
            (f" ({_usd(plan, change, sign=True)}{share})", terminal.GOOD if change <= 0 else terminal.WARNING),
            (f", {observed.prices.caveat}" if observed.prices.caveat else "", terminal.WARNING),
            (
                f", {plural(len(plan.launches.pod_errors), 'pod')} can't be scheduled"
                if plan.launches.pod_errors
                else "",
                terminal.BAD,
            ),
        )
    )


def _more(console: Console, rows: int, *, shown: int = _MAX_ROWS) -> None:
    if rows > shown:
        console.print(Text(f"  and {rows - shown} more; --json lists all", style=terminal.QUIET))
