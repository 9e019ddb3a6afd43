"""The Lambda functions: code, role, environment, log group, and the queue that triggers each.

The environment and part of the permissions of a function follow from the settings that its code declares
(functions/<name>/settings.py); permissions.py lists the rest of its role.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from aws_cdk import Duration, RemovalPolicy, Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.aws_lambda_destinations import SqsDestination
from aws_cdk.aws_lambda_event_sources import SqsEventSource
from constructs import Construct

from functions.buffers.settings import BufferSettings
from functions.catalog.settings import CatalogSettings
from functions.disruption.settings import DisruptionSettings
from functions.interruption.settings import InterruptionSettings
from functions.lifecycle.settings import LifecycleSettings
from functions.provisioner.settings import ProvisionerSettings
from functions.termination.settings import TerminationSettings
from infra import function_sizes, permissions, resource_names
from shared import settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.node_role import NodeRole
    from infra.permissions import PermissionScope
    from infra.stack_options import StackOptions

_RETENTION = {30: logs.RetentionDays.ONE_MONTH}
ARCHITECTURES = {"arm64": lambda_.Architecture.ARM_64, "amd64": lambda_.Architecture.X86_64}
_ASYNC_AGE = Duration.minutes(5)
_ASYNC_RETRIES = 2


SETTINGS: Mapping[str, type[settings.Settings]] = {
    function_sizes.PROVISIONER: ProvisionerSettings,
    function_sizes.LIFECYCLE: LifecycleSettings,
    function_sizes.DISRUPTION: DisruptionSettings,
    function_sizes.TERMINATION: TerminationSettings,
    function_sizes.INTERRUPTION: InterruptionSettings,
    function_sizes.CATALOG: CatalogSettings,
    function_sizes.BUFFERS: BufferSettings,
}
"""The settings that each function's code declares."""


def setting_names(function: str) -> list[str]:
    """The fields of the function's settings."""
    return [field.name for field in msgspec.structs.fields(SETTINGS[function])]


def environment(function: str, on: PermissionScope, nodes: NodeRole, options: StackOptions) -> dict[str, str]:
    """The function's environment variables.

    Raises:
        KeyError: the stack has no value for a setting.
    """
    queues = on.queues
    values = {
        "cluster_name": on.cluster,
        "event_bus_name": on.bus.event_bus_name,
        "table_name": on.table.table_name,
        "catalog_bucket": on.catalog.bucket_name,
        "node_instance_profile": nodes.profile.ref,
        "termination_queue_url": queues.by_function[function_sizes.TERMINATION].queue_url,
        "disruption_queue_url": queues.by_function[function_sizes.DISRUPTION].queue_url,
        "planned_pods": options.planned_pods,
        "buffer_queues": json.dumps(options.buffer_queues),
        "buffer_alarms": json.dumps(options.buffer_alarms),
        "buffer_events": json.dumps([str(event) for event in options.buffer_events]),
        "standby": "on" if options.standby else "off",
    }
    if function in queues.dead_letters:
        values["dead_letter_queue_url"] = queues.dead_letters[function].queue_url
    return {**function_sizes.RUNTIME, **{settings.variable(name): values[name] for name in setting_names(function)}}


class Functions(Construct):
    """The functions and their roles, by name."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        on: PermissionScope,
        nodes: NodeRole,
        options: StackOptions,
        code: Mapping[str, str],
    ) -> None:
        """``code`` is the folder of each function's bundle."""
        super().__init__(scope, id_)
        self.by_name: dict[str, lambda_.Function] = {}
        self.roles: dict[str, iam.Role] = {}
        self.logs: dict[str, logs.LogGroup] = {}
        for name in options.functions:
            self._add_function(name, on=on, nodes=nodes, options=options, code=code[name])
        for name, queue in (*on.queues.by_function.items(), *on.queues.delayed.items()):
            queue_settings = function_sizes.QUEUES[name]
            self.by_name[name].add_event_source(
                SqsEventSource(
                    queue,
                    batch_size=queue_settings.batch,
                    max_batching_window=Duration.seconds(queue_settings.window) if queue_settings.window else None,
                    max_concurrency=queue_settings.concurrency,
                    report_batch_item_failures=True,
                )
            )

    def _add_function(
        self, name: str, *, on: PermissionScope, nodes: NodeRole, options: StackOptions, code: str
    ) -> None:
        size = function_sizes.SIZES[name]
        log_group = logs.LogGroup(
            self,
            f"{name.capitalize()}Logs",
            retention=_RETENTION[function_sizes.LOG_DAYS],
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = self._role(name, on=on, log_group=log_group, options=options)
        function = lambda_.Function(
            self,
            name.capitalize(),
            function_name=resource_names.function(on.cluster, name),
            description=f"Tenon {name} of EKS cluster {on.cluster}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=ARCHITECTURES[options.function_architecture],
            handler=f"functions.{name}.handler.handle",
            code=lambda_.Code.from_asset(code),
            memory_size=size.memory,
            timeout=Duration.seconds(size.timeout),
            reserved_concurrent_executions=size.reserved if options.reserve else None,
            environment=environment(name, on, nodes, options),
            role=role,
            log_group=log_group,
            tracing=lambda_.Tracing.ACTIVE if options.tracing else lambda_.Tracing.DISABLED,
            # EventBridge invokes asynchronously; its sweeps are repeated each minute.
            retry_attempts=_ASYNC_RETRIES,
            max_event_age=_ASYNC_AGE,
            on_failure=SqsDestination(on.queues.undelivered),
            recursive_loop=self._recursive_loop(name),
        )
        if is_in_vpc(name, options):
            into_vpc(function, options)
        self.by_name[name], self.roles[name], self.logs[name] = function, role, log_group

    def _recursive_loop(self, name: str) -> lambda_.RecursiveLoop | None:
        """Whether the function may be in a loop with its own queue; None where Lambda doesn't detect loops."""
        region = Stack.of(self).region
        is_detected = Token.is_unresolved(region) or function_sizes.detects_recursion(region)
        return lambda_.RecursiveLoop.ALLOW if name in function_sizes.RECURSIVE and is_detected else None

    def _role(self, name: str, *, on: PermissionScope, log_group: logs.LogGroup, options: StackOptions) -> iam.Role:
        role = iam.Role(
            self,
            f"{name.capitalize()}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Tenon {name} of EKS cluster {on.cluster}",
        )
        for statement in permissions.statements(name, setting_names(name), on):
            role.add_to_policy(statement)
        role.add_to_policy(
            iam.PolicyStatement(
                sid="WriteLogs",
                actions=["logs:CreateLogStream", "logs:PutLogEvents"],
                resources=[log_group.log_group_arn],
            )
        )
        if is_in_vpc(name, options):
            role.add_to_policy(permissions.join_network())
        return role


def is_in_vpc(name: str, options: StackOptions) -> bool:
    """Whether a function runs in the VPC.

    The catalog function doesn't: it never calls the cluster, but the Pricing API, which a VPC without a NAT gateway
    doesn't reach.
    """
    return bool(options.subnets) and name != function_sizes.CATALOG


def into_vpc(function: lambda_.Function, options: StackOptions) -> None:
    """Put a function into the subnets and security groups of the options; its role must allow it."""
    # By id: the CDK's VPC objects would need a lookup.
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
        subnet_ids=list(options.subnets), security_group_ids=list(options.security_groups)
    )
