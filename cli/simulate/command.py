"""``tenon simulate``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.command_help import examples
from cli.errors import errors_as_one_line
from cli.progress import progress


@examples(
    "tenon simulate problem.json",
    "tenon simulate nodepool.yaml deployment.yaml",
    "kubectl get pods,nodes -A -o json | tenon simulate - types.json --json",
)
def simulate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="A JSON or YAML file, may be gzipped; - is standard input.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Print the scheduling decision for the objects in FILE, without a cluster.

    The objects are manifests or output of `kubectl get … -o json`. New nodes are launched from the instance types that
    a FILE lists as "instanceTypes"; if none does, from EC2's, with made-up prices (`tenon plan --aws` has AWS's).
    """
    with errors_as_one_line("simulate"):
        with progress("Reading the files"):
            from cli.simulate import run

            simulation = run.read(files)
        run.show(simulation, as_json=as_json)
