"""``tenon simulate``: the scheduling decision for the objects in some files, without a cluster."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads the annotation when it runs)
from typing import Annotated

import typer

from cli.errors import UsageError, errors_as_one_line
from cli.progress import progress


def simulate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="A JSON or YAML file, may be gzipped; - is standard input."),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Print the scheduling decision for the objects in FILE, without a cluster.

    The objects are manifests or output of `kubectl get … -o json`. New nodes are only launched from instance types that
    a FILE lists as "instanceTypes"; `tenon plan --file FILE` uses those of EC2 instead.

    For example:

      tenon simulate problem.json
      kubectl get pods,nodes -A -o json | tenon simulate - types.json --json
    """
    with errors_as_one_line("simulate"):
        _simulate(files, as_json=as_json)


def _simulate(files: list[Path], *, as_json: bool) -> None:
    with progress("Reading the files"):
        from datetime import UTC, datetime  # noqa: PLC0415 (next to the others)

        from cli import json_output  # noqa: PLC0415 (slow to import)
        from cli.simulate import decision_output, input_files, json_decision  # noqa: PLC0415 (the same)
        from shared.api.quantity import QuantityError  # noqa: PLC0415 (the same)
        from shared.scheduling.scheduler import schedule  # noqa: PLC0415 (the same)

        try:
            simulation = input_files.simulation_input(input_files.read(files), now=datetime.now(UTC))
        except QuantityError as error:
            raise UsageError(str(error)) from error
    for invalid in simulation.invalid:
        for problem in invalid.problems:
            typer.echo(f"{invalid.ref}: {problem}", err=True)
    for note in simulation.notes:
        typer.echo(f"note: {note}", err=True)
    with progress("Deciding"):
        decision = schedule(simulation.problem)
    if as_json:
        typer.echo(json_output.text("simulate", json_decision.output(decision, simulation.refused)))
    else:
        decision_output.show(decision, simulation.refused)
