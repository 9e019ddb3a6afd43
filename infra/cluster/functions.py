"""The Lambda functions: code, role, environment, log group, and the queue that triggers each.

The environment and part of the permissions of a function follow from the settings that its code declares
(functions/<name>/settings.py); permissions.py lists the rest of its role.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

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
from functions.nodegroups.settings import NodeGroupSettings
from functions.provisioner.settings import ProvisionerSettings
from functions.relay.settings import RelaySettings
from functions.shadow.settings import ShadowSettings
from functions.termination.settings import TerminationSettings
from functions.webhook.settings import WebhookSettings
from infra import function_sizes, installation
from infra.cluster import permissions, resource_names
from infra.cluster.permission_scope import allow
from shared.base import settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aws_cdk import aws_sqs as sqs

    from infra.cluster.node_role import NodeRole
    from infra.cluster.permission_scope import PermissionScope
    from infra.options.stack_options import StackOptions

_RETENTION = {30: logs.RetentionDays.ONE_MONTH}
ARCHITECTURES = {"arm64": lambda_.Architecture.ARM_64, "amd64": lambda_.Architecture.X86_64}
_ASYNC_AGE = Duration.minutes(5)
_ASYNC_RETRIES = 2
_WATCHING_AGE = Duration.minutes(1)
OF_FLEETS = frozenset({"clusters", "sweeps_table", "undelivered_queue_url"})
"""Settings that functions of other clusters don't have."""
OF_COMMITMENTS = frozenset({"commitments", "commitment_share"})
"""Settings that functions have only where commitments count."""
_QUIET: Mapping[str, Any] = {
    "logging_format": lambda_.LoggingFormat.JSON,
    "system_log_level_v2": lambda_.SystemLogLevel.WARN,
}
"""Without Lambda's own lines for each invocation, which would cost more than the invocation."""

SETTINGS: Mapping[str, type[settings.Settings]] = {
    function_sizes.PROVISIONER: ProvisionerSettings,
    function_sizes.LIFECYCLE: LifecycleSettings,
    function_sizes.DISRUPTION: DisruptionSettings,
    function_sizes.TERMINATION: TerminationSettings,
    function_sizes.INTERRUPTION: InterruptionSettings,
    function_sizes.CATALOG: CatalogSettings,
    function_sizes.BUFFERS: BufferSettings,
    function_sizes.NODE_GROUPS: NodeGroupSettings,
    function_sizes.SHADOW: ShadowSettings,
    function_sizes.RELAY: RelaySettings,
    function_sizes.WEBHOOK: WebhookSettings,
}
"""The settings that each function's code declares."""


def setting_names(function: str) -> list[str]:
    """The fields of the function's settings."""
    return [field.name for field in msgspec.structs.fields(SETTINGS[function])]


def environment(
    function: str, on: PermissionScope, nodes: NodeRole, options: StackOptions, *, webhook_digest: str
) -> dict[str, str]:
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
        "provisioning_queue_url": queues.by_function[function_sizes.PROVISIONER].queue_url,
        "termination_queue_url": queues.by_function[function_sizes.TERMINATION].queue_url,
        "disruption_queue_url": queues.by_function[function_sizes.DISRUPTION].queue_url,
        "planned_pods": options.planned_pods,
        "buffer_queues": json.dumps(options.buffer_queues),
        "buffer_alarms": json.dumps(options.buffer_alarms),
        "buffer_events": json.dumps([str(event) for event in options.buffer_events]),
        "dead_letter_queues": Stack.of(on.scope).to_json_string([q.queue_url for q in on.queues.all_dead_letters]),
        "sweeps_table": on.sweeps_table,
        "standby": "on" if options.standby else "off",
        "reboot": "on" if options.reboot else "off",
        "zonal_shift": "on" if options.zonal_shift else "off",
        "node_groups": "on" if options.node_groups else "off",
        **commitment_values(options),
        "relay": options.relay,
        "webhook_digest": webhook_digest,
    }
    if function_sizes.NODE_GROUPS in queues.by_function:
        values["node_group_queue_url"] = queues.by_function[function_sizes.NODE_GROUPS].queue_url
    if function in queues.dead_letters:
        values["dead_letter_queue_url"] = queues.dead_letters[function].queue_url
    return variables(function, values, options)


def variables(function: str, values: Mapping[str, str], options: StackOptions) -> dict[str, str]:
    """The function's environment variables, from the values of settings.

    Raises:
        KeyError: there is no value for a setting.
    """
    own = {settings.variable(name): values[name] for name in _deployed_settings(function, options)}
    return {**shared_variables(function, options), **own}


def _deployed_settings(function: str, options: StackOptions) -> list[str]:
    unused = (frozenset() if options.fleet else OF_FLEETS) | (frozenset() if options.commitments else OF_COMMITMENTS)
    return [name for name in setting_names(function) if name not in unused]


def commitment_values(options: StackOptions) -> dict[str, str]:
    """The values of settings about commitments; none where they don't count."""
    return {"commitments": "on", "commitment_share": options.commitment_share} if options.commitments else {}


