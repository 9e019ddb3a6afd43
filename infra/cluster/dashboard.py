"""The CloudWatch dashboard: pending pods, cost, what Tenon does, and its health.

Tables by NodePool, instance type and node are Logs Insights queries, which only cost something while the dashboard is
open. Graphs show the few metrics that the alarms need anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra import function_sizes
from infra.cluster import resource_names
from infra.cluster.alarms import MAX_NAME_LENGTH, custom
from shared.base import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infra.cluster.alarms import Alarms
    from infra.cluster.functions import Functions
    from infra.cluster.queues import Queues

WIDTH = 24
HEIGHT = 6
PERIOD = Duration.minutes(5)


class Dashboard(Construct):
    """The dashboard of one cluster."""

    def __init__(
        self, scope: Construct, id_: str, *, cluster: str, functions: Functions, queues: Queues, alarms: Alarms
    ) -> None:
        super().__init__(scope, id_)
        logs = {name: group.log_group_name for name, group in functions.logs.items()}
        self.page = cloudwatch.Dashboard(
            self,
            "Page",
            dashboard_name=resource_names.name(cluster, "overview", longest=MAX_NAME_LENGTH),
            default_interval=Duration.hours(3),
            widgets=[
                [
                    cloudwatch.AlarmStatusWidget(
                        title=f"Tenon on {cluster}",
                        alarms=[named_alarm(self, alarm, cluster) for alarm in alarms.by_name],
                        width=WIDTH,
                        height=3,
                    )
                ],
                *_cluster_rows(cluster),
                _price_row(cluster, logs),
                _log_tables(logs),
                _disruption_row(cluster),
                _health_row(functions, queues),
                _row(
                    log_table(
                        "Warnings and errors",
                        [*logs.values()],
                        [
                            'filter level in ["WARNING", "ERROR", "CRITICAL"]',
                            "fields @timestamp, service, message, why, error",
                            "sort @timestamp desc",
                            "limit 50",
                        ],
                        width=WIDTH,
                    )
                ),
            ],
        )


def named_alarm(scope: Construct, alarm: str, owner: str) -> cloudwatch.IAlarm:
    """An alarm by its name, so that the dashboard doesn't depend on the alarm."""
    arn = Stack.of(scope).format_arn(
        service="cloudwatch",
        resource="alarm",
        resource_name=resource_names.name(owner, alarm, longest=MAX_NAME_LENGTH),
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return cloudwatch.Alarm.from_alarm_arn(scope, alarm, arn)


def _cluster_rows(cluster: str) -> list[list[cloudwatch.IWidget]]:
    return [
        _row(
            _graph(cluster, "Pending pods", [metrics.PENDING, metrics.UNSCHEDULABLE]),
            _graph(cluster, "Seconds to NodeClaim, and to Ready", [metrics.TO_CLAIM_SECONDS, metrics.TO_READY_SECONDS]),
            _graph(cluster, "Longest pending pod (s)", [metrics.OLDEST_PENDING_SECONDS]),
        ),
        _row(
            _graph(cluster, "Nodes", [metrics.NODES]),
            _graph(cluster, "USD per hour", [metrics.COST, metrics.REALISED_PRICE]),
            _graph(
                cluster, "Requested share of allocatable (%)", [metrics.CPU_UTILISATION, metrics.MEMORY_UTILISATION]
            ),
        ),
    ]


def _price_row(cluster: str, logs: Mapping[str, str]) -> list[cloudwatch.IWidget]:
    return _row(
        _graph(cluster, "Planned and bought, USD per hour", [metrics.PLANNED_PRICE, metrics.BOUGHT_PRICE]),
        log_table(
            "Planned, bought and realised price of decisions, USD per hour",
            [logs[function_sizes.LIFECYCLE]],
            [
                'filter message = "The pods of a decision run"',
                "fields @timestamp, planned_usd_per_hour, bought_usd_per_hour, realised_usd_per_hour",
                "sort @timestamp desc",
                "limit 20",
            ],
        ),
    )


def _log_tables(logs: Mapping[str, str]) -> list[cloudwatch.IWidget]:
    return _row(
        log_table(
            "Nodes and cost by NodePool, type and capacity type",
            [logs[function_sizes.LIFECYCLE]],
            [
                'filter message = "Cluster metrics"',
                "sort @timestamp desc",
                "limit 1",
                "fields nodes, usd_per_hour, by_pool, by_type",
            ],
        ),
        log_table(
            "Disrupted nodes and savings",
            [logs[function_sizes.DISRUPTION]],
            [
                'filter message = "Disrupting nodes"',
                "fields @timestamp, reason, pods, replacements, savings, why",
                "sort @timestamp desc",
                "limit 20",
            ],
        ),
    )


def _disruption_row(cluster: str) -> list[cloudwatch.IWidget]:
    return _row(
        _graph(cluster, "Disrupted nodes, USD per hour saved", [metrics.DISRUPTED, metrics.SAVED]),
        _graph(cluster, "Spot interruptions", [metrics.INTERRUPTED, metrics.INTERRUPTION_LAUNCHES]),
        _graph(cluster, "NodeClaims", [metrics.CREATED, metrics.LAUNCHED, metrics.NOT_LAUNCHED]),
    )


def _health_row(functions: Functions, queues: Queues) -> list[cloudwatch.IWidget]:
    by_name = functions.by_name
    return _row(
        lines("Errors", {n: f.metric_errors(period=PERIOD, statistic="Sum") for n, f in by_name.items()}),
        lines("Duration, p99 (ms)", {n: f.metric_duration(period=PERIOD, statistic="p99") for n, f in by_name.items()}),
        lines(
            "Oldest message (s)",
            {
                n: q.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum")
                for n, q in queues.by_function.items()
            },
        ),
    )


def _row(*widgets: cloudwatch.ConcreteWidget) -> list[cloudwatch.IWidget]:
    """Widgets side by side."""
    return [*widgets]


def _graph(cluster: str, title: str, shown: Sequence[metrics.Metric]) -> cloudwatch.GraphWidget:
    return lines(title, {m.name: custom(m, cluster=cluster, period=PERIOD) for m in shown})


def lines(title: str, shown: Mapping[str, cloudwatch.Metric]) -> cloudwatch.GraphWidget:
    """A graph with a line for each metric, by its label."""
    return cloudwatch.GraphWidget(
        title=title,
        left=[m.with_(label=name) for name, m in shown.items()],
        left_y_axis=cloudwatch.YAxisProps(min=0, show_units=False),
        width=WIDTH // 3,
        height=HEIGHT,
    )


def log_table(
    title: str, logs: Sequence[str], query: Sequence[str], *, width: int = WIDTH // 2
) -> cloudwatch.LogQueryWidget:
    """The rows of a query on these log groups."""
    return cloudwatch.LogQueryWidget(
        title=title,
        log_group_names=[*logs],
        query_lines=[*query],
        view=cloudwatch.LogQueryVisualizationType.TABLE,
        width=width,
        height=HEIGHT,
    )
