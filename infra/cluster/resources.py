"""The AWS resources of one cluster, in a scope: that of a stack of Tenon's own, or of a construct in another stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnElement, Stack
from constructs import Construct, IConstruct

from infra import function_sizes
from infra.cluster.acknowledgments import acknowledge
from infra.cluster.alarms import Alarms
from infra.cluster.dashboard import Dashboard
from infra.cluster.event_rules import Bus, Events
from infra.cluster.fleet_resources import FleetResources
from infra.cluster.functions import Functions
from infra.cluster.kubernetes.cluster_access import ClusterAccess
from infra.cluster.kubernetes.kubectl_apply import KubectlApply
from infra.cluster.kubernetes.webhook import WebhookConfiguration, public_url
from infra.cluster.node_role import NodeRole
from infra.cluster.permission_scope import PermissionScope
from infra.cluster.queues import Queues
from infra.cluster.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_lambda as lambda_
    from aws_cdk.aws_events import IEventBus

    from infra.options.stack_options import StackOptions


def _logical_id(construct: IConstruct) -> str:
    resource = construct.node.default_child
    assert isinstance(resource, CfnElement)
    return Stack.of(construct).get_logical_id(resource)


class ClusterResources:
    """The resources: ``node_role``, the ``functions`` by name, and the ``outputs`` that operators need, by name.

    This is no construct, so that the resources are the scope's own children: logical ids of a deployed stack follow
    from their paths, and must not change.
    """

    def __init__(self, scope: Construct, *, options: StackOptions, code: Mapping[str, str]) -> None:
        """``code`` is the folder of each function's bundle."""
        self.outputs: dict[str, str] = {}
        self._scope = scope
        bus = Bus(scope, "Hints", cluster=options.cluster).bus
        fleet = FleetResources(options.fleet, Construct(scope, "Fleet")) if options.fleet else None
        queues = Queues(scope, "Queues", options=options, undelivered=fleet.undelivered() if fleet else None)
        storage = Storage(scope, "State", catalog=fleet.catalog() if fleet else None)
        nodes = NodeRole(scope, "Nodes", existing_role=options.node_role)
        webhook = self._webhook(options)
        digest = webhook.digest if webhook is not None else options.webhook_digest
        on = self._permission_scope(options, bus=bus, queues=queues, storage=storage, nodes=nodes, fleet=fleet)
        functions = Functions(scope, "Functions", on=on, nodes=nodes, options=options, code=code, webhook_digest=digest)
        catalog = fleet.catalog_function() if fleet else functions.by_name[function_sizes.CATALOG]
        Events(scope, "Events", options=options, bus=bus, queues=queues, functions=functions, catalog=catalog)
        access = ClusterAccess(scope, "ClusterAccess", options=options, functions=functions.roles, nodes=nodes, bus=bus)
        if fleet is None:
            self._observe(options, functions, queues)
        kubectl = KubectlApply(scope, "ClusterSide", options=options, access=access) if options.apply else None
        if function_sizes.WEBHOOK in functions.by_name:
            self._publish_webhook(functions, webhook, kubectl)
        acknowledge(
            cluster=options.cluster,
            functions=functions,
            nodes=nodes,
            queues=queues,
            storage=storage,
            kubectl=kubectl,
            webhook=webhook,
            catalog=fleet.catalog_finding if fleet else f"<{_logical_id(storage.catalog)}.Arn>",
        )
        self.node_role = nodes.role
        self.functions: Mapping[str, lambda_.Function] = functions.by_name
        self._add_outputs(bus=bus, queues=queues, storage=storage, nodes=nodes, functions=functions, access=access)

    def _permission_scope(
        self,
        options: StackOptions,
        *,
        bus: IEventBus,
        queues: Queues,
        storage: Storage,
        nodes: NodeRole,
        fleet: FleetResources | None,
    ) -> PermissionScope:
        return PermissionScope(
            cluster=options.cluster,
            scope=self._scope,
            bus=bus,
            queues=queues,
            table=storage.table,
            catalog=storage.catalog,
            node_roles=[nodes.role.role_arn, *(self._role_arn(name) for name in options.node_roles)],
            kms_keys=options.kms_keys,
            buffer_queues=options.buffer_queues,
            buffer_alarms=options.buffer_alarms,
            standby=options.standby,
            reboot=options.reboot,
            zonal_shift=options.zonal_shift,
            node_groups=options.node_groups,
            commitments=options.commitments,
            sweeps_table=fleet.sweeps_table if fleet else "",
        )

    def _webhook(self, options: StackOptions) -> WebhookConfiguration | None:
        if options.relay != "webhook" or not options.apply:
            return None
        return WebhookConfiguration(self._scope, "Webhook", options=options)

    def _publish_webhook(
        self, functions: Functions, webhook: WebhookConfiguration | None, kubectl: KubectlApply | None
    ) -> None:
        url = public_url(functions.by_name[function_sizes.WEBHOOK])
        self.outputs["WebhookUrl"] = url.url
        if webhook is not None and kubectl is not None and kubectl.webhook_access is not None:
            webhook.apply(url, after=kubectl.webhook_access)

    def _observe(self, options: StackOptions, functions: Functions, queues: Queues) -> None:
        alarms = Alarms(self._scope, "Alarms", options=options, functions=functions, queues=queues)
        if options.observability == "full":
            Dashboard(
                self._scope, "Dashboard", cluster=options.cluster, functions=functions, queues=queues, alarms=alarms
            )

    def _add_outputs(
        self,
        *,
        bus: IEventBus,
        queues: Queues,
        storage: Storage,
        nodes: NodeRole,
        functions: Functions,
        access: ClusterAccess,
    ) -> None:
        outputs = self.outputs
        outputs |= {
            "EventBusName": bus.event_bus_name,
            "TableName": storage.table.table_name,
            "CatalogBucket": storage.catalog.bucket_name,
            "NodeRoleArn": nodes.role.role_arn,
            "NodeInstanceProfile": nodes.profile.ref,
            "UndeliveredQueueUrl": queues.undelivered.queue_url,
        }
        if access.relay is not None:
            outputs["RelayRoleArn"] = access.relay.role_arn
        for name, role in functions.roles.items():
            outputs[f"{name.capitalize()}RoleArn"] = role.role_arn
        for name, queue in queues.by_function.items():
            outputs[f"{name.capitalize()}QueueUrl"] = queue.queue_url
            outputs[f"{name.capitalize()}DeadLetterQueueUrl"] = queues.dead_letters[name].queue_url

    def _role_arn(self, name: str) -> str:
        return Stack.of(self._scope).format_arn(service="iam", region="", resource="role", resource_name=name)
