"""The ``tenon`` command. Exit codes: 0 done, 1 it failed, 2 asked for what isn't there, 130 interrupted."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads the annotations when it runs)
from typing import Annotated

import typer

from cli.catalog import catalog
from cli.errors import CommandError
from cli.explain.command import explain
from cli.manifests import manifests
from cli.nodes.command import nodes
from cli.plan.command import plan
from cli.report.command import report
from cli.simulate.command import simulate
from cli.status.command import status

app = typer.Typer(
    name="tenon",
    help="Just-in-time nodes for Amazon EKS, with no controller in the cluster.",
    epilog="Exit codes: 0 done; 1 it could not be done; 2 asked for what is not there; 130 interrupted. "
    "Colours only on a terminal, and never with NO_COLOR. docs/cli.md shows each command.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


app.command()(plan)
app.command()(explain)
app.command()(nodes)
app.command()(report)
app.command()(status)
app.command()(simulate)
app.command()(manifests)
app.command()(catalog)


@app.command()
def demo(
    manifest: Annotated[
        list[str] | None,
        typer.Option(help="A YAML file, or the name of one that comes with Tenon; may be given again."),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(help="NAME=REPLICAS,REPLICAS: each step waits until the cluster is at rest."),
    ] = None,
    interrupt: Annotated[
        str | None,
        typer.Option(help="spot=all or spot=NUMBER: EC2 takes machines back once the first step is at rest."),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="What goes wrong: spot-capacity=PLACE:N or on-demand-capacity=PLACE:N (so many instances are left; "
            "PLACE is a zone, an instance type or all), boot=PLACE:N (so many machines fail to start), "
            "throttle=OPERATION:N (so many calls are refused, such as CreateFleet:4); may be given again."
        ),
    ] = None,
    region: Annotated[str, typer.Option(help="The AWS Region that the world plays in.")] = "us-east-1",
    seed: Annotated[int, typer.Option(help="Another seed, other delays and prices; the same seed, the same run.")] = 0,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the run as JSON, for `tenon report FILE`.")
    ] = None,
    report_to: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the run as one HTML page.")
    ] = None,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the world up and print its kubeconfig.")] = False,
    only_json: Annotated[bool, typer.Option("--json", help="Print only the result, one line of JSON.")] = False,
) -> None:
    """Show the whole system on this machine: pending pods become nodes, empty nodes go.

    Without options it applies spot-default.yaml and scales inflate 0 → 5 → 0.

    For example:

      tenon demo

      tenon demo --json

      tenon demo --manifest team1.yaml --manifest spot-default.yaml --scale inflate-team1=3,0

      tenon demo --interrupt spot=all

      tenon demo --fault spot-capacity=us-east-1a:0 --fault throttle=CreateFleet:4

      tenon demo --keep

      tenon demo --report run.html
    """
    from cli.demo.command import DEFAULT_MANIFEST, Request, Scale, run  # noqa: PLC0415 (slow to import)
    from cli.demo.faults import Fault  # noqa: PLC0415 (the same)
    from cli.demo.interruptions import Interrupt  # noqa: PLC0415 (the same)

    try:
        scales = tuple(Scale.parse(s) for s in scale or ())
        faults = tuple(Fault.parse(f) for f in fault or ())
        taken = None if interrupt is None else Interrupt.parse(interrupt)
    except (CommandError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    request = Request(
        manifests=tuple(manifest or (DEFAULT_MANIFEST,)),
        scales=scales,
        interrupt=taken,
        faults=faults,
        keep=keep,
        only_json=only_json,
        region=region,
        seed=seed,
        record=record,
        report=report_to,
    )
    raise typer.Exit(run(request))


def run() -> None:
    """Run the command line."""
    app()
