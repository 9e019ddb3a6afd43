"""The CloudWatch dashboard of a fleet: its alarm, which cluster isn't well, and each figure with a line a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.cluster import resource_names
from infra.cluster.alarms import MAX_NAME_LENGTH, custom, reported_unwell
from shared.base import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH = 24
_HEIGHT = 6
_PERIOD = Duration.minutes(5)
_SHOWN = (
    ("Pending pods", metrics.PENDING),
    ("Longest pending pod (s)", metrics.OLDEST_PENDING_SECONDS),
    ("Seconds to NodeClaim", metrics.TO_CLAIM_SECONDS),
    ("Nodes", metrics.NODES),
    ("USD per hour", metrics.COST),
    ("Requested share of allocatable CPU (%)", metrics.CPU_UTILISATION),
    ("Disrupted nodes", metrics.DISRUPTED),
    ("Spot interruptions", metrics.INTERRUPTED),
    ("NodeClaims not launched", metrics.NOT_LAUNCHED),
)


class FleetDashboard(Construct):
    """The dashboard of one fleet."""

    def __init__(self, scope: Construct, id_: str, *, fleet: str, clusters: Sequence[str], log: str) -> None:
        """``log`` is the log group of the catalog function, which says which clusters are silent."""
        super().__init__(scope, id_)
        owner = resource_names.of_fleet(fleet)
        graphs = [self._graph(title, metric, clusters) for title, metric in _SHOWN]
        self.page = cloudwatch.Dashboard(
            self,
            "Page",
            dashboard_name=resource_names.name(owner, "overview", longest=MAX_NAME_LENGTH),
            default_interval=Duration.hours(3),
            widgets=[
                [
                    self._alarm(owner, f"Tenon on fleet {fleet}"),
                    self._lines(
                        "Not well", {c: reported_unwell({metrics.CLUSTER: c}, period=_PERIOD) for c in clusters}
                    ),
                    _silent_clusters(log),
                ],
                *([*graphs[row : row + 3]] for row in range(0, len(graphs), 3)),
            ],
        )

    def _alarm(self, owner: str, title: str) -> cloudwatch.IWidget:
        arn = Stack.of(self).format_arn(
            service="cloudwatch",
            resource="alarm",
            resource_name=resource_names.name(owner, "unwell", longest=MAX_NAME_LENGTH),
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        alarm = cloudwatch.Alarm.from_alarm_arn(self, "Unwell", arn)
        return cloudwatch.AlarmStatusWidget(title=title, alarms=[alarm], width=_WIDTH // 3, height=_HEIGHT)

    def _graph(self, title: str, metric: metrics.Metric, clusters: Sequence[str]) -> cloudwatch.IWidget:
        return self._lines(title, {c: custom(metric, cluster=c, period=_PERIOD) for c in clusters})

    def _lines(self, title: str, shown: dict[str, cloudwatch.Metric]) -> cloudwatch.IWidget:
        return cloudwatch.GraphWidget(
            title=title,
            left=[metric.with_(label=cluster) for cluster, metric in shown.items()],
            left_y_axis=cloudwatch.YAxisProps(min=0, show_units=False),
            width=_WIDTH // 3,
            height=_HEIGHT,
        )


def _silent_clusters(log: str) -> cloudwatch.IWidget:
    return cloudwatch.LogQueryWidget(
        title="Silent clusters, and undelivered events",
        log_group_names=[log],
        query_lines=[
            "filter ispresent(reason) and ispresent(tenon_unwell)",
            "fields @timestamp, cluster, reason, why",
            "sort @timestamp desc",
            "limit 50",
        ],
        view=cloudwatch.LogQueryVisualizationType.TABLE,
        width=_WIDTH // 3,
        height=_HEIGHT,
    )
