"""``tenon simulate``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.command_help import examples
from cli.errors import errors_as_one_line
from cli.progress import progress


@examples("tenon simulate problem.json", "kubectl get pods,nodes -A -o json | tenon simulate - types.json --json")
def simulate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="A JSON or YAML file, may be gzipped; - is standard input.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Print the scheduling decision for the objects in FILE, without a cluster.

    The objects are manifests or output of `kubectl get … -o json`. New nodes are only launched from instance types that
    a FILE lists as "instanceTypes"; `tenon plan --file FILE` uses those of EC2 instead.
    """
    with errors_as_one_line("simulate"):
        with progress("Reading the files"):
            from cli.simulate import run

            simulation = run.read(files)
        run.show(simulation, as_json=as_json)
