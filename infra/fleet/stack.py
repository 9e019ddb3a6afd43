"""The stack of a fleet: what its clusters share, so that it is paid for and looked at once.

That is the catalog with its function, the queue of undelivered events, the alarm, and the dashboard. Nothing here
refers to a cluster's stack, but for its name: clusters come and go one at a time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aws_cdk import CfnElement, CfnOutput, Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import function_sizes
from infra.cluster import resource_names
from infra.cluster.acknowledgments import acknowledge_fleet
from infra.cluster.event_rules import add_schedule, refreshes
from infra.cluster.fleet_resources import CATALOG_BUCKET, SWEEPS, UNDELIVERED
from infra.cluster.functions import commitment_values, make_function, shared_variables
from infra.cluster.permission_scope import ReadScope, allow
from infra.cluster.permissions import read_catalog, refresh_catalog
from infra.cluster.permissions_boundary import limit_roles
from infra.cluster.queues import dead_letter_queue
from infra.cluster.storage import catalog_bucket
from infra.fleet.alarm import FleetAlarm
from infra.fleet.dashboard import FleetDashboard
from shared.base import settings, sweeps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.options.stack_options import StackOptions

_CHECK = Duration.minutes(1)
_AGE = Duration.minutes(5)
_TRIES = 2


class FleetStack(Stack):
    """What the clusters of a fleet share."""

    def __init__(
        self,
        scope: Construct,
        *,
        options: StackOptions,
        clusters: Sequence[str],
        code: str,
        env: Environment | None = None,
    ) -> None:
        """``options`` are those of any of the clusters, ``code`` is the folder of the catalog function's bundle."""
        self._owner = resource_names.of_fleet(options.fleet)
        super().__init__(
            scope,
            resource_names.stack(self._owner),
            env=env,
            description=f"Tenon: what the EKS clusters of fleet {options.fleet} share",
            analytics_reporting=False,
        )
        state = Construct(self, "State")
        self._table = self._sweeps_table(state)
        self._catalog = catalog_bucket(state)
        queues = Construct(self, "Queues")
        self._undelivered = dead_letter_queue(queues, "Undelivered", UNDELIVERED, self._owner, fifo=False)
        functions = Construct(self, "Functions")
        self._function, log = self._catalog_function(functions, options, clusters, code)
        self._allow_rules()
        self._schedules(Construct(self, "Events"), options)
        FleetAlarm(self, "Alarms", fleet=options.fleet, function=self._function, topic=options.alarm_topic)
        if options.observability == "full":
            FleetDashboard(self, "Dashboard", fleet=options.fleet, clusters=clusters, log=log.log_group_name)
        limit_roles(self, options.permissions_boundary)
        bucket = self._catalog.node.default_child
        assert isinstance(bucket, CfnElement)
        catalog_id = self.get_logical_id(bucket)
        acknowledge_fleet(functions=functions, undelivered=self._undelivered, storage=state, catalog_id=catalog_id)
        export = resource_names.export(options.fleet, CATALOG_BUCKET)
        CfnOutput(self, CATALOG_BUCKET, value=self._catalog.bucket_name, export_name=export)
        CfnOutput(self, "UndeliveredQueueUrl", value=self._undelivered.queue_url)

    def _sweeps_table(self, scope: Construct) -> dynamodb.Table:
        return dynamodb.Table(
            scope,
            "Sweeps",
            table_name=resource_names.table(self._owner, SWEEPS),
            partition_key=dynamodb.Attribute(name=sweeps.PARTITION_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=RemovalPolicy.DESTROY,
        )

    def _catalog_function(
        self, scope: Construct, options: StackOptions, clusters: Sequence[str], code: str
    ) -> tuple[lambda_.Function, logs.ILogGroup]:
        values = {
            "catalog_bucket": self._catalog.bucket_name,
            "clusters": json.dumps(clusters),
            "sweeps_table": self._table.table_name,
            "undelivered_queue_url": self._undelivered.queue_url,
            **commitment_values(options),
        }
        on = ReadScope(cluster="", scope=scope, catalog=self._catalog, commitments=options.commitments)
        function, _, log = make_function(
            scope,
            function_sizes.CATALOG,
            options=options,
            owner=self._owner,
            code=code,
            environment={
                **shared_variables(function_sizes.CATALOG, options),
                **{settings.variable(name): value for name, value in values.items()},
            },
            statements=[
                *refresh_catalog(on),
                *read_catalog(on),
                # Scan: a small row a cluster. PutItem: since when a new cluster's first sweep is awaited.
                allow("SeeSweeps", ["dynamodb:PutItem", "dynamodb:Scan"], [self._table.table_arn]),
                # Received to see whose they are; never deleted.
                allow(
                    "SeeUndelivered", ["sqs:GetQueueAttributes", "sqs:ReceiveMessage"], [self._undelivered.queue_arn]
                ),
            ],
            undelivered=self._undelivered,
        )
        return function, log

    def _allow_rules(self) -> None:
        """Let all clusters' rules use the queue and the function.

        By Tenon's prefix and the account: each cluster's rules by name would exceed the size of a policy (8 KiB of a
        queue's, 20 KiB of a function's) at some fifty clusters, and would change this stack with every cluster.
        """
        rules = [
            self.format_arn(service="events", resource="rule", resource_name=name) for name in ("tenon-*", "*/tenon-*")
        ]
        self._undelivered.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AllowRules",
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self._undelivered.queue_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": self.account},
                    "ArnLike": {"aws:SourceArn": rules},
                },
            )
        )
        missing = resource_names.words("CatalogMissing")
        self._function.add_permission(
            "AllowHints",
            principal=iam.ServicePrincipal("events.amazonaws.com"),
            source_account=self.account,
            source_arn=self.format_arn(service="events", resource="rule", resource_name=f"tenon-*/tenon-*.{missing}"),
        )

    def _schedules(self, scope: Construct, options: StackOptions) -> None:
        for data, rate in refreshes(options).items():
            self._schedule(scope, f"Refresh{data.capitalize()}", rate, {"refresh": data})
        self._schedule(scope, "CheckFleet", _CHECK, {"check": "fleet"})

    def _schedule(self, scope: Construct, id_: str, rate: Duration, event: dict[str, str]) -> None:
        # Imported: the CDK would add a statement for each rule to the queue's policy.
        undelivered = sqs.Queue.from_queue_arn(scope, f"{id_}Undelivered", self._undelivered.queue_arn)
        target = targets.LambdaFunction(
            self._function,
            event=events.RuleTargetInput.from_object(event),
            dead_letter_queue=undelivered,
            max_event_age=_AGE,
            retry_attempts=_TRIES,
        )
        add_schedule(scope, id_, rate, target, owner=self._owner, title=f"fleet {self._owner}")
