"""The decision that ``tenon simulate --json`` prints for a document, without a process of its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from cli import json_output, problem_files
from cli.simulate import json_decision
from shared.scheduling.scheduler import schedule

Raw = dict[str, Any]
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def simulation_input(raw: Raw) -> problem_files.SimulationInput:
    """The scheduling problem of a document."""
    document = problem_files.Document()
    problem_files.add(document, json.loads(json.dumps(raw)), "problem")
    return problem_files.simulation_input(document, now=NOW)


def decide(simulation: problem_files.SimulationInput) -> Raw:
    """The decision, without its stats."""
    output = json_decision.output(schedule(simulation.problem), simulation.refused)
    decision: Raw = json.loads(json_output.text("simulate", output))
    decision.pop("stats")
    return decision
