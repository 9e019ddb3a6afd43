"""``tenon status``: functions, queues, alarms and conditions, on one screen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from cli.cluster import source  # noqa: TC001 (typer reads the annotations when it runs)
from cli.errors import FAILED, UsageError, one_line

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from cli.status.deployment import Status


def status(
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Say whether Tenon itself is well: functions, queues, alarms, and conditions of pools and classes.

    Exit code 0: nothing asks for anybody; 1: something does. Reads only.

    For example:

      tenon status

      tenon status --cluster prod --region eu-central-1 --json
    """
    with one_line("status"):
        from cli.cluster import live_reader  # noqa: PLC0415 (slow to import)
        from cli.status import deployment  # noqa: PLC0415 (slow to import)
        from shared import runtime  # noqa: PLC0415 (the same)
        from shared.cluster.errors import ApiError  # noqa: PLC0415 (the same)
        from shared.cluster.kubeconfig import KubeconfigError  # noqa: PLC0415 (the same)
        from shared.cluster.snapshot_reader import SnapshotReader  # noqa: PLC0415 (the same)

        where = live_reader.located(live_reader.Where(context=context, cluster=cluster, region=region))
        if not where.cluster:
            raise UsageError("the kubeconfig's context doesn't say which EKS cluster it is; give --cluster NAME")
        now = runtime.current().now()
        with live_reader.reading_only(where):
            try:
                snapshot, notes = SnapshotReader(live_reader.connect(where)).read(now), []
            except (ApiError, KubeconfigError) as error:
                snapshot, notes = None, [f"the cluster can't be read: {error}"]
            found = deployment.deployment(where.cluster, snapshot, notes=notes)
        if as_json:
            typer.echo(json.dumps(answer(found), default=str))
        else:
            show(found, name=where.cluster, now=now)
        well = found.well and not notes
    raise typer.Exit(0 if well else FAILED)


def answer(found: Status) -> dict[str, object]:
    """As plain JSON values, but for times."""
    from dataclasses import asdict  # noqa: PLC0415 (beside its use)

    return {**asdict(found), "well": found.well}


def show(found: Status, *, name: str, now: datetime) -> None:
    """The screen."""
    from cli import terminal  # noqa: PLC0415 (slow to import)

    console = terminal.console()
    verdict = "all is well" if found.well and not found.notes else "something asks for you"
    style = terminal.GOOD if found.well and not found.notes else terminal.BAD
    console.print(terminal.title(name, verdict, style=f"bold {style}"))
    for note in found.notes:
        console.print(f"  {note}", style=terminal.WAITS)
    _parts(console, found, now)


def _parts(console: Console, found: Status, now: datetime) -> None:
    from cli import terminal  # noqa: PLC0415 (slow to import)

    if found.alarms:
        console.print()
        table = terminal.table("alarm", "for", "what", "runbook")
        for a in found.alarms:
            table.add_row("", a.name, terminal.age(now - a.since), a.why, a.runbook, style=terminal.BAD)
        console.print(table)
    console.print()
    table = terminal.table("function", "last ran", "code", "deployed", "")
    for f in found.functions:
        ran = f"{terminal.age(now - f.ran)} ago" if f.ran is not None else "?"
        table.add_row("", f.name, ran, f.version, f.deployed[:16], f.trouble, style=terminal.BAD if f.trouble else None)
    console.print(table)
    console.print()
    table = terminal.table(
        "queue", "waiting", "taken", "delayed", "dead", "", right=("waiting", "taken", "delayed", "dead")
    )
    for q in found.queues:
        counts = (str(q.waiting), str(q.in_flight), str(q.delayed), str(q.dead))
        table.add_row("", q.name, *counts, q.trouble, style=terminal.BAD if q.dead or q.trouble else None)
    console.print(table)
    if found.unready:
        console.print()
        table = terminal.table("object", "condition", "reason", "message")
        for u in found.unready:
            table.add_row("", f"{u.kind} {u.name}", u.condition, u.reason, u.message, style=terminal.BAD)
        console.print(table)
