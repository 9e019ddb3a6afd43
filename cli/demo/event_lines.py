"""The demo's event log: one line for each event that users care about."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.text import Text

from shared.base.hints import SCHEDULED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from local.world.timeline import TimelineEvent

    Describe = Callable[[Mapping[str, object]], str]

_STYLES = {
    "pod": "cyan",
    "claim": "magenta",
    "node": "green",
    "call": "yellow",
    "invocation": "blue",
    "interruption": "bold red",
    "dead": "bold red",
}
_LABELS = {"call": "AWS", "invocation": "function", "dead": "dead"}
_SHOWN_CALLS = frozenset({"ec2 CreateFleet", "ec2 TerminateInstances"})


class EventLines:
    """Formats timeline events. ``price`` returns USD per hour of (instance type, zone, capacity type)."""

    def __init__(self, *, start: datetime, price: Callable[[str, str, str], float]) -> None:
        self._start = start
        self._price = price

    def line(self, event: TimelineEvent) -> Text | None:
        """The line, or None for events that only help debugging."""
        description = self._description(event)
        if not description:
            return None
        at = event.at
        if event.type == "invocation":
            # An invocation is logged when it ends, after the events that it caused.
            at += timedelta(seconds=event.details["latency"])
        seconds = (at - self._start).total_seconds()
        kind = event.type.split()[0]
        return Text.assemble(
            (f"{int(seconds // 60):3d}:{seconds % 60:04.1f}  ", "dim"),
            (f"{_LABELS.get(kind, kind):<9}", _STYLES.get(kind, "")),
            (event.name.removeprefix("default/"), "bold"),
            " ",
            Text.from_markup(description),
        )

    def _description(self, event: TimelineEvent) -> str:
        """The text after the name, as rich markup; empty if the event is not shown."""
        if event.type == "claim launched":
            details = event.details
            price = self._price(details["instance_type"], details["zone"], details["capacity_type"])
            offering = f"{details['instance_type']} {details['capacity_type']} in {details['zone']}"
            return f"launched as {details['instance']}: {offering}, ${price:.4f}/h"
        if event.type == "call":
            return _call(event)
        if event.type == "invocation":
            return _invocation(event)
        return _DESCRIPTIONS[event.type](event.details) if event.type in _DESCRIPTIONS else ""


_DESCRIPTIONS: dict[str, Describe] = {
    "pod bound": lambda details: f"bound to {details['node']}",
    "pod running": lambda _: "running",
    "claim created": lambda details: f"created for NodePool {details['pool']}",
    "claim initialized": lambda details: f"initialized, node {details['node']}",
    "claim terminating": lambda _: "is being deleted",
    "claim deleted": lambda details: f"deleted, instance {details['instance'] or '(never launched)'} terminated",
    "node registered": lambda _: "joined",
    "node ready": lambda _: "ready",
    "node not ready": lambda _: "[red]not ready[/red]",
    "node cordoned": lambda _: "cordoned",
    "node deleted": lambda _: "deleted",
    "interruption": lambda _: "spot interruption warning: EC2 reclaims the instance in two minutes",
    "dead letter": lambda details: escape(str(details["reason"] or details["body"])),
}


def _call(event: TimelineEvent) -> str:
    details = event.details
    if details["error"]:
        return f"called by {details['caller'] or 'the local cluster'}: [red]{escape(str(details['error']))}[/red]"
    return f"called by {details['caller']}, {details['latency'] * 1000:.0f} ms" if event.name in _SHOWN_CALLS else ""


def _invocation(event: TimelineEvent) -> str:
    trigger = escape(str(event.details["trigger"]))
    if not event.details["ok"]:
        return f"[red]failed[/red], triggered by {trigger}: {escape(str(event.details['error']))}"
    return "" if trigger == SCHEDULED else f"ran {event.details['latency'] * 1000:.0f} ms, triggered by {trigger}"
