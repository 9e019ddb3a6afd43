"""``tenon demo``: the options, and running the demo."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from cli.command_help import examples
from cli.errors import CommandError, errors_as_one_line
from cli.progress import progress

_MAX_REST = 7 * 24 * 60

Manifests = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="A YAML file, or the name of an included manifest; repeatable.")
]
Scales = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=N,N",
        help="NAME=REPLICAS,REPLICAS: each step waits until the cluster is idle. A NAME such as 'web-*' scales all "
        "Deployments that match at once (quote it, or the shell expands it); repeatable.",
    ),
]
SpotInterruptions = Annotated[
    str | None,
    typer.Option(metavar="SPOT", help="spot=all or spot=NUMBER: EC2 interrupts spot instances after the first step."),
]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FAULT",
        help="A fault to inject: spot-capacity=PLACE:N or on-demand-capacity=PLACE:N (EC2 has N instances left; "
        "PLACE is a zone, an instance type or all), boot=PLACE:N (N instances fail to start), "
        "throttle=OPERATION:N (N calls are throttled, such as CreateFleet:4); repeatable.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-c",
        metavar="KEY=VALUE",
        help="A setting of the deployment, as in cdk deploy -c: nodeGroups=on, standby=on, relay=webhook; repeatable.",
    ),
]
Region = Annotated[str, typer.Option(metavar="REGION", help="The AWS Region to simulate.")]
Seed = Annotated[
    int, typer.Option(metavar="NUMBER", help="The seed of delays and prices; the same seed repeats the run.")
]
Record = Annotated[Path | None, typer.Option(metavar="FILE", help="Save the run as JSON, for `tenon report FILE`.")]
Report = Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write the run as one HTML page.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Run in this throw-away cluster (kind, k3d, minikube), in real time, instead of an embedded one.",
    ),
]
AllowNodes = Annotated[
    bool, typer.Option("--allow-nodes", help="With --kubeconfig: run although the cluster has nodes that take pods.")
]
AllowPending = Annotated[bool, typer.Option("--allow-pending", help="Exit with 0 although pods stay pending.")]
Hostile = Annotated[
    bool,
    typer.Option(
        "--hostile",
        help="EC2's answers lag and leave instances out, an instance dies at boot, instances and pods stop slowly, "
        "functions run at once, and the cluster has objects of EKS Auto Mode.",
    ),
]
Rest = Annotated[
    float | None,
    typer.Option(metavar="MINUTES", help="Wait at most this long after each step, in minutes of cluster time."),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the cluster running and print its kubeconfig.")]
OnlyJson = Annotated[bool, typer.Option("--json", help="Print only the result, as one line of JSON.")]


@examples(
    "tenon demo",
    "tenon demo --json",
    "tenon demo --scale inflate=12,5,0",
    "tenon demo --manifest team1.yaml --manifest spot.yaml --rest 30",
    "tenon demo --interrupt spot=all",
    "tenon demo --fault spot-capacity=us-east-1a:0 --fault throttle=CreateFleet:4",
    "tenon demo -c standby=on --manifest standby.yaml",
    "tenon demo --hostile",
    "tenon demo --keep",
    "tenon demo --report run.html",
    "tenon demo --kubeconfig kind.yaml",
)
def demo(
    manifest: Manifests = None,
    scale: Scales = None,
    interrupt: SpotInterruptions = None,
    fault: Faults = None,
    region: Region = "us-east-1",
    seed: Seed = 0,
    record: Record = None,
    report_to: Report = None,
    *,
    settings: Settings = None,
    kubeconfig: Kubeconfig = None,
    allow_nodes: AllowNodes = False,
    allow_pending: AllowPending = False,
    hostile: Hostile = False,
    rest: Rest = None,
    keep: Keep = False,
    only_json: OnlyJson = False,
) -> None:
    """Run Tenon on this machine: nodes are launched for pending pods, and empty nodes are terminated.

    By default it applies spot.yaml and scales inflate 0 → 5 → 0.

    If pods stay pending at the end of a step, the exit code is 1.
    """
    with errors_as_one_line("demo"), progress("Starting"):
        from infra import installation

        installation.require("demo", "tenon demo")
        from cli.cluster import regions
        from cli.demo.faults import Fault
        from cli.demo.interruptions import Interrupt
        from cli.demo.request import DEFAULT_MANIFEST, DemoRequest, Scale, context_of
        from cli.demo.runner import run

    _check(rest, kubeconfig, "--hostile" if hostile else "-c" if settings else "")
    try:
        request = DemoRequest(
            manifests=tuple(manifest or (DEFAULT_MANIFEST,)),
            scales=tuple(Scale.parse(s) for s in scale or ()),
            interrupt=None if interrupt is None else Interrupt.parse(interrupt),
            faults=tuple(Fault.parse(f) for f in fault or ()),
            settings=context_of(settings),
            hostile=hostile,
            rest=None if rest is None else timedelta(minutes=rest),
            keep=keep,
            only_json=only_json,
            region=regions.known(region),
            seed=seed,
            kubeconfig=kubeconfig,
            allow_nodes=allow_nodes,
            allow_pending=allow_pending,
            record=record,
            report=report_to,
        )
    except (CommandError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.Exit(run(request))


def _check(rest: float | None, kubeconfig: Path | None, embedded: str) -> None:
    """Check options that don't fit together; ``embedded`` is the one that needs the embedded cluster.

    Raises:
        BadParameter: they don't.
    """
    if rest is not None and not 0 < rest <= _MAX_REST:
        raise typer.BadParameter(f"--rest {rest:g}: the minutes must be more than 0, and {_MAX_REST} at most")
    if embedded and kubeconfig is not None:
        raise typer.BadParameter(f"{embedded} needs the embedded cluster, so it can't be combined with --kubeconfig")
