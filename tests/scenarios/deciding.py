"""What ``tenon simulate --json`` answers to a document, without a process for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from cli.simulate import decision_output, input_files
from shared.scheduling.scheduler import schedule

Raw = dict[str, Any]
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def question(raw: Raw) -> input_files.SimulationInput:
    """The problem that the document states."""
    document = input_files.Document()
    input_files.add(document, json.loads(json.dumps(raw)), "problem")
    return input_files.simulation_input(document, now=NOW)


def answer(asked: input_files.SimulationInput) -> Raw:
    """The decision, without the figures that are no part of it."""
    found: Raw = json.loads(json.dumps(decision_output.as_json(schedule(asked.problem), asked.refused)))
    found.pop("stats")
    return found