def shared_variables(function: str, options: StackOptions) -> dict[str, str]:
    """The environment variables that are no setting of one function."""
    runtime = function_sizes.RELAY_RUNTIME if function == function_sizes.RELAY else function_sizes.RUNTIME
    fleet = {settings.variable("fleet"): options.fleet} if options.fleet else {}
    return {**runtime, settings.variable("observability"): options.observability, **fleet}


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
        webhook_digest: str = "",
    ) -> None:
        """``code`` is the folder of each function's bundle, ``webhook_digest`` that of the webhook's secret path."""
        super().__init__(scope, id_)
        self.by_name: dict[str, lambda_.Function] = {}
        self.roles: dict[str, iam.Role] = {}
        self.logs: dict[str, logs.LogGroup] = {}
        for name in options.functions:
            self.by_name[name], self.roles[name], self.logs[name] = make_function(
                self,
                name,
                options=options,
                code=code[name],
                environment=environment(name, on, nodes, options, webhook_digest=webhook_digest),
                statements=permissions.statements(name, _deployed_settings(name, options), on),
                # Whoever calls a public function waits for its answer.
                undelivered=None if name in function_sizes.PUBLIC else on.queues.undelivered,
            )
        for name, queue in (*on.queues.by_function.items(), *on.queues.delayed.items()):
            queue_settings = function_sizes.QUEUES[name]
            self.by_name[name].add_event_source(
                SqsEventSource(
                    queue,
                    batch_size=queue_settings.batch,
                    max_batching_window=Duration.seconds(queue_settings.window) if queue_settings.window else None,
                    # With a maximum, Lambda polls a queue with little traffic by five pollers instead of two.
                    max_concurrency=queue_settings.concurrency if options.reserve else None,
                    report_batch_item_failures=True,
                )
            )

    def senders(self, owner: str) -> list[str]:
        """The ARNs of the roles that send to the queue of that function."""
        return [role.role_arn for name, role in self.roles.items() if permissions.sends_to(owner, setting_names(name))]


def make_function(
    scope: Construct,
    name: str,
    *,
    options: StackOptions,
    code: str,
    environment: Mapping[str, str],
    statements: Iterable[iam.PolicyStatement],
    undelivered: sqs.IQueue | None = None,
    owner: str = "",
) -> tuple[lambda_.Function, iam.Role, logs.LogGroup]:
    """A function of ``owner`` or the cluster, with role and log group. ``undelivered`` gets the events that failed."""
    purpose = f"Tenon {name} of " + (f"fleet {options.fleet}" if owner else f"EKS cluster {options.cluster}")
    size = function_sizes.SIZES[name]
    log_group = _log_group(scope, name)
    role = _role(scope, name, statements=statements, log_group=log_group, options=options, purpose=purpose)
    function = lambda_.Function(
        scope,
        name.capitalize(),
        function_name=resource_names.function(owner or options.cluster, name),
        description=f"{purpose} (Tenon {installation.version()})",  # `tenon upgrade-check` reads it
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=ARCHITECTURES[options.function_architecture],
        handler=f"functions.{name}.handler.handle",
        code=lambda_.Code.from_asset(code),
        memory_size=_memory(name, options),
        timeout=Duration.seconds(size.timeout),
        reserved_concurrent_executions=size.reserved if options.reserve or name in function_sizes.PUBLIC else None,
        environment={**environment},
        role=role,
        log_group=log_group,
        tracing=lambda_.Tracing.ACTIVE if options.tracing else lambda_.Tracing.DISABLED,
        on_failure=SqsDestination(undelivered) if undelivered is not None else None,
        recursive_loop=_recursive_loop(scope, name),
        **(_QUIET if name in function_sizes.PUBLIC else _asynchronous(name)),
    )
    if is_in_vpc(name, options):
        into_vpc(function, options)
    return function, role, log_group


def _log_group(scope: Construct, name: str) -> logs.LogGroup:
    retention = _RETENTION[function_sizes.LOG_DAYS]
    return logs.LogGroup(scope, f"{name.capitalize()}Logs", retention=retention, removal_policy=RemovalPolicy.DESTROY)


def _asynchronous(name: str) -> dict[str, Any]:
    """How often EventBridge's invocations are retried, and for how long; its sweeps are repeated."""
    if name in function_sizes.WATCHING:
        return {"retry_attempts": 0, "max_event_age": _WATCHING_AGE}
    return {"retry_attempts": _ASYNC_RETRIES, "max_event_age": _ASYNC_AGE}


def _recursive_loop(scope: Construct, name: str) -> lambda_.RecursiveLoop | None:
    """Whether the function may be in a loop with its own queue; None where Lambda doesn't detect loops."""
    region = Stack.of(scope).region
    is_detected = Token.is_unresolved(region) or function_sizes.detects_recursion(region)
    return lambda_.RecursiveLoop.ALLOW if name in function_sizes.RECURSIVE and is_detected else None


def _role(
    scope: Construct,
    name: str,
    *,
    statements: Iterable[iam.PolicyStatement],
    log_group: logs.LogGroup,
    options: StackOptions,
    purpose: str,
) -> iam.Role:
    role = iam.Role(
        scope,
        f"{name.capitalize()}Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        description=purpose,
    )
    for statement in statements:
        role.add_to_policy(statement)
    role.add_to_policy(allow("WriteLogs", ["logs:CreateLogStream", "logs:PutLogEvents"], [log_group.log_group_arn]))
    if is_in_vpc(name, options):
        role.add_to_policy(permissions.join_network())
    return role


def _memory(name: str, options: StackOptions) -> int:
    least = function_sizes.memory(name, options.cluster_size)
    if name == function_sizes.RELAY:
        return max(least, options.relay_memory)
    return max(least, options.sweep_memory) if name in function_sizes.SWEEPING else least


def is_in_vpc(name: str, options: StackOptions) -> bool:
    """Whether a function runs in the VPC.

    Functions that never call the cluster don't: the catalog function calls the Pricing API, which a VPC without a NAT
    gateway doesn't reach.
    """
    return bool(options.subnets) and name not in function_sizes.WITHOUT_CLUSTER


def into_vpc(function: lambda_.Function, options: StackOptions) -> None:
    """Put a function into the subnets and security groups of the options; its role must allow it."""
    # By id: the CDK's VPC objects would need a lookup.
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
        subnet_ids=list(options.subnets), security_group_ids=list(options.security_groups)
    )
