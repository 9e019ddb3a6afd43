"""The output of ``tenon migrate cluster-autoscaler``: the plan, what was done, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.migrate import takeover
from shared.base.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from cli.migrate.planning import MigrationPlan
    from cli.migrate.takeover import Record

_OUTCOMES = ("kept", "different", "unknown", "no meaning")
"""In this order."""
_STYLES = {"kept": terminal.GOOD, "different": terminal.WARNING, "unknown": terminal.WARNING}
_UNDO = "tenon migrate cluster-autoscaler --undo"


def show(console: Console, plan: MigrationPlan, *, cluster: str) -> None:
    """Print the plan."""
    deployment = plan.deployment
    replicas = plural(deployment.spec.replicas, "replica")
    groups = plural(len(plan.choice.names), "node group")
    console.print(terminal.title(cluster, f"Deployment {deployment.reference}", replicas, groups))
    table = terminal.table("flag", "becomes", "option", "what to know", text=("flag", "option", "what to know"))
    for flag, note in plan.choice.notes:
        table.add_row("", flag, "groups", "", note)
    for outcome in _OUTCOMES:
        for result in plan.translation.results:
            if result.outcome == outcome:
                option = f"{result.option}: {result.value}" if result.option else ""
                cells = (f"--{result.flag.name}={result.flag.value}", outcome, option, result.note)
                table.add_row("", *cells, style=_STYLES.get(outcome, terminal.QUIET))
    console.print(table)
    for note in plan.notes:
        console.print(f"  {note}", style=terminal.WARNING)


def show_end(console: Console, plan: MigrationPlan, changed: Sequence[str], *, applied: bool) -> None:
    """Print what would be done, or what comes next."""
    console.print()
    if not changed and plan.is_complete:
        console.print(f"  nothing to do: it is migrated. Back: {_UNDO}")
    elif not applied:
        console.print(
            f"  nothing was changed: --apply writes ConfigMap {takeover.CONFIG_MAP} "
            f"({plural(len(plan.data), 'option')}) and scales Deployment {plan.deployment.reference} to 0",
        )
    else:
        for line in (
            "Tenon scales the groups from now on, at the latest when Cluster Autoscaler's Lease is a minute old:",
            "  `tenon node-groups` shows them. Options are changed in the ConfigMap, and hold at once.",
            "Give the Deployment 0 replicas where it is kept (Helm values, Git), or the next deploy starts it again.",
            f"Back: {_UNDO}",
        ):
            console.print(f"  {line}")


def show_undone(console: Console, record: Record) -> None:
    """Print who scales node groups now."""
    who = (
        f"Cluster Autoscaler (Deployment {record.reference}) scales the node groups again"
        if record.replicas
        else f"Deployment {record.reference} has 0 replicas, as before: Tenon scales the node groups by its defaults"
    )
    console.print(f"  {who}. To run without Tenon's part for good: deploy with -c nodeGroups=off")
