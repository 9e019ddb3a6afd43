"""Runs ``tenon status``: Lambda functions, queues, alarms, and conditions of NodePools and node classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import json_output, terminal
from cli.cluster import kubeconfig_context, live_reader
from cli.printable import echo
from cli.status import deployment
from shared.base import runtime
from shared.base.struct import Struct
from shared.cluster.errors import ApiError
from shared.cluster.kubeconfig import KubeconfigError
from shared.cluster.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from cli.cluster.cluster_reference import ClusterReference
    from cli.status.deployment import DeploymentStatus
    from shared.snapshot import Snapshot


class Read(Struct):
    """A cluster's deployment at a moment; ``healthy``: nothing needs attention."""

    cluster: str
    deployed: DeploymentStatus
    now: datetime
    healthy: bool


def read(reference: ClusterReference) -> Read:
    """Read the cluster and AWS."""
    reference = kubeconfig_context.resolve_named(reference)
    now = runtime.now()
    with live_reader.read_only_aws(reference):
        snapshot, notes = _read_snapshot(reference, now)
        deployed = deployment.read(reference.cluster, snapshot, now=now, notes=notes)
    return Read(reference.cluster, deployed, now, deployed.healthy and not notes)


def show(read: Read, *, as_json: bool) -> None:
    """Print the health of the cluster's Tenon."""
    if as_json:
        echo(json_output.text("status", deployment.output(read.deployed)))
    else:
        _show(read.deployed, name=read.cluster, now=read.now)


def _read_snapshot(reference: ClusterReference, now: datetime) -> tuple[Snapshot | None, list[str]]:
    """The cluster's snapshot, or None and a note if the cluster can't be read."""
    try:
        client = live_reader.connect(reference)
        return live_reader.with_lease(client, reference, SnapshotReader(client).read(now), now=now)
    except (ApiError, KubeconfigError) as error:
        return None, [f"the cluster can't be read: {error}"]


def _show(deployed: DeploymentStatus, *, name: str, now: datetime) -> None:
    console = terminal.console()
    healthy = deployed.healthy and not deployed.notes
    style = terminal.GOOD if healthy else terminal.BAD
    console.print(terminal.title(name, "healthy" if healthy else "needs attention", style=f"bold {style}"))
    for pause in deployed.pauses:
        console.print(f"  {pause}", style=terminal.WARNING)
    for note in deployed.notes:
        console.print(f"  {note}", style=terminal.WARNING)
    if deployed.fleet:
        shared = "the alarm, the catalog and undelivered events are those of all its clusters"
        console.print(f"  fleet {deployed.fleet}: {shared}")
    if deployed.alarms:
        _show_alarms(console, deployed, now)
    _show_functions(console, deployed, now)
    if deployed.mode == deployment.SHADOW:
        console.print("\n  shadow mode: it changes nothing; `tenon shadow report` says what it saw")
    else:
        _show_queues(console, deployed)
        _show_interruption_feed(console, deployed, now)
    if deployed.unready:
        _show_conditions(console, deployed)


def _show_alarms(console: Console, deployed: DeploymentStatus, now: datetime) -> None:
    table = terminal.table("alarm", "for", "description", "runbook", text=("description",))
    for alarm in deployed.alarms:
        age = terminal.age(now - alarm.since)
        table.add_row("", alarm.name, age, alarm.why, alarm.runbook, style=terminal.BAD)
    console.print()
    console.print(table)


def _show_functions(console: Console, deployed: DeploymentStatus, now: datetime) -> None:
    table = terminal.table(
        "function", "last run", "code", "deployed", "problem", text=("problem",), optional=("code", "deployed")
    )
    for function in deployed.functions:
        last_run = f"{terminal.age(now - function.ran)} ago" if function.ran is not None else "?"
        style = terminal.BAD if function.trouble else None
        table.add_row(
            "", function.name, last_run, function.version, function.deployed[:16], function.trouble, style=style
        )
    console.print()
    console.print(table)


def _show_queues(console: Console, deployed: DeploymentStatus) -> None:
    counts = ("visible", "in flight", "delayed", "dead letters")
    table = terminal.table(
        "queue", *counts, "problem", right=counts, text=("problem",), optional=("delayed", "in flight")
    )
    for queue in deployed.queues:
        cells = (str(queue.waiting), str(queue.in_flight), str(queue.delayed), str(queue.dead))
        style = terminal.BAD if queue.dead or queue.trouble else None
        table.add_row("", queue.name, *cells, queue.trouble, style=style)
    console.print()
    console.print(table)


def _show_interruption_feed(console: Console, deployed: DeploymentStatus, now: datetime) -> None:
    feed = deployed.interruption_feed
    console.print()
    for problem in feed.problems:
        console.print(f"  interruption queue: {problem}", style=terminal.BAD)
    if not feed.problems:
        last = f"last event {terminal.age(now - feed.last_event)} ago" if feed.last_event else "no event in 14 days"
        console.print(f"  interruption queue: every rule of AWS's events sends to it; {last}")


def _show_conditions(console: Console, deployed: DeploymentStatus) -> None:
    table = terminal.table("object", "condition", "reason", "message", text=("message",), optional=("reason",))
    for unready in deployed.unready:
        name = f"{unready.kind} {unready.name}"
        table.add_row("", name, unready.condition, unready.reason, unready.message, style=terminal.BAD)
    console.print()
    console.print(table)
