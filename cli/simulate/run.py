"""Runs ``tenon simulate``: the scheduling decision for the objects in some files, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli import json_output
from cli.errors import UsageError
from cli.printable import echo
from cli.progress import progress
from cli.simulate import decision_output, input_files, json_decision
from shared.api.quantity import QuantityError
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.simulate.input_files import SimulationInput


def read(files: Sequence[Path]) -> SimulationInput:
    """The objects in the files.

    Raises:
        UsageError: a file or an object isn't valid.
    """
    try:
        return input_files.simulation_input(input_files.read(files), now=datetime.now(UTC))
    except QuantityError as error:
        raise UsageError(str(error)) from error


def show(simulation: SimulationInput, *, as_json: bool) -> None:
    """Print the decision for the objects."""
    for invalid in simulation.invalid:
        for problem in invalid.problems:
            echo(f"{invalid.ref}: {problem}", err=True)
    for note in simulation.notes:
        echo(f"note: {note}", err=True)
    with progress("Deciding"):
        decision = schedule(simulation.problem)
    if as_json:
        echo(json_output.text("simulate", json_decision.output(decision, simulation.refused)))
    else:
        decision_output.show(decision, simulation.refused)
