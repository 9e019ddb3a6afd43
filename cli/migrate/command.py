"""``tenon migrate cluster-autoscaler``: node groups continue with Tenon, by the flags that Cluster Autoscaler had."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cli.cluster import source  # noqa: TC001 (typer reads the annotations when it runs)
from cli.command_help import Command, Group
from cli.errors import CommandError, UsageError, errors_as_one_line
from cli.kubectl_plugin import with_kubeconfig
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.cluster.cluster_reference import ClusterReference

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
    int,
    typer.Option("--timeout", metavar="SECONDS", min=0, max=86_400, help="How long to wait for pods."),
]


@migrate.callback()
def _commands() -> None:
    """Take over the work of another autoscaler, or give it back."""


@migrate.command("cluster-autoscaler", cls=Command)
@with_kubeconfig
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

    For example:

      tenon migrate cluster-autoscaler
      tenon migrate cluster-autoscaler --apply
      tenon migrate cluster-autoscaler --undo
    """
    with errors_as_one_line("migrate cluster-autoscaler"):
        if apply and undo:
            raise UsageError("--apply and --undo exclude each other")
        with progress("Reading the cluster"):
            from cli.cluster import live_reader  # noqa: PLC0415 (slow to import, and --help doesn't need it)
            from cli.cluster.cluster_reference import ClusterReference, resolve  # noqa: PLC0415 (next to its use)

            reference = resolve(ClusterReference(context=context, cluster=cluster, region=region))
        limit = timedelta(seconds=timeout)
        if undo:
            _undo(reference, limit=limit, force=force, as_json=as_json)
            return
        if not reference.cluster:
            raise UsageError(live_reader.NO_CLUSTER_NAME)
        _take_over(reference, (namespace, name), limit=limit if apply else None, force=force, as_json=as_json)


def _take_over(
    reference: ClusterReference, chosen: tuple[str, str], *, limit: timedelta | None, force: bool, as_json: bool
) -> None:
    """Show the plan, and with a ``limit`` carry it out."""
    from cli import json_output, terminal  # noqa: PLC0415 (slow to import)
    from cli.cluster import live_reader  # noqa: PLC0415 (the same)
    from cli.migrate import json_migration, output, planning, takeover  # noqa: PLC0415 (the same)

    with progress("Reading the cluster"), live_reader.read_only_aws(reference):
        client = live_reader.connect(reference)
        plan = planning.read(client, reference.cluster, *chosen)
    console = terminal.console()
    if not as_json:
        output.show(console, plan, cluster=reference.cluster)
    prevented = bool(plan.obstacles) and not force
    changed: list[str] = []
    if limit is not None and not prevented:
        changed = takeover.apply(
            client, plan.deployment, plan.config_map, plan.data, limit=limit, progress=_progress(as_json=as_json)
        )
    if as_json:
        migration = json_migration.output(plan, changed, applied=limit is not None and not prevented)
        typer.echo(json_output.text("migrate cluster-autoscaler", migration))
    if prevented:
        raise CommandError(f"{'; '.join(plan.obstacles)} (or give --force)")
    if not as_json:
        output.show_end(console, plan, changed, applied=limit is not None)


def _undo(reference: ClusterReference, *, limit: timedelta, force: bool, as_json: bool) -> None:
    from cli import json_output, terminal  # noqa: PLC0415 (slow to import)
    from cli.cluster import live_reader  # noqa: PLC0415 (the same)
    from cli.migrate import autoscaler_deployment, flags, output, takeover  # noqa: PLC0415 (the same)
    from cli.migrate.json_migration import UndoneMigration  # noqa: PLC0415 (the same)
    from shared.node_groups import options, stored_options  # noqa: PLC0415 (the same)

    client = live_reader.connect(reference)
    config_map = stored_options.read_config_map(client, options.CONFIG_MAP)
    record = takeover.read_record(config_map)
    if record is None:
        raise CommandError(f"nothing to undo: no ConfigMap {takeover.CONFIG_MAP} says what a migration replaced")
    deployment = autoscaler_deployment.find_named(client, record.namespace, record.name)
    if deployment is None:
        raise CommandError(
            f"Deployment {record.reference} is gone: install Cluster Autoscaler again with 0 replicas and run this "
            f"again, or stay with Tenon (`kubectl -n kube-system delete configmap {options.CONFIG_MAP}` gives it its "
            "defaults)"
        )
    invisible = flags.translate(flags.read(deployment.arguments, deployment.environment)).invisible
    if invisible and record.replicas and not force:
        raise CommandError(
            f"Cluster Autoscaler has {invisible}, so Tenon can't see that it runs, and both would scale groups: deploy "
            "with -c nodeGroups=off first, and then give --force"
        )
    changed = takeover.undo(
        client,
        deployment,
        config_map,
        record,
        limit=None if invisible else limit,
        progress=_progress(as_json=as_json),
    )
    if as_json:
        undone = UndoneMigration(deployment=record.reference, replicas=record.replicas, changed=list(changed))
        typer.echo(json_output.text("migrate cluster-autoscaler", undone))
    else:
        output.show_undone(terminal.console(), record)


def _progress(*, as_json: bool) -> Callable[[str], None]:
    """Lines of progress: with JSON on standard error."""
    return lambda text: typer.echo(f"  {text}", err=as_json)
