"""``tenon migrate``: the options of its commands."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import Command, Group, examples
from cli.errors import UsageError, errors_as_one_line
from cli.kubectl_plugin import with_kubeconfig
from cli.progress import progress

migrate = typer.Typer(
    name="migrate", cls=Group, help="Take over the work of another autoscaler, or give it back.", no_args_is_help=True
)

Apply = Annotated[bool, typer.Option("--apply", help="Write Tenon's ConfigMap and scale Cluster Autoscaler to 0.")]
Undo = Annotated[
    bool, typer.Option("--undo", help="Scale Cluster Autoscaler back as it was, and remove Tenon's ConfigMap.")
]
Force = Annotated[bool, typer.Option("--force", help="Continue although an obstacle was found.")]
AutoscalerNamespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace of Cluster Autoscaler's Deployment.")
]
AutoscalerName = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Cluster Autoscaler's Deployment; default: by labels and command.")
]
Timeout = Annotated[
    int, typer.Option("--timeout", metavar="SECONDS", min=0, max=86_400, help="How long to wait for pods.")
]


@migrate.callback()
def _commands() -> None:
    """Take over the work of another autoscaler, or give it back."""


@migrate.command("cluster-autoscaler", cls=Command)
@with_kubeconfig
@examples(
    "tenon migrate cluster-autoscaler",
    "tenon migrate cluster-autoscaler --apply",
    "tenon migrate cluster-autoscaler --undo",
)
def cluster_autoscaler(
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    namespace: AutoscalerNamespace = "kube-system",
    name: AutoscalerName = "",
    timeout: Timeout = 300,
    *,
    apply: Apply = False,
    undo: Undo = False,
    force: Force = False,
    as_json: source.Json = False,
) -> None:
    """Let Tenon scale the node groups that Cluster Autoscaler scales, with the options that it has.

    Without --apply or --undo it only shows what each flag becomes. Each may be run again after an interruption. Exit
    code 1: an obstacle prevents the migration, or there is nothing to undo.
    """
    with errors_as_one_line("migrate cluster-autoscaler"):
        if apply and undo:
            raise UsageError("--apply and --undo exclude each other")
        with progress(source.reading(None)):
            from cli.migrate import run

        reference = ClusterReference(context=context, cluster=cluster, region=region)
        limit = timedelta(seconds=timeout)
        if undo:
            run.undo(reference, limit=limit, force=force, as_json=as_json)
        else:
            limit_of_apply = limit if apply else None
            run.take_over(reference, (namespace, name), limit=limit_of_apply, force=force, as_json=as_json)


@migrate.command("keda", cls=Command)
@examples(
    "tenon migrate keda overprovisioning.yaml > buffers.yaml",
    "kubectl get scaledobjects,deploy -A -o yaml | tenon migrate keda -",
)
def keda(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="A JSON or YAML file, may be gzipped; - is standard input.")
    ],
) -> None:
    """Print CapacityBuffers that keep the room of pause pods which KEDA scales by cron triggers.

    FILE has the ScaledObjects and their Deployments. Nothing is changed in a cluster. Exit code 1: a ScaledObject can't
    be expressed; standard error says which and why, and the others are printed.
    """
    with errors_as_one_line("migrate keda"):
        with progress("Reading the files"):
            from cli.migrate import keda as command

        command.convert(files)


@migrate.command("karpenter", cls=Command)
@with_kubeconfig
@examples(
    "tenon migrate karpenter",
    "tenon migrate karpenter -f nodepools.yaml -f karpenter.yaml",
    "tenon migrate karpenter --json",
)
def karpenter(
    file: source.File = None,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Say what is different for each object of Karpenter's, and for its settings, once Tenon runs the cluster.

    It reads NodePools, EC2NodeClasses, NodeOverlays and Karpenter's Deployment, and changes nothing. Exit code 1: Tenon
    can't use an object as it is written.
    """
    with errors_as_one_line("migrate karpenter"):
        with progress(source.reading(file)):
            from cli.migrate import karpenter as command

            reference = ClusterReference(context=context, cluster=cluster, region=region)
            objects = command.read_files(file) if file else command.read_cluster(reference)
        command.show(objects, as_json=as_json)
