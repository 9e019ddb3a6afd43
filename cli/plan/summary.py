"""A plan as a person reads it: what changes first, then what doesn't and why, and the sum."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from cli import terminal
from cli.cluster.observed_cluster import on_their_way, prices_of
from shared.api.pods import is_pending, is_terminal
from shared.api.quantity import format_quantity

if TYPE_CHECKING:
    from rich.console import Console

    from cli.cluster.observed_cluster import Facts
    from cli.plan.planning import Plan
    from shared.disruption.command import Command
    from shared.scheduling.decision import PlannedNodeClaim

_SHOWN = 12
"""Rows of one kind that are shown; --json has all."""


_NAMED = 2
"""Nodes of one action that are named."""


def show(console: Console, facts: Facts, plan: Plan, *, question: str) -> None:
    """Print the plan; ``question`` says in what it differs from the cluster, empty if it is the cluster."""
    pods = [p for p in plan.snapshot.pods if not is_terminal(p)]
    pending = sum(is_pending(p) for p in pods)
    coming = len(on_their_way(plan.snapshot))
    head = terminal.title(
        facts.name,
        terminal.plural(len(plan.snapshot.nodes), "node") + (f", {coming} on their way" if coming else ""),
        terminal.plural(len(pods), "pod") + (f", {pending:,} pending" if pending else ""),
        f"{terminal.usd(plan.before)}/h" + (f" and {plan.unpriced} of unknown price" if plan.unpriced else ""),
    )
    console.print(head)
    if question:
        console.print(Text(f"as if: {question}", style=terminal.WAITS))
    for note in facts.notes:
        console.print(Text(f"note: {note}", style=terminal.QUIET))
    for invalid in plan.snapshot.invalid[:_SHOWN]:
        console.print(Text(f"passed over: {invalid.ref}: {'; '.join(invalid.problems)}", style=terminal.WAITS))
    _launches(console, plan)
    _unplaced(console, plan)
    _disruption(console, plan)
    _kept(console, facts, plan)
    _sum(console, plan)


def _launches(console: Console, plan: Plan) -> None:
    claims = plan.launches.new_node_claims
    found = sum(len(pods) for pods in plan.launches.existing_nodes.values())
    if plan.lost:
        console.print()
        console.print(terminal.title(f"{terminal.plural(len(plan.lost), 'node')} lost", "their pods need other places"))
    if claims:
        pods = sum(len(c.pods) for c in claims)
        console.print()
        console.print(
            terminal.title(
                f"Would launch {terminal.plural(len(claims), 'node')}",
                f"for {terminal.plural(pods, 'pod')}",
                f"{terminal.usd(plan.bought, sign=True)}/h",
            )
        )
        rows = Counter(_machine(c) for c in claims)
        by_row: dict[tuple[str, ...], list[PlannedNodeClaim]] = {}
        for claim in claims:
            by_row.setdefault(_machine(claim), []).append(claim)
        table = terminal.table(
            "nodes", "machine", "capacity", "zone", "nodepool", "$/h each", "pods", "requests", "or one of",
            right=("nodes", "$/h each", "pods"),
        )  # fmt: skip
        for row, count in sorted(rows.items(), key=lambda r: (-r[1], r[0]))[:_SHOWN]:
            same = by_row[row]
            machine, kind, zone, pool = row
            table.add_row(
                "", str(count), machine, terminal.capacity(kind), zone, pool, terminal.usd(same[0].cheapest.price),
                str(sum(len(c.pods) for c in same)), _requests(same), f"{len(same[0].instance_types)} types",
            )  # fmt: skip
        console.print(table)
        _more(console, len(rows))
    if found:
        console.print()
        places = sum(1 for pods in plan.launches.existing_nodes.values() if pods)
        console.print(
            terminal.title(
                f"{terminal.plural(found, 'pod')} find room", f"on {terminal.plural(places, 'node')} already there"
            )
        )


def _machine(claim: PlannedNodeClaim) -> tuple[str, str, str, str]:
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
    console.print(terminal.title(f"No place for {terminal.plural(len(errors), 'pod')}", style="bold red"))
    by_reason: dict[str, list[str]] = {}
    for key, refusal in errors.items():
        by_reason.setdefault(refusal.message, []).append(key)
    for message, keys in list(by_reason.items())[:_SHOWN]:
        others = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        console.print(
            Padding(Text.assemble((keys[0], "bold"), (f"{others}: ", ""), message), (0, 0, 0, 2), expand=False)
        )
    _more(console, len(by_reason))
    console.print(Text(f"  tenon explain pod {next(iter(errors))} says more", style=terminal.QUIET))


def _disruption(console: Console, plan: Plan) -> None:
    actions = plan.disruption.actions
    if not actions:
        return
    console.print()
    count = len(plan.disruption.nodes)
    console.print(
        terminal.title(
            f"Would then remove {terminal.plural(count, 'node')}",
            f"{terminal.usd(-plan.disruption.savings, sign=True)}/h",
        )
    )
    table = terminal.table("why", "nodes", "pods to move", "replaced by", "$/h", right=("pods to move", "$/h"))
    for action in actions[:_SHOWN]:
        table.add_row(
            "", action.reason, _nodes(action), str(action.pod_count or "–"), _replacements(action),
            terminal.usd(-action.savings, sign=True) if action.savings else "–",
        )  # fmt: skip
    console.print(table)
    _more(console, len(actions))
    if not plan.disruption.ended:
        console.print(
            Text("  the search for savings was cut short; --search SECONDS looks longer", style=terminal.QUIET)
        )


def _nodes(action: Command) -> str:
    names = [n.partition(".")[0] for n in action.nodes]
    if len(names) == 1:
        return names[0]
    return f"{len(names)} nodes: {', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}"


def _replacements(action: Command) -> str:
    kinds = Counter(f"{c.cheapest.instance_type} {c.cheapest.capacity_type}" for c in action.replacements)
    return ", ".join(f"{n} × {kind}" for kind, n in sorted(kinds.items())) or "–"


def _kept(console: Console, facts: Facts, plan: Plan) -> None:
    disruption = plan.disruption
    if disruption.waiting:
        console.print()
        console.print(terminal.title(f"{terminal.plural(len(disruption.waiting), 'node')} wait for consolidateAfter"))
        for waits in disruption.waiting[:_SHOWN]:
            console.print(Text(f"  {waits.node} is empty, and goes in {terminal.age(waits.due - facts.now)}"))
    if disruption.refused:
        console.print()
        nodes = {r.node for r in disruption.refused}
        console.print(
            terminal.title(f"Keeps {terminal.plural(len(nodes), 'node')} that might go", "tenon explain node NAME")
        )
        by_reason = Counter(f"{r.reason}: {r.message}" for r in disruption.refused)
        for reason, count in by_reason.most_common(5):
            console.print(
                Padding(Text.assemble((f"{count:>3} × ", terminal.QUIET), reason), (0, 0, 0, 2), expand=False)
            )
        _more(console, len(by_reason), shown=5)


def _sum(console: Console, plan: Plan) -> None:
    console.print()
    if not (plan.launches.new_node_claims or plan.launches.pod_errors or plan.disruption.actions or plan.lost):
        console.print(Text("Nothing to do.", style=terminal.GOOD))
        return
    prices = prices_of(plan.resolved_pools)
    after = plan.after(prices)
    gone = set(plan.lost) | set(plan.disruption.nodes)
    came = len(plan.launches.new_node_claims) + sum(len(a.replacements) for a in plan.disruption.actions)
    nodes = len(plan.snapshot.nodes) + len(on_their_way(plan.snapshot))
    change = after - plan.before
    share = f", {change / plan.before:+.0%}" if plan.before else ""
    console.print(
        Text.assemble(
            (f"{nodes:,} → {nodes - len(gone) + came:,} nodes", "bold"),
            ", ",
            (f"{terminal.usd(plan.before)} → {terminal.usd(after)} per hour", "bold"),
            (f" ({terminal.usd(change, sign=True)}{share})", terminal.GOOD if change <= 0 else terminal.WAITS),
            (
                f", {terminal.plural(len(plan.launches.pod_errors), 'pod')} without a place"
                if plan.launches.pod_errors
                else "",
                terminal.BAD,
            ),
        )
    )


def _more(console: Console, rows: int, *, shown: int = _SHOWN) -> None:
    if rows > shown:
        console.print(Text(f"  and {rows - shown} more; --json has all", style=terminal.QUIET))
