"""The CloudWatch alarm of a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.cluster import resource_names
from infra.cluster.alarms import MAX_NAME_LENGTH, RUNBOOK, unwell_metric
from shared.base import metrics

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_


class FleetAlarm(Construct):
    """The one alarm of a fleet, on what functions of its clusters report and on the function that looks at them."""

    def __init__(self, scope: Construct, id_: str, *, fleet: str, function: lambda_.IFunction, topic: str) -> None:
        """``topic``: the ARN of an SNS topic to notify; empty: the alarm only changes its state."""
        super().__init__(scope, id_)
        description = (
            "Tenon isn't well in a cluster of the fleet: the metric's dimension cluster and the log say where."
        )
        alarm = cloudwatch.Alarm(
            self,
            "Unwell",
            alarm_name=resource_names.name(resource_names.of_fleet(fleet), "unwell", longest=MAX_NAME_LENGTH),
            alarm_description=f"{description}{resource_names.RUNBOOK_SEPARATOR}{RUNBOOK}#unwell",
            metric=unwell_metric({metrics.FLEET: fleet}, function),
            threshold=0,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        if topic:
            action = actions.SnsAction(sns.Topic.from_topic_arn(self, "Topic", topic))
            alarm.add_alarm_action(action)
            alarm.add_ok_action(action)
