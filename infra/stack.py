"""The stack of one cluster: its constructs, and the outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import CfnElement, CfnOutput, Environment, Stack

from infra import resource_names
from infra.acknowledgments import acknowledge
from infra.alarms import Alarms
from infra.cluster_access import ClusterAccess
from infra.dashboard import Dashboard
from infra.event_rules import Bus, Events
from infra.functions import Functions
from infra.kubectl_apply import KubectlApply
from infra.node_role import NodeRole
from infra.permissions import PermissionScope
from infra.queues import Queues
from infra.storage import Storage
from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk.aws_events import IEventBus
    from constructs import Construct

    from infra.stack_options import StackOptions

_CHECKOUT = Path(__file__).resolve().parent.parent


def _resource(construct: Construct) -> CfnElement:
    resource = construct.node.default_child
    assert isinstance(resource, CfnElement)
    return resource


class TenonStack(Stack):
    """All AWS resources of one cluster."""

    def __init__(
        self, scope: Construct, *, options: StackOptions, code: Mapping[str, str], env: Environment | None = None
    ) -> None:
        """``code`` is the folder of each function's bundle."""
        super().__init__(
            scope,
            resource_names.stack(options.cluster),
            env=env,
            description=f"Tenon: just-in-time nodes for EKS cluster {options.cluster}",
            analytics_reporting=False,
            # Cost allocation by cluster: CloudFormation gives the tag to all resources, launches give it to instances.
            tags={labels.CLUSTER_NAME_TAG: options.cluster},
        )
        bus = Bus(self, "Hints", cluster=options.cluster).bus
        queues = Queues(self, "Queues", options=options)
        storage = Storage(self, "State")
        nodes = NodeRole(self, "Nodes", existing_role=options.node_role)
        functions = Functions(
            self,
            "Functions",
            on=PermissionScope(
                cluster=options.cluster,
                scope=self,
                bus=bus,
                queues=queues,
                table=storage.table,
                catalog=storage.catalog,
                node_roles=[nodes.role.role_arn, *(self._role_arn(name) for name in options.node_roles)],
                kms_keys=options.kms_keys,
                buffer_queues=options.buffer_queues,
                buffer_alarms=options.buffer_alarms,
                standby=options.standby,
            ),
            nodes=nodes,
            options=options,
            code=code,
        )
        Events(self, "Events", options=options, bus=bus, queues=queues, functions=functions.by_name)
        access = ClusterAccess(
            self,
            "ClusterAccess",
            cluster=options.cluster,
            functions=functions.roles,
            nodes=nodes,
            bus=bus,
            oidc_provider=options.oidc_provider,
        )
        alarms = Alarms(
            self,
            "Alarms",
            cluster=options.cluster,
            functions=functions,
            queues=queues,
            topic=options.alarm_topic,
            reserve=options.reserve,
        )
        Dashboard(self, "Dashboard", cluster=options.cluster, functions=functions, queues=queues, alarms=alarms)
        kubectl = None
        if options.apply:
            kubectl = KubectlApply(self, "ClusterSide", options=options, access=access, checkout=_CHECKOUT)
        acknowledge(
            cluster=options.cluster,
            functions=functions,
            nodes=nodes,
            queues=queues,
            storage=storage,
            kubectl=kubectl,
            catalog_id=self.get_logical_id(_resource(storage.catalog)),
        )
        self._add_outputs(bus=bus, queues=queues, storage=storage, nodes=nodes, functions=functions, access=access)

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
        outputs = {
            "EventBusName": bus.event_bus_name,
            "TableName": storage.table.table_name,
            "CatalogBucket": storage.catalog.bucket_name,
            "NodeRoleArn": nodes.role.role_arn,
            "NodeInstanceProfile": nodes.profile.ref,
            "RelayRoleArn": access.relay.role_arn,
            "UndeliveredQueueUrl": queues.undelivered.queue_url,
        }
        for name, role in functions.roles.items():
            outputs[f"{name.capitalize()}RoleArn"] = role.role_arn
        for name, queue in queues.by_function.items():
            outputs[f"{name.capitalize()}QueueUrl"] = queue.queue_url
            outputs[f"{name.capitalize()}DeadLetterQueueUrl"] = queues.dead_letters[name].queue_url
        for key, value in outputs.items():
            CfnOutput(self, key, value=value)

    def _role_arn(self, name: str) -> str:
        return self.format_arn(service="iam", region="", resource="role", resource_name=name)
