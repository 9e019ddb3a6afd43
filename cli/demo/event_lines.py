"""The demo's running text: one line for each thing that happened and matters to a person."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.text import Text

from shared.hints import SCHEDULED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from local.world.timeline import TimelineEvent

    Words = Callable[[Mapping[str, object]], str]

_STYLES = {
    "pod": "cyan",
    "claim": "magenta",
    "node": "green",
    "call": "yellow",
    "invocation": "blue",
    "interruption": "bold red",
    "dead": "bold red",
}
_NAMES = {"call": "AWS", "invocation": "function", "dead": "dead"}
_CALLS = frozenset({"ec2 CreateFleet", "ec2 TerminateInstances"})


class Story:
    """Turns happenings into lines. ``price`` gives USD per hour of (instance type, zone, capacity type)."""

    def __init__(self, *, start: datetime, price: Callable[[str, str, str], float]) -> None:
        self._start = start
        self._price = price

    def line(self, happening: TimelineEvent) -> Text | None:
        """The line, or None for what only matters to a debugger."""
        said = self._said(happening)
        if not said:
            return None
        at = happening.at
        if happening.type == "invocation":
            # Told when it ended, as everything it did was told before.
            at += timedelta(seconds=happening.details["latency"])
        seconds = (at - self._start).total_seconds()
        kind = happening.type.split()[0]
        return Text.assemble(
            (f"{int(seconds // 60):3d}:{seconds % 60:04.1f}  ", "dim"),
            (f"{_NAMES.get(kind, kind):<9}", _STYLES.get(kind, "")),
            (happening.name.removeprefix("default/"), "bold"),
            " ",
            Text.from_markup(said),
        )

    def _said(self, h: TimelineEvent) -> str:
        """What follows the name, as rich markup; empty: nothing to say."""
        if h.type == "claim launched":
            about = h.details
            price = self._price(about["instance_type"], about["zone"], about["capacity_type"])
            offering = f"{about['instance_type']} {about['capacity_type']} in {about['zone']}"
            return f"is {about['instance']}: {offering}, ${price:.4f}/h"
        if h.type == "call":
            return _call(h)
        if h.type == "invocation":
            return _invocation(h)
        return _SAYINGS[h.type](h.details) if h.type in _SAYINGS else ""


_SAYINGS: dict[str, Words] = {
    "pod bound": lambda about: f"placed on {about['node']}",
    "pod running": lambda _: "runs",
    "claim created": lambda about: f"asked for by NodePool {about['pool']}",
    "claim initialized": lambda about: f"initialized: pods can run on {about['node']}",
    "claim leaving": lambda _: "is given up",
    "claim gone": lambda about: f"gone, {about['instance'] or 'never launched'} terminated",
    "node joined": lambda _: "joined",
    "node ready": lambda _: "ready",
    "node not ready": lambda _: "[red]not ready[/red]",
    "node cordoned": lambda _: "takes no more pods",
    "node gone": lambda _: "gone",
    "interruption": lambda _: "will be taken back by EC2 in two minutes",
    "dead letter": lambda about: escape(str(about["reason"] or about["body"])),
}


def _call(h: TimelineEvent) -> str:
    if h.details["error"]:
        return f"by {h.details['caller'] or 'the world'}: [red]{escape(str(h.details['error']))}[/red]"
    return f"by {h.details['caller']}, {h.details['latency'] * 1000:.0f} ms" if h.name in _CALLS else ""


def _invocation(h: TimelineEvent) -> str:
    trigger = escape(str(h.details["trigger"]))
    if not h.details["ok"]:
        return f"[red]failed[/red], woken by {trigger}: {escape(str(h.details['error']))}"
    return "" if trigger == SCHEDULED else f"ran {h.details['latency'] * 1000:.0f} ms, woken by {trigger}"
