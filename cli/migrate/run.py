"""Runs ``tenon migrate cluster-autoscaler``: Tenon scales node groups by the flags that Cluster Autoscaler had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import json_output, terminal
from cli.cluster import kubeconfig_context, live_reader, source
from cli.errors import CommandError
from cli.migrate import autoscaler_deployment, flags, json_migration, output, planning, takeover
from cli.migrate.json_migration import UndoneMigration
from cli.printable import echo
from cli.progress import progress
from shared.node_groups import options, stored_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from cli.cluster.cluster_reference import ClusterReference


def take_over(
    reference: ClusterReference, chosen: tuple[str, str], *, limit: timedelta | None, force: bool, as_json: bool
) -> None:
    """Show the plan, and with a ``limit`` carry it out."""
    with progress(source.reading(None)):
        reference = kubeconfig_context.resolve_named(reference)
        with live_reader.read_only_aws(reference):
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
        echo(json_output.text("migrate cluster-autoscaler", migration))
    if prevented:
        raise CommandError(f"{'; '.join(plan.obstacles)} (or give --force)")
    if not as_json:
        output.show_end(console, plan, changed, applied=limit is not None)


def undo(reference: ClusterReference, *, limit: timedelta, force: bool, as_json: bool) -> None:
    """Bring Cluster Autoscaler back as the migration's record says."""
    client = live_reader.connect(kubeconfig_context.resolve(reference))
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
        client, deployment, config_map, record, limit=None if invisible else limit, progress=_progress(as_json=as_json)
    )
    if as_json:
        undone = UndoneMigration(deployment=record.reference, replicas=record.replicas, changed=list(changed))
        echo(json_output.text("migrate cluster-autoscaler", undone))
    else:
        output.show_undone(terminal.console(), record)


def _progress(*, as_json: bool) -> Callable[[str], None]:
    """Lines of progress: with JSON on standard error."""
    return lambda text: echo(f"  {text}", err=as_json)
