"""``tenon export``: metrics for Prometheus over HTTP or printed once, a Grafana dashboard, and alerting rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.cluster import source  # noqa: TC001 (typer reads the annotations when it runs)
from cli.errors import CommandError, UsageError, errors_as_one_line

if TYPE_CHECKING:
    from cli.cluster.cluster_reference import ClusterReference
    from cli.export.exporter import Exporter, ExportOptions

MIN_CLOUDWATCH_SECONDS = 60
_SERVE = "Serve"
_PRINT = "Print instead of serving"


def export(
    listen: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="The IP address to listen on; 0.0.0.0 for all.", rich_help_panel=_SERVE),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="The TCP port; 0 takes a free one.", rich_help_panel=_SERVE
        ),
    ] = 9090,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=5, help="Seconds between reads of the cluster.")
    ] = 30,
    cloudwatch_interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=MIN_CLOUDWATCH_SECONDS,
            help="Seconds between reads of CloudWatch, which AWS charges for by metric.",
        ),
    ] = 300,
    image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE", help="With --manifests: an image whose entry point is tenon.", rich_help_panel=_PRINT
        ),
    ] = "",
    role_arn: Annotated[
        str,
        typer.Option(
            metavar="ARN", help="With --manifests: the pod's role if it gets it by IRSA.", rich_help_panel=_PRINT
        ),
    ] = "",
    no_cloudwatch: Annotated[bool, typer.Option("--no-cloudwatch", help="Don't read CloudWatch.")] = False,
    no_pods: Annotated[
        bool, typer.Option("--no-pods", help="Without a series for each pod, for large clusters.")
    ] = False,
    offerings: Annotated[
        bool, typer.Option("--offerings", help="Prices of all instance types, not only of those that nodes use.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="The metrics now.", rich_help_panel=_PRINT)] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="The Grafana dashboard (JSON).", rich_help_panel=_PRINT)
    ] = False,
    rules: Annotated[
        bool, typer.Option("--rules", help="Alerting rules for Prometheus (YAML).", rich_help_panel=_PRINT)
    ] = False,
    manifests: Annotated[
        bool,
        typer.Option("--manifests", help="Objects to run this in the cluster (YAML).", rich_help_panel=_PRINT),
    ] = False,
) -> None:
    """Export the cluster's and Tenon's metrics for Prometheus, under Karpenter's names.

    Serves http://127.0.0.1:9090/metrics until Ctrl-C or SIGTERM; docs/metrics.md lists all metrics.

    The cluster, the catalog and CloudWatch are read in the background. One that can't be read hides nothing else.

    For example:

      tenon export --port 9090
      tenon export --dashboard > tenon.json
      tenon export --once --no-pods
    """
    with errors_as_one_line("export"):
        if sum((once, dashboard, rules, manifests)) > 1:
            raise UsageError("--once, --dashboard, --rules and --manifests: give at most one of them")
        if dashboard or rules:
            _print_file(dashboard=dashboard)
            return
        from cli.cluster.cluster_reference import ClusterReference, resolve  # noqa: PLC0415 (slow to import)
        from cli.cluster.live_reader import NO_CLUSTER_NAME  # noqa: PLC0415 (the same)

        reference = resolve(ClusterReference(context=context, cluster=cluster, region=region))
        if not reference.cluster:
            raise UsageError(NO_CLUSTER_NAME)
        if manifests:
            _print_manifests(reference, image=image, role_arn=role_arn)
            return
        from cli.export.exporter import ExportOptions  # noqa: PLC0415 (the same)

        options = ExportOptions(
            interval=interval,
            cloudwatch_interval=None if no_cloudwatch else cloudwatch_interval,
            by_pod=not no_pods,
            all_offerings=offerings,
        )
        _export(reference, options, listen=listen, port=port, once=once)


def _print_file(*, dashboard: bool) -> None:
    """Print the dashboard, or the rules."""
    if dashboard:
        import json  # noqa: PLC0415 (next to its use)

        from cli.export import dashboard as grafana  # noqa: PLC0415 (slow to import)

        typer.echo(json.dumps(grafana.build(), indent=2))
        return
    from cli.export import rules as prometheus  # noqa: PLC0415 (slow to import)
    from shared.api.yaml_documents import writer  # noqa: PLC0415 (next to its use)

    typer.echo(writer.text(prometheus.build(), width=120), nl=False)


def _print_manifests(reference: ClusterReference, *, image: str, role_arn: str) -> None:
    from cli.export import manifests  # noqa: PLC0415 (slow to import)
    from infra.cluster.kubernetes.cluster_manifests import to_yaml  # noqa: PLC0415 (the same)

    if not image or not reference.region:
        raise UsageError("--manifests needs --image, and --region or a context that names it")
    objects = manifests.in_cluster(cluster=reference.cluster, region=reference.region, image=image, role_arn=role_arn)
    typer.echo(to_yaml(objects), nl=False)


def _export(reference: ClusterReference, options: ExportOptions, *, listen: str, port: int, once: bool) -> None:
    import importlib.metadata  # noqa: PLC0415 (slow to import)

    from cli.cluster import live_reader  # noqa: PLC0415 (the same)
    from cli.export.exporter import Exporter  # noqa: PLC0415 (the same)

    with live_reader.read_only_aws(reference):
        exporter = Exporter(reference, options, version=importlib.metadata.version("tenon"), log=_log)
        if once:
            exporter.connect()
            _print_once(exporter)
        else:
            _serve(exporter, listen=listen, port=port)


def _log(line: str) -> None:
    typer.echo(f"tenon export: {line}", err=True)


def _print_once(exporter: Exporter) -> None:
    from cli.export.exposition import Exposition  # noqa: PLC0415 (slow to import)
    from cli.export.polling import OK  # noqa: PLC0415 (the same)

    exporter.poll()
    typer.echo(Exposition(lambda: exporter.samples(with_running=False)).text(), nl=False)
    if exporter.cluster.outcome != OK:
        raise typer.Exit(1)


def _serve(exporter: Exporter, *, listen: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C; both end it with exit code 0."""
    import signal  # noqa: PLC0415 (next to its use)
    import threading  # noqa: PLC0415 (the same)

    from cli.export.server import serve  # noqa: PLC0415 (slow to import)

    stop = threading.Event()
    try:
        with serve(exporter.exposition, address=listen, port=port, stuck=exporter.stuck) as url:
            exporter.connect()  # a command of the kubeconfig that gets a token may take its time
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
            exporter.start(stop)
            _log(f"serving {url}")
            stop.wait()
    except OSError as error:
        raise CommandError(
            f"can't listen on {listen} port {port}: {error.strerror or error}; give --port or --listen"
        ) from error
    finally:
        stop.set()
