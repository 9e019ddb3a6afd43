"""What wakes somebody up, and where it says what to do: every alarm's description names its entry in docs/runbooks.md.

One alarm per symptom, not per cause. Thresholds are what a healthy cluster doesn't reach in a bad minute: a queue that
is worked on, functions that come back after an error, pods that get a machine within five minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import function_sizes, resource_names
from shared import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.functions import Functions
    from infra.queues import Queues

RUNBOOK = "docs/runbooks.md"
_MINUTE = Duration.minutes(1)
_LONGEST_NAME = 255
_WAITED = {
    # Visibility time-outs are six function time-outs: a message whose function was killed once is still healthy.
    function_sizes.PROVISIONER: 2 * function_sizes.visibility(function_sizes.PROVISIONER),
    function_sizes.TERMINATION: 900,
    function_sizes.DISRUPTION: 2 * function_sizes.visibility(function_sizes.DISRUPTION),
    # A spot warning is worth something for two minutes.
    function_sizes.INTERRUPTION: 60,
}
"""Age of a queue's oldest message, in seconds, beyond which its function doesn't keep up. A drain's messages are
delayed by up to 15 minutes, and a delayed one has no age."""
_PATIENCE = 300
_SHARE_OF_TIMEOUT = 0.8


class Alarms(Construct):
    """The alarms of one cluster, by name."""

    def __init__(
        self, scope: Construct, id_: str, *, cluster: str, functions: Functions, queues: Queues, topic: str = ""
    ) -> None:
        """``topic``: the ARN of an SNS topic that is told; none: alarms only change their state."""
        super().__init__(scope, id_)
        self._cluster = cluster
        self._action = actions.SnsAction(sns.Topic.from_topic_arn(self, "Topic", topic)) if topic else None
        self.by_name: dict[str, cloudwatch.Alarm] = {}
        for name, queue in queues.by_function.items():
            self._alarm(
                f"{name}-queue-old",
                "queue-old",
                f"The {name}'s queue has had a message for longer than {_WAITED[name]} s.",
                queue.metric_approximate_age_of_oldest_message(period=_MINUTE, statistic="Maximum"),
                above=_WAITED[name],
                minutes=3,
            )
        dead = {**queues.dead_letters, "undelivered": queues.undelivered}
        self._alarm(
            "dead-letters",
            "dead-letters",
            "A message could not be read, or was tried too often.",
            _total(
                {
                    name: queue.metric_approximate_number_of_messages_visible(period=_MINUTE, statistic="Maximum")
                    for name, queue in dead.items()
                },
                label="dead letters",
            ),
            above=0,
        )
        for name, function in functions.by_name.items():
            self._alarm(
                f"{name}-errors",
                "function-errors",
                f"The {name} function has failed in three of five minutes.",
                function.metric_errors(period=_MINUTE, statistic="Sum"),
                above=0,
                minutes=5,
                of_them=3,
            )
            self._alarm(
                f"{name}-slow",
                "function-slow",
                f"The {name} function came near its time-out of {function_sizes.SIZES[name].timeout} s.",
                function.metric_duration(period=Duration.minutes(5), statistic="Maximum"),
                above=function_sizes.SIZES[name].timeout * 1000 * _SHARE_OF_TIMEOUT,
                minutes=2,
            )
        self._alarm(
            "throttles",
            "throttles",
            "Lambda refused to run a function: its concurrency, or the account's, is used up.",
            _total(
                {
                    name: function.metric_throttles(period=_MINUTE, statistic="Sum")
                    for name, function in functions.by_name.items()
                    if function_sizes.SIZES[name].reserved is None
                },
                label="throttles",
            ),
            above=0,
            minutes=3,
        )
        self._alarm(
            "pods-waiting",
            "pods-waiting",
            f"A pod has been Unschedulable for longer than {_PATIENCE} s.",
            custom(metrics.OLDEST_PENDING_SECONDS),
            above=_PATIENCE,
            minutes=2,
        )
        self._alarm(
            "catalog-stale",
            "catalog-stale",
            "Types or prices could not be fetched for an hour; the last good ones are used.",
            custom(metrics.CATALOG_STALE, period=Duration.hours(1)),
            above=3,
        )

    def _alarm(
        self,
        name: str,
        entry: str,
        what: str,
        metric: cloudwatch.IMetric,
        *,
        above: float,
        minutes: int = 1,
        of_them: int | None = None,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            "".join(part.capitalize() for part in name.split("-")),
            alarm_name=resource_names.name(self._cluster, name, longest=_LONGEST_NAME),
            alarm_description=f"{what}{resource_names.RUNBOOK_SEPARATOR}{RUNBOOK}#{entry}",
            metric=metric,
            threshold=above,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=minutes,
            datapoints_to_alarm=of_them,
            # Nothing is written while nothing happens; silence is not a fault, and the sweeps' own errors are counted.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        if self._action is not None:
            alarm.add_alarm_action(self._action)
            alarm.add_ok_action(self._action)
        self.by_name[name] = alarm


def custom(metric: metrics.Metric, *, period: Duration = _MINUTE) -> cloudwatch.Metric:
    """One of Tenon's own metrics, as CloudWatch knows it."""
    return cloudwatch.Metric(
        namespace=metrics.NAMESPACE,
        metric_name=metric.name,
        dimensions_map={metrics.SERVICE: metric.function},
        statistic=metric.statistic,
        period=period,
    )


def _total(parts: Mapping[str, cloudwatch.IMetric], *, label: str) -> cloudwatch.MathExpression:
    """The sum of several metrics: one alarm, and each metric is paid for (AWS: "CloudWatch billing and cost")."""
    named = {f"m{i}": metric for i, metric in enumerate(parts.values())}
    return cloudwatch.MathExpression(
        expression=" + ".join(f"FILL({n}, 0)" for n in named), using_metrics=named, label=label, period=_MINUTE
    )
