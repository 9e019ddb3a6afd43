"""CloudWatch alarms. Every description links to the alarm's entry in docs/runbooks.md.

One alarm says that something is wrong; with full observability there is one for each symptom, not for each cause.
Thresholds are above what a healthy cluster reaches in a bad minute: queues that are processed, functions that recover
from an error, pods that get a node within five minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import function_sizes
from infra.cluster import resource_names
from shared.base import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_lambda as lambda_

    from infra.cluster.functions import Functions
    from infra.cluster.queues import Queues
    from infra.options.stack_options import StackOptions

RUNBOOK = "docs/runbooks.md"
_MINUTE = Duration.minutes(1)
_UNWELL_PERIOD = Duration.minutes(5)
MAX_NAME_LENGTH = 255
_MAX_MESSAGE_AGE = {
    # A visibility timeout is six function timeouts: a message whose function failed once is still healthy.
    function_sizes.PROVISIONER: 2 * function_sizes.visibility(function_sizes.PROVISIONER),
    function_sizes.TERMINATION: 900,
    function_sizes.DISRUPTION: 2 * function_sizes.visibility(function_sizes.DISRUPTION),
    # A spot interruption warning is useful for two minutes.
    function_sizes.INTERRUPTION: 60,
    function_sizes.NODE_GROUPS: 60,
    # An event that comes late raises a buffer for less time, or not at all.
    function_sizes.BUFFERS: 2 * function_sizes.visibility(function_sizes.BUFFERS),
}
"""Seconds. If a queue's oldest message is older, its function doesn't keep up. Messages of drains are delayed by up to
15 minutes, and a delayed message has no age."""
_SILENT_MINUTES = 10
_DURATION_THRESHOLD = 0.8


class Alarms(Construct):
    """The alarms of one cluster, by name."""

    def __init__(
        self, scope: Construct, id_: str, *, options: StackOptions, functions: Functions, queues: Queues
    ) -> None:
        super().__init__(scope, id_)
        self._cluster = options.cluster
        topic = options.alarm_topic
        self._action = actions.SnsAction(sns.Topic.from_topic_arn(self, "Topic", topic)) if topic else None
        self.by_name: dict[str, cloudwatch.Alarm] = {}
        self._unwell_alarm(functions)
        if options.observability == "full":
            self._queue_alarms(queues)
            self._function_alarms(functions, reserve=options.reserve)
            self._recursion_alarm(functions)
            self._cluster_alarms()
            if options.relay != "webhook":
                self._relay_alarm()

    def _unwell_alarm(self, functions: Functions) -> None:
        """One alarm for what functions report, and for the function that looks at everything each minute."""
        unwell = unwell_metric({metrics.CLUSTER: self._cluster}, functions.by_name[function_sizes.LIFECYCLE])
        self._alarm("unwell", "unwell", "Tenon isn't well: the log says why.", unwell, above=0)

    def _queue_alarms(self, queues: Queues) -> None:
        for name, queue in queues.by_function.items():
            self._alarm(
                f"{name}-queue-old",
                "queue-old",
                f"The oldest message in the queue of the {name} function is older than {_MAX_MESSAGE_AGE[name]} s.",
                queue.metric_approximate_age_of_oldest_message(period=_MINUTE, statistic="Maximum"),
                above=_MAX_MESSAGE_AGE[name],
                minutes=3,
            )
        dead_letters = {
            name: queue.metric_approximate_number_of_messages_visible(period=_MINUTE, statistic="Maximum")
            for name, queue in {**queues.dead_letters, "undelivered": queues.undelivered}.items()
        }
        self._alarm(
            "dead-letters",
            "dead-letters",
            "A dead-letter queue has a message: it is malformed, or processing it failed too often.",
            _total(dead_letters, label="dead letters"),
            above=0,
        )

    def _function_alarms(self, functions: Functions, *, reserve: bool) -> None:
        for name, function in functions.by_name.items():
            self._alarm(
                f"{name}-errors",
                "function-errors",
                f"The {name} function failed in three of five minutes.",
                function.metric_errors(period=_MINUTE, statistic="Sum"),
                above=0,
                minutes=5,
                datapoints=3,
            )
            if name in function_sizes.WATCHING:
                continue
            timeout = function_sizes.SIZES[name].timeout
            self._alarm(
                f"{name}-slow",
                "function-slow",
                f"The {name} function's duration was near its timeout of {timeout} s.",
                function.metric_duration(period=Duration.minutes(5), statistic="Maximum"),
                above=timeout * 1000 * _DURATION_THRESHOLD,
                minutes=2,
            )
        throttles = {
            name: function.metric_throttles(period=_MINUTE, statistic="Sum")
            for name, function in functions.by_name.items()
            if name not in function_sizes.PUBLIC
            # Throttles of functions that run one at a time are no alarm.
            if not reserve or function_sizes.SIZES[name].reserved is None
        }
        self._alarm(
            "throttles",
            "throttles",
            "Lambda throttled a function: its concurrency or the account's is used up.",
            _total(throttles, label="throttles"),
            above=0,
            minutes=3,
        )

    def _recursion_alarm(self, functions: Functions) -> None:
        dropped = {
            name: functions.by_name[name].metric("RecursiveInvocationsDropped", period=_MINUTE, statistic="Sum")
            for name in sorted(function_sizes.RECURSIVE & functions.by_name.keys())
        }
        self._alarm(
            "recursion-stopped",
            "recursion-stopped",
            "Lambda stopped a chain of requeues, so drains or disruption wait for the next sweep.",
            _total(dropped, label="recursive invocations dropped"),
            above=0,
        )

    def _relay_alarm(self) -> None:
        # The relay repeats its hint each minute while a pod is unschedulable.
        hints = cloudwatch.MathExpression(
            expression="IF(FILL(pending, 0) > 0 AND FILL(hints, 0) < 1, 1, 0)",
            using_metrics={
                "pending": custom(metrics.PENDING, cluster=self._cluster),
                "hints": custom(metrics.HINTS, cluster=self._cluster),
            },
            label="minutes without a hint",
            period=_MINUTE,
        )
        self._alarm(
            "relay-silent",
            "relay-silent",
            f"Pods waited for {_SILENT_MINUTES} minutes, and the relay sent no hint about them.",
            hints,
            above=0,
            minutes=_SILENT_MINUTES,
        )

    def _cluster_alarms(self) -> None:
        self._alarm(
            "pods-waiting",
            "pods-waiting",
            f"A pod has been unschedulable for longer than {metrics.POD_WAITS_SECONDS} s.",
            custom(metrics.OLDEST_PENDING_SECONDS, cluster=self._cluster),
            above=metrics.POD_WAITS_SECONDS,
            minutes=2,
        )
        self._alarm(
            "garbage-kept",
            "garbage-kept",
            "More instances, nodes or NodeClaims look like garbage than one sweep may give up.",
            custom(metrics.GARBAGE_KEPT, cluster=self._cluster),
            above=0,
        )
        self._alarm(
            "launches-fail",
            "launches-fail",
            "Launches of a NodePool are paused for five minutes: they fail, or its machines never join.",
            custom(metrics.BREAKERS, cluster=self._cluster),
            above=0,
            minutes=5,
        )
        self._alarm(
            "hourly-limits",
            "hourly-limits",
            "An hourly limit holds back launches or removals of a NodePool.",
            custom(metrics.HELD, cluster=self._cluster),
            above=0,
        )
        self._alarm(
            "catalog-stale",
            "catalog-stale",
            "Instance types or prices could not be fetched for an hour; the last ones are used.",
            custom(metrics.CATALOG_STALE, cluster=self._cluster, period=Duration.hours(1)),
            above=3,
        )

    def _alarm(
        self,
        name: str,
        runbook_entry: str,
        description: str,
        metric: cloudwatch.IMetric,
        *,
        above: float,
        minutes: int = 1,
        datapoints: int | None = None,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            "".join(part.capitalize() for part in name.split("-")),
            alarm_name=resource_names.name(self._cluster, name, longest=MAX_NAME_LENGTH),
            alarm_description=f"{description}{resource_names.RUNBOOK_SEPARATOR}{RUNBOOK}#{runbook_entry}",
            metric=metric,
            threshold=above,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=minutes,
            datapoints_to_alarm=datapoints,
            # Metrics are only written when something happens: missing data is healthy. Errors of sweeps are counted.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        if self._action is not None:
            alarm.add_alarm_action(self._action)
            alarm.add_ok_action(self._action)
        self.by_name[name] = alarm


def unwell_metric(
    owner: Mapping[str, str], function: lambda_.IFunction, *, period: Duration = _UNWELL_PERIOD
) -> cloudwatch.MathExpression:
    """Whether what is reported of the owner (a dimension) is alarming, or the function didn't complete once."""
    return cloudwatch.MathExpression(
        expression=f"IF(FILL(unwell, 0) >= {metrics.ALARMING} OR FILL(failures, 1) > 0, 1, 0)",
        using_metrics={
            "unwell": reported_unwell(owner, period=period),
            # Of each invocation Lambda records 0 or 1: the minimum is 0 if one completed, and missing if none began.
            "failures": function.metric_errors(period=period, statistic="Minimum"),
        },
        label="unwell",
        period=period,
    )


