"""One cluster's stack: the constructs put together, and what others must know of it as outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import CfnElement, CfnOutput, Environment, Stack

from infra import function_sizes
from infra.acknowledgments import acknowledge
from infra.alarms import Alarms
from infra.cluster_access import ClusterAccess
from infra.dashboard import Dashboard
from infra.event_rules import Bus, Events
from infra.functions import Functions
from infra.kubectl_apply import ClusterSide
from infra.node_role import Nodes
from infra.permissions import Subjects
from infra.queues import Queues
from infra.storage import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import Construct

    from infra.stack_options import Options

_CHECKOUT = Path(__file__).resolve().parent.parent


def stack_name(cluster: str) -> str:
    """The CloudFormation stack of a cluster; stack names have no underscores, clusters' may."""
    return f"tenon-{cluster.replace('_', '-')}"


def _resource(construct: Construct) -> CfnElement:
    resource = construct.node.default_child
    assert isinstance(resource, CfnElement)
    return resource


class TenonStack(Stack):
    """Everything that one cluster needs on AWS."""

    def __init__(
        self, scope: Construct, *, options: Options, code: Mapping[str, str], env: Environment | None = None
    ) -> None:
        """``code`` is the folder of each function's bundle."""
        super().__init__(
            scope,
            stack_name(options.cluster),
            env=env,
            description=f"Tenon: just-in-time nodes for EKS cluster {options.cluster}",
            analytics_reporting=False,
        )
        bus = Bus(self, "Hints", cluster=options.cluster).bus
        queues = Queues(self, "Queues", cluster=options.cluster)
        state = State(self, "State")
        nodes = Nodes(self, "Nodes", existing_role=options.node_role)
        functions = Functions(
            self,
            "Functions",
            on=Subjects(
                cluster=options.cluster,
                scope=self,
                bus=bus,
                queues=queues,
                table=state.table,
                catalog=state.catalog,
                node_roles=[nodes.role.role_arn, *(self._role_arn(name) for name in options.node_roles)],
            ),
            nodes=nodes,
            options=options,
            code=code,
        )
        Events(self, "Events", cluster=options.cluster, bus=bus, queues=queues, functions=functions.by_name)
        access = ClusterAccess(
            self, "ClusterAccess", cluster=options.cluster, functions=functions.roles, nodes=nodes, bus=bus
        )
        alarms = Alarms(
            self,
            "Alarms",
            cluster=options.cluster,
            functions=functions,
            queues=queues,
            topic=options.alarm_topic,
        )
        Dashboard(self, "Dashboard", cluster=options.cluster, functions=functions, queues=queues, alarms=alarms)
        side = None
        if options.apply:
            side = ClusterSide(self, "ClusterSide", options=options, access=access, checkout=_CHECKOUT)
        acknowledge(
            cluster=options.cluster,
            functions=functions,
            nodes=nodes,
            queues=queues,
            state=state,
            side=side,
            catalog_id=self.get_logical_id(_resource(state.catalog)),
        )
        outputs = {
            "EventBusName": bus.event_bus_name,
            "TableName": state.table.table_name,
            "CatalogBucket": state.catalog.bucket_name,
            "NodeRoleArn": nodes.role.role_arn,
            "NodeInstanceProfile": nodes.profile.ref,
            "RelayRoleArn": access.relay.role_arn,
            "UndeliveredQueueUrl": queues.undelivered.queue_url,
        }
        for name in function_sizes.FUNCTIONS:
            outputs[f"{name.capitalize()}RoleArn"] = functions.roles[name].role_arn
        for name, queue in queues.by_function.items():
            outputs[f"{name.capitalize()}QueueUrl"] = queue.queue_url
            outputs[f"{name.capitalize()}DeadLetterQueueUrl"] = queues.dead_letters[name].queue_url
        for key, value in outputs.items():
            CfnOutput(self, key, value=value)

    def _role_arn(self, name: str) -> str:
        return self.format_arn(service="iam", region="", resource="role", resource_name=name)
