"""``tenon export``: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.cluster import source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import UsageError, errors_as_one_line
from cli.printable import echo

MIN_CLOUDWATCH_SECONDS = 60
_SERVE = "Serve"
_PRINT = "Print instead of serving"

Listen = Annotated[
    str, typer.Option(metavar="ADDRESS", help="The IP address to listen on; 0.0.0.0 for all.", rich_help_panel=_SERVE)
]
Port = Annotated[
    int,
    typer.Option(metavar="PORT", min=0, max=65535, help="The TCP port; 0 takes a free one.", rich_help_panel=_SERVE),
]
Interval = Annotated[float, typer.Option(metavar="SECONDS", min=5, help="Seconds between reads of the cluster.")]
CloudWatchInterval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=MIN_CLOUDWATCH_SECONDS,
        help="Seconds between reads of CloudWatch, which AWS charges for by metric.",
    ),
]
Image = Annotated[
    str,
    typer.Option(
        metavar="IMAGE", help="With --manifests: an image whose entry point is tenon.", rich_help_panel=_PRINT
    ),
]
RoleArn = Annotated[
    str,
    typer.Option(metavar="ARN", help="With --manifests: the pod's role if it gets it by IRSA.", rich_help_panel=_PRINT),
]
NoCloudWatch = Annotated[bool, typer.Option("--no-cloudwatch", help="Don't read CloudWatch.")]
CostLabel = Annotated[str, typer.Option(metavar="KEY", help="Split the cost of namespaces by this label of pods, too.")]
NoPods = Annotated[bool, typer.Option("--no-pods", help="Without a series for each pod, for large clusters.")]
Offerings = Annotated[
    bool, typer.Option("--offerings", help="Prices of all instance types, not only of those that nodes use.")
]
Once = Annotated[bool, typer.Option("--once", help="The metrics now.", rich_help_panel=_PRINT)]
Dashboard = Annotated[bool, typer.Option("--dashboard", help="The Grafana dashboard (JSON).", rich_help_panel=_PRINT)]
Rules = Annotated[bool, typer.Option("--rules", help="Alerting rules for Prometheus (YAML).", rich_help_panel=_PRINT)]
Manifests = Annotated[
    bool, typer.Option("--manifests", help="Objects to run this in the cluster (YAML).", rich_help_panel=_PRINT)
]


@examples("tenon export --port 9090", "tenon export --dashboard > tenon.json", "tenon export --once --no-pods")
def export(
    listen: Listen = "127.0.0.1",
    port: Port = 9090,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    interval: Interval = 30,
    cloudwatch_interval: CloudWatchInterval = 300,
    image: Image = "",
    role_arn: RoleArn = "",
    cost_label: CostLabel = "",
    no_cloudwatch: NoCloudWatch = False,
    no_pods: NoPods = False,
    offerings: Offerings = False,
    once: Once = False,
    dashboard: Dashboard = False,
    rules: Rules = False,
    manifests: Manifests = False,
) -> None:
    """Export the cluster's and Tenon's metrics for Prometheus, under Karpenter's names.

    Serves http://127.0.0.1:9090/metrics until Ctrl-C or SIGTERM; docs/metrics.md lists all metrics.

    The cluster, the catalog and CloudWatch are read in the background. One that can't be read hides nothing else.
    """
    with errors_as_one_line("export"):
        if sum((once, dashboard, rules, manifests)) > 1:
            raise UsageError("--once, --dashboard, --rules and --manifests: give at most one of them")
        from infra import installation

        installation.require("export", "tenon export")
        if dashboard or rules:
            from cli.export import definitions

            echo(definitions.dashboard() if dashboard else definitions.rules(), nl=False)
            return
        from cli.export import run
        from cli.export.exporter import ExportOptions

        reference = ClusterReference(context=context, cluster=cluster, region=region)
        if manifests:
            run.print_manifests(reference, image=image, role_arn=role_arn)
            return
        options = ExportOptions(
            interval=interval,
            cloudwatch_interval=None if no_cloudwatch else cloudwatch_interval,
            by_pod=not no_pods,
            cost_label=cost_label,
            all_offerings=offerings,
        )
        run.run(reference, options, listen=listen, port=port, once=once)