def reported_unwell(owner: Mapping[str, str], *, period: Duration) -> cloudwatch.Metric:
    """What functions report to be wrong with the owner (a dimension)."""
    return cloudwatch.Metric(
        namespace=metrics.NAMESPACE,
        metric_name=metrics.UNWELL,
        dimensions_map={**owner},
        statistic="Sum",
        period=period,
    )


def custom(metric: metrics.Metric, *, cluster: str, period: Duration = _MINUTE) -> cloudwatch.Metric:
    """One of Tenon's own metrics, of one cluster."""
    return cloudwatch.Metric(
        namespace=metrics.NAMESPACE,
        metric_name=metric.name,
        dimensions_map={metrics.CLUSTER: cluster, metrics.SERVICE: metric.function},
        statistic=metric.statistic,
        period=period,
    )


def _total(parts: Mapping[str, cloudwatch.IMetric], *, label: str) -> cloudwatch.MathExpression:
    """The sum of several metrics. AWS charges an alarm for each of them (AWS: "CloudWatch billing and cost")."""
    metrics_by_id = {f"m{i}": metric for i, metric in enumerate(parts.values())}
    return cloudwatch.MathExpression(
        expression=" + ".join(f"FILL({n}, 0)" for n in metrics_by_id),
        using_metrics=metrics_by_id,
        label=label,
        period=_MINUTE,
    )
