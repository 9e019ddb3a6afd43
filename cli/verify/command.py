"""``tenon verify NAME``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import FAILED, UsageError, errors_as_one_line
from cli.printable import echo
from cli.progress import progress

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The EKS cluster's name, as --cluster; default: from the context.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the steps, their cost and rights; make nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before anything is bought.")]
CleanUp = Annotated[bool, typer.Option("--clean-up", help="Only remove what earlier runs have left.")]
OnlySteps = Annotated[
    list[str] | None,
    typer.Option("--step", metavar="STEP", help="Only this step, and those that it needs; may be repeated."),
]
NodeClass = Annotated[
    str, typer.Option(metavar="NAME", help="Copy this EC2NodeClass; default: one of the cluster's own subnets.")
]
Image = Annotated[str, typer.Option(metavar="IMAGE", help="The image of the pods, for clusters with a registry.")]
FisRole = Annotated[
    str, typer.Option(metavar="ARN", help="A role of AWS FIS that may interrupt spot instances; the warning is real.")
]
Html = Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")]
Latencies = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the latencies of AWS's calls to this file (YAML), too.")
]


@examples("tenon verify prod --dry-run", "tenon verify prod --yes --html verify.html")
def verify(
    name: Name = "",
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    clean_up: CleanUp = False,
    step: OnlySteps = None,
    node_class: NodeClass = "",
    image: Image = "registry.k8s.io/pause:3.10",
    fis_role: FisRole = "",
    html: Html = Path("tenon-verify.html"),
    latencies: Latencies = None,
    as_json: source.Json = False,
) -> None:
    """Prove a deployment: launch, drain and remove a few small nodes in a NodePool of its own, and clean up.

    It takes about a quarter of an hour and costs a few cents, which it states before it asks. Everything that it makes
    has the label tenon.sh/verify or the tag tenon-verify, and is removed at the end; what a killed run left, the next
    one removes.

    Exit code 0: every step passed; 1: one failed, or something couldn't be removed.
    """
    with errors_as_one_line("verify"):
        if name and cluster and name != cluster:
            raise UsageError(f'NAME "{name}" and --cluster "{cluster}" differ')
        with progress("Reading the cluster and AWS"):
            from cli.verify import page, run, steps
            from cli.verify.verification import Settings

            chosen = steps.chosen(step or ())
            reference = ClusterReference(context=context, cluster=name or cluster, region=region)
            verification = run.begin(reference, Settings(node_class=node_class, pod_image=image, fis_role=fis_role))
        if clean_up:
            _remove(run.remove_left_over(verification))
            return
        planned = run.planned(verification, chosen)
        if dry_run:
            run.show_plan(planned, as_json=as_json)
            return
        if not yes:
            _confirm(verification.cluster, minutes=planned.minutes, usd=planned.usd)
        report = run.verify(verification, chosen, show=_shows_nothing if as_json else run.show_step)
        page.save(report, html)
        if latencies is not None:
            run.save_latencies(report, latencies)
        run.show(verification.cluster, report, page=html, as_json=as_json)
    raise typer.Exit(0 if report.passed else FAILED)


def _confirm(cluster: str, *, minutes: float, usd: float) -> None:
    """Ask before anything is bought.

    Raises:
        UsageError: the answer is no.
    """
    question = f"Verify {cluster}: about {minutes:.0f} minutes, at most ${usd:.2f}. Continue?"
    if not typer.confirm(question, err=True):
        raise UsageError("nothing was made; --dry-run lists the steps, --yes doesn't ask")


def _remove(left: list[str]) -> None:
    if left:
        echo(f"not removed: {', '.join(left)}", err=True)
        raise typer.Exit(FAILED)
    echo("nothing is left")


def _shows_nothing(_result: object) -> None:
    """With --json, standard output has the report only."""
