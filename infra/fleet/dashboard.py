"""The CloudWatch dashboard of a fleet: its alarm, which cluster isn't well, and each figure with a line a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.cluster import resource_names
from infra.cluster.alarms import MAX_NAME_LENGTH, custom, reported_unwell
from infra.cluster.dashboard import HEIGHT, PERIOD, WIDTH, lines, log_table, named_alarm
from shared.base import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_SILENT = (
    "filter ispresent(reason) and ispresent(tenon_unwell)",
    "fields @timestamp, cluster, reason, why",
    "sort @timestamp desc",
    "limit 50",
)


class FleetDashboard(Construct):
    """The dashboard of one fleet."""

    def __init__(self, scope: Construct, id_: str, *, fleet: str, clusters: Sequence[str], log: str) -> None:
        """``log`` is the log group of the catalog function, which says which clusters are silent."""
        super().__init__(scope, id_)
        owner = resource_names.of_fleet(fleet)
        graphs: list[cloudwatch.IWidget] = [
            lines(title, {c: custom(metric, cluster=c, period=PERIOD) for c in clusters}) for title, metric in _SHOWN
        ]
        self.page = cloudwatch.Dashboard(
            self,
            "Page",
            dashboard_name=resource_names.name(owner, "overview", longest=MAX_NAME_LENGTH),
            default_interval=Duration.hours(3),
            widgets=[
                [
                    cloudwatch.AlarmStatusWidget(
                        title=f"Tenon on fleet {fleet}",
                        alarms=[named_alarm(self, "unwell", owner)],
                        width=WIDTH // 3,
                        height=HEIGHT,
                    ),
                    lines("Not well", {c: reported_unwell({metrics.CLUSTER: c}, period=PERIOD) for c in clusters}),
                    log_table("Silent clusters, and undelivered events", [log], _SILENT, width=WIDTH // 3),
                ],
                *(graphs[row : row + 3] for row in range(0, len(graphs), 3)),
            ],
        )
