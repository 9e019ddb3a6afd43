"""Event patterns, matched by the engine that EventBridge runs (software.amazon.event.ruler), and by the local one."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from moto.events.models import EventPattern

from infra import assembly
from shared.base.struct import Struct
from tests.infra.resolved_template import resolved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Event = dict[str, Any]
DEFAULT_BUS = "default"
OWN_BUS = "tenon-demo"
_SECONDS = 120


class Rule(Struct, kw_only=True):
    """A rule of a synthesised stack: the last part of its name, its bus, and its pattern."""

    name: str
    bus: str
    pattern: Mapping[str, Any]


class Matches(Struct, kw_only=True):
    """For each event the names of the patterns that match it, and the reasons of the patterns that are invalid."""

    by_event: list[frozenset[str]]
    refused: Mapping[str, str]


def rules_of(context: Mapping[str, str]) -> list[Rule]:
    """The rules with a pattern in the templates of a stack that is deployed with these options."""
    context = {"bundle": "source", "clusterSide": "printed", **context}
    cluster = "" if "fleet" in context else "demo"
    folder = assembly.cached(cluster=cluster, root=assembly.CHECKOUT, context=context)
    properties = [
        resource["Properties"]
        for path in sorted(folder.glob("*.template.json"))
        for resource in json.loads(path.read_text())["Resources"].values()
        if resource["Type"] == "AWS::Events::Rule" and "EventPattern" in resource["Properties"]
    ]
    return [
        Rule(
            name=rule["Name"].rpartition(".")[2],
            bus=OWN_BUS if isinstance(rule.get("EventBusName"), dict) else rule.get("EventBusName", DEFAULT_BUS),
            pattern=resolved(rule["EventPattern"]),
        )
        for rule in properties
    ]


def matches(engine: Path, patterns: Mapping[str, Mapping[str, Any]], events: Sequence[Event]) -> Matches:
    """What EventBridge's engine matches."""
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", "lib/*", "Judge.java"],
        cwd=engine,
        input=json.dumps({"patterns": patterns, "events": events}),
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    answer = json.loads(done.stdout)
    return Matches(by_event=[frozenset(names) for names in answer["matches"]], refused=answer["refused"])


def local_matches(patterns: Mapping[str, Mapping[str, Any]], events: Sequence[Event]) -> list[frozenset[str]]:
    """What the local EventBridge matches."""
    matchers = {name: EventPattern(json.dumps(pattern), dict(pattern)) for name, pattern in patterns.items()}
    return [frozenset(name for name, matcher in matchers.items() if matcher.matches_event(event)) for event in events]
