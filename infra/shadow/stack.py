"""The stack of shadow mode: the catalog function, and one that compares what Tenon would do with what is done.

It has nothing that writes to the cluster or to EC2: no relay, no queues, no node role, and no kubectl, which is an
administrator of the cluster. A user applies the function's RBAC (``tenon manifests NAME --shadow``). The stack's name
and the catalog's resources are those of the whole stack, so a deployment without ``-c mode=shadow`` continues it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnElement, CfnOutput, Duration, Environment, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_eks as eks
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import function_sizes
from infra.cluster import resource_names
from infra.cluster.acknowledgments import acknowledge_shadow
from infra.cluster.alarms import MAX_NAME_LENGTH, RUNBOOK, unwell_metric
from infra.cluster.event_rules import REFRESHES, add_schedule
from infra.cluster.kubernetes import cluster_manifests
from infra.cluster.permissions_boundary import limit_roles
from infra.cluster.storage import SHADOW_DAYS, catalog_bucket
from infra.shadow.functions import ShadowFunctions
from shared.api import labels
from shared.base import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_lambda as lambda_

    from infra.options.stack_options import StackOptions

_TRIES = 2
_FAILED_RUNS = 3
_AGE = Duration.minutes(5)


class ShadowStack(Stack):
    """All AWS resources of one cluster in shadow mode."""

    def __init__(
        self, scope: Construct, *, options: StackOptions, code: Mapping[str, str], env: Environment | None = None
    ) -> None:
        """``code`` is the folder of each function's bundle."""
        super().__init__(
            scope,
            resource_names.stack(options.cluster),
            env=env,
            description=f"Tenon in shadow mode: compares, and changes nothing, for EKS cluster {options.cluster}",
            analytics_reporting=False,
            tags={labels.CLUSTER_NAME_TAG: options.cluster},
        )
        state = Construct(self, "State")
        catalog = catalog_bucket(state, days=SHADOW_DAYS)
        functions = ShadowFunctions(self, "Functions", options=options, catalog=catalog, code=code)
        schedules = _Schedules(self, "Events", options=options, functions=functions.by_name)
        eks.CfnAccessEntry(
            Construct(self, "ClusterAccess"),
            "ShadowEntry",
            cluster_name=options.cluster,
            principal_arn=functions.shadow_role_arn,
            kubernetes_groups=[cluster_manifests.group(function_sizes.SHADOW)],
            type="STANDARD",
        )
        self._alarm(options, functions.by_name[function_sizes.SHADOW])
        limit_roles(self, options.permissions_boundary)
        bucket = catalog.node.default_child
        assert isinstance(bucket, CfnElement)
        acknowledge_shadow(
            cluster=options.cluster,
            functions=functions,
            schedules=schedules,
            storage=state,
            catalog_id=self.get_logical_id(bucket),
        )
        outputs = {"Mode": "shadow", "CatalogBucket": catalog.bucket_name, "ShadowRoleArn": functions.shadow_role_arn}
        for key, value in outputs.items():
            CfnOutput(self, key, value=value)

    def _alarm(self, options: StackOptions, function: lambda_.Function) -> None:
        """One alarm: no run succeeded for as long as three of them, or a function reported that something is wrong."""
        period = Duration.minutes(_FAILED_RUNS * options.shadow_interval)
        unwell = unwell_metric({metrics.CLUSTER: options.cluster}, function, period=period)
        description = "Shadow mode isn't well: the log of the function shadow says why."
        # The whole stack's alarm of that name has the same logical id, so that one becomes the other.
        alarms = Construct(self, "Alarms")
        alarm = cloudwatch.Alarm(
            alarms,
            "Unwell",
            alarm_name=resource_names.name(options.cluster, "unwell", longest=MAX_NAME_LENGTH),
            alarm_description=f"{description}{resource_names.RUNBOOK_SEPARATOR}{RUNBOOK}#unwell",
            metric=unwell,
            threshold=0,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=1,
        )
        if options.alarm_topic:
            action = actions.SnsAction(sns.Topic.from_topic_arn(alarms, "Topic", options.alarm_topic))
            alarm.add_alarm_action(action)
            alarm.add_ok_action(action)


class _Schedules(Construct):
    """The rules that run the functions by the clock."""

    def __init__(
        self, scope: Construct, id_: str, *, options: StackOptions, functions: Mapping[str, lambda_.Function]
    ) -> None:
        super().__init__(scope, id_)
        self._cluster = options.cluster
        for data, rate in REFRESHES.items():
            event = events.RuleTargetInput.from_object({"refresh": data})
            self._schedule(f"Refresh{data.capitalize()}", rate, functions[function_sizes.CATALOG], event)
        every = Duration.minutes(options.shadow_interval)
        self._schedule("ShadowRun", every, functions[function_sizes.SHADOW], None)

    def _schedule(
        self, id_: str, rate: Duration, function: lambda_.Function, event: events.RuleTargetInput | None
    ) -> None:
        target = targets.LambdaFunction(function, event=event, max_event_age=_AGE, retry_attempts=_TRIES)
        add_schedule(self, id_, rate, target, owner=self._cluster, title=f"cluster {self._cluster}")
