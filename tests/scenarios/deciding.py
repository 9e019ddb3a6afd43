"""What ``tenon simulate --json`` answers to a document, without a process for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from cli import simulate
from shared.scheduling.scheduler import schedule

Raw = dict[str, Any]
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def question(raw: Raw) -> simulate.Question:
    """The problem that the document states."""
    document = simulate.Document()
    simulate._add(document, json.loads(json.dumps(raw)), "problem")
    return simulate.question(document, now=NOW)


def answer(asked: simulate.Question) -> Raw:
    """The decision, without the figures that are no part of it."""
    found: Raw = json.loads(json.dumps(simulate.answer(schedule(asked.problem), asked.refused)))
    found.pop("stats")
    return found
