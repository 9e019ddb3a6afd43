"""``tenon preflight NAME``: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import FAILED, UsageError, errors_as_one_line
from cli.progress import progress

Name = Annotated[str, typer.Argument(metavar="NAME", help="The EKS cluster's name.")]
Subnets = Annotated[
    str,
    typer.Option(metavar="IDS", help="The subnets that the functions will run in (-c subnets), separated by commas."),
]
Relay = Annotated[
    str, typer.Option(metavar="RELAY", help="What will watch the cluster (-c relay): function, pod or webhook.")
]


@examples("tenon preflight prod --region eu-central-1", "tenon preflight prod --subnets subnet-1,subnet-2 --json")
def preflight(
    name: Name,
    subnets: Subnets = "",
    context: source.Context = "",
    region: source.Region = "",
    *,
    relay: Relay = "function",
    as_json: source.Json = False,
) -> None:
    """Check a cluster and its account before Tenon is deployed, and say what to do.

    Exit code 0: every check passed; 1: one failed, or can't be read; 2: there is no such cluster. It only reads.
    """
    with errors_as_one_line("preflight"):
        if relay not in {"function", "pod", "webhook"}:
            raise UsageError(f"--relay={relay}: must be function, pod or webhook")
        with progress("Checking the cluster and its account"):
            from cli.preflight import run

            reference = ClusterReference(context=context, cluster=name, region=region)
            findings = run.findings(
                reference, [part.strip() for part in subnets.split(",") if part.strip()], relay=relay
            )
        run.show(name, findings, as_json=as_json)
    raise typer.Exit(0 if all(finding.status == "passed" for finding in findings) else FAILED)
