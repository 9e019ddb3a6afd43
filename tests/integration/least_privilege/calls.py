"""Calls to AWS, each with Tenon's roles that are allowed to make it; all other roles must be denied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.integration.least_privilege.conftest import OWNED, Targets, tag_list

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ALL = frozenset(
    {
        "provisioner", "lifecycle", "disruption", "termination", "interruption", "catalog", "buffers", "nodegroups",
        "relay",
    }
)  # fmt: skip
LAUNCHES = frozenset({"provisioner", "disruption", "interruption"})
RESOLVES_NODE_CLASSES = LAUNCHES | {"lifecycle"}
READS_CLUSTER = RESOLVES_NODE_CLASSES | {"nodegroups"}
GROWS_NODE_GROUPS = frozenset({"provisioner", "interruption"})
SCALES_NODE_GROUPS = GROWS_NODE_GROUPS | {"nodegroups"}
NOBODY: frozenset[str] = frozenset()
WITH_QUEUES = ("provisioner", "disruption", "termination", "interruption", "buffers", "nodegroups")
_ONLY_CLUSTER = {"kubernetes.io/cluster/demo": "owned"}
_OTHERS = {"kubernetes.io/cluster/other": "owned", "karpenter.sh/nodepool": "default"}


@dataclass(frozen=True, kw_only=True)
class Call:
    """``params`` are computed from the existing resources; only ``roles`` may make the call."""

    name: str
    service: str
    operation: str
    params: Callable[[Targets], Mapping[str, Any]]
    roles: frozenset[str] = NOBODY
    region: str = "us-east-1"

    def __str__(self) -> str:
        return self.name


def _fleet(
    template: Callable[[Targets], str], tags: Mapping[str, str], *, volume: Mapping[str, str] | None = None
) -> Callable[[Targets], Mapping[str, Any]]:
    def params(targets: Targets) -> Mapping[str, Any]:
        subnet = next(iter(targets.cloud.account.subnets.values()))
        by_type = {"fleet": tags, "instance": tags, "volume": tags if volume is None else volume}
        return {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": template(targets), "Version": "$Latest"},
                    "Overrides": [{"InstanceType": "m5.large", "SubnetId": subnet}],
                }
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
            "TagSpecifications": [
                {"ResourceType": type_, "Tags": tag_list(dict(type_tags))}
                for type_, type_tags in by_type.items()
                if type_tags
            ],
        }

    return params


def _template(name: str, tags: Mapping[str, str]) -> Callable[[Targets], Mapping[str, Any]]:
    type_tags = [{"ResourceType": "launch-template", "Tags": tag_list(dict(tags))}] if tags else []
    return lambda _: {"LaunchTemplateName": name, "LaunchTemplateData": {}, "TagSpecifications": type_tags}


def _tag(resource: Callable[[Targets], str], tags: Mapping[str, str]) -> Callable[[Targets], Mapping[str, Any]]:
    return lambda targets: {"Resources": [resource(targets)], "Tags": tag_list(dict(tags))}


def _instances(instance: Callable[[Targets], str]) -> Callable[[Targets], Mapping[str, Any]]:
    return lambda targets: {"InstanceIds": [instance(targets)]}


def _profile(name: str, tags: Mapping[str, str]) -> Callable[[Targets], Mapping[str, Any]]:
    return lambda _: {"InstanceProfileName": name, "Tags": tag_list(dict(tags))}


def _fill(profile: str, role: Callable[[Targets], str]) -> Callable[[Targets], Mapping[str, Any]]:
    return lambda targets: {"InstanceProfileName": profile, "RoleName": role(targets)}


def _node_role(targets: Targets) -> str:
    return targets.cloud.deployed.outputs["NodeRoleArn"].rsplit("/", 1)[-1]


def _event(source: str, bus: str, about: str = "Nodes Emptied") -> Callable[[Targets], Mapping[str, Any]]:
    entry = {"Source": source, "DetailType": about, "Detail": "{}", "EventBusName": bus}
    return lambda _: {"Entries": [entry]}


def _to(queue: str) -> Callable[[Targets], Mapping[str, Any]]:
    return lambda targets: {"QueueUrl": targets.queue(queue), "MessageBody": "{}"}


def _at(queue: str) -> Callable[[Targets], Mapping[str, Any]]:
    return lambda targets: {"QueueUrl": targets.queue(queue)}


def _in_table(targets: Targets) -> Mapping[str, Any]:
    return {"TableName": targets.table, "Key": {}}


def _object(key: str) -> Callable[[Targets], Mapping[str, Any]]:
    return lambda targets: {"Bucket": targets.bucket, "Key": key}


def _fixed(**params: Any) -> Callable[[Targets], Mapping[str, Any]]:
    return lambda _: params


def _ec2(
    description: str,
    operation: str,
    params: Callable[[Targets], Mapping[str, Any]],
    roles: frozenset[str] = NOBODY,
) -> Call:
    return Call(name=description, service="ec2", operation=operation, params=params, roles=roles)


_LAUNCHING = (
    _ec2("launch tagged", "CreateFleet", _fleet(lambda m: m.own_template, OWNED), LAUNCHES),
    _ec2("launch without a pool's tag", "CreateFleet", _fleet(lambda m: m.own_template, _ONLY_CLUSTER)),
    _ec2("launch for another cluster", "CreateFleet", _fleet(lambda m: m.own_template, _OTHERS)),
    _ec2("launch from another's template", "CreateFleet", _fleet(lambda m: m.others_template, OWNED)),
    _ec2("launch an untagged volume", "CreateFleet", _fleet(lambda m: m.bare_template, OWNED, volume={})),
    _ec2("launch with a role that isn't the nodes'", "CreateFleet", _fleet(lambda m: m.administrators_template, OWNED)),
    _ec2("run untagged instances", "RunInstances", _fixed(ImageId="ami-1", MinCount=1, MaxCount=1)),
    _ec2("make a template", "CreateLaunchTemplate", _template("new", _ONLY_CLUSTER), LAUNCHES),
    _ec2("make an untagged template", "CreateLaunchTemplate", _template("new", {})),
    _ec2("make another's template", "CreateLaunchTemplate", _template("new", _OTHERS)),
    _ec2(
        "delete an own template",
        "DeleteLaunchTemplate",
        lambda targets: {"LaunchTemplateId": targets.own_template},
        frozenset({"lifecycle"}),
    ),
    _ec2(
        "delete another's template",
        "DeleteLaunchTemplate",
        lambda targets: {"LaunchTemplateId": targets.others_template},
    ),
)
_TAGGING = (
    _ec2(
        "say which claim an instance is", "CreateTags", _tag(lambda m: m.node, {"Name": "n"}), frozenset({"lifecycle"})
    ),
    _ec2("tag an own volume", "CreateTags", _tag(lambda m: m.own_volume, {"Name": "n"})),
    _ec2("give an own instance to somebody", "CreateTags", _tag(lambda m: m.node, {"Owner": "me"})),
    _ec2("take an instance into the cluster", "CreateTags", _tag(lambda m: m.untagged, OWNED)),
    _ec2("rename another's instance", "CreateTags", _tag(lambda m: m.foreign_instance, {"Name": "n"})),
    _ec2("take tags off", "DeleteTags", _tag(lambda m: m.node, {"Name": "n"})),
)
_TERMINATING = (
    _ec2("terminate a node", "TerminateInstances", _instances(lambda m: m.node), frozenset({"termination"})),
    _ec2("terminate a node group's node", "TerminateInstances", _instances(lambda m: m.managed)),
    _ec2("terminate another cluster's node", "TerminateInstances", _instances(lambda m: m.foreign_instance)),
    _ec2("terminate what is nobody's", "TerminateInstances", _instances(lambda m: m.untagged)),
    _ec2("stop a node", "StopInstances", _instances(lambda m: m.node)),
)
_SEEN = (
    *("DescribeInstances", "DescribeInstanceStatus", "DescribeImages"),
    *("DescribeInstanceTypes", "DescribeSpotInstanceRequests"),
)
_READING = (
    _ec2("see instances", "DescribeInstances", _fixed(), RESOLVES_NODE_CLASSES | {"termination", "nodegroups"}),
    _ec2("see status checks", "DescribeInstanceStatus", _fixed(), frozenset({"interruption", "nodegroups"})),
    _ec2("see spot requests", "DescribeSpotInstanceRequests", _fixed(), frozenset({"interruption", "nodegroups"})),
    _ec2("see images", "DescribeImages", _fixed(), RESOLVES_NODE_CLASSES),
    _ec2("see instance types", "DescribeInstanceTypes", _fixed(), frozenset({"catalog"})),
    _ec2("see templates", "DescribeLaunchTemplates", _fixed(), frozenset({"lifecycle"})),
    *(
        Call(
            name=f"{operation} in another Region",
            service="ec2",
            operation=operation,
            params=_fixed(),
            region="eu-x",
        )
        for operation in (*_SEEN, "DescribeLaunchTemplates")
    ),
    Call(
        name="see prices",
        service="pricing",
        operation="GetProducts",
        params=_fixed(),
        roles=frozenset({"catalog"}),
    ),
)
_ROLES = (
    Call(
        name="make a profile",
        service="iam",
        operation="CreateInstanceProfile",
        params=_profile("tenon-demo-1", _ONLY_CLUSTER),
        roles=RESOLVES_NODE_CLASSES,
    ),
    Call(name="make an untagged profile", service="iam", operation="CreateInstanceProfile",
         params=_profile("tenon-demo-1", {})),
    Call(name="make a profile of another name", service="iam", operation="CreateInstanceProfile",
         params=_profile("mine", _ONLY_CLUSTER)),
    Call(name="fill a profile", service="iam", operation="AddRoleToInstanceProfile",
         params=_fill("tenon-demo-1", _node_role), roles=RESOLVES_NODE_CLASSES),
    Call(name="fill a profile with another role", service="iam", operation="AddRoleToInstanceProfile",
         params=_fill("tenon-demo-1", lambda _: "Administrator")),
    Call(name="fill another's profile", service="iam", operation="AddRoleToInstanceProfile",
         params=_fill("others", _node_role)),
    Call(name="look up a role's profiles", service="iam", operation="ListInstanceProfilesForRole",
         params=_fixed(RoleName="any"), roles=RESOLVES_NODE_CLASSES),
    Call(name="see a profile", service="iam", operation="GetInstanceProfile",
         params=_fixed(InstanceProfileName="any"), roles=RESOLVES_NODE_CLASSES),
    Call(name="make a role", service="iam", operation="CreateRole", params=_fixed(RoleName="mine")),
    Call(name="widen an own role", service="iam", operation="PutRolePolicy", params=_fill("", _node_role)),
    Call(name="give the nodes' role more", service="iam", operation="AttachRolePolicy", params=_fill("", _node_role)),
)  # fmt: skip
_QUEUES = (
    Call(name="hand over to termination", service="sqs", operation="SendMessage", params=_to("TerminationQueueUrl"),
         roles=frozenset({"lifecycle", "disruption", "termination", "interruption"})),
    Call(name="wake up disruption", service="sqs", operation="SendMessage", params=_to("DisruptionQueueUrl"),
         roles=frozenset({"disruption"})),
    Call(name="ask for provisioning", service="sqs", operation="SendMessage", params=_to("ProvisionerQueueUrl")),
    Call(name="forge an interruption", service="sqs", operation="SendMessage", params=_to("InterruptionQueueUrl")),
    Call(name="send to a queue of others", service="sqs", operation="SendMessage",
         params=_fixed(QueueUrl="https://sqs/123456789012/others", MessageBody="")),
    *(
        Call(name=f"bury in {name}'s dead letters", service="sqs", operation="SendMessage",
             params=_to(f"{name.capitalize()}DeadLetterQueueUrl"), roles=frozenset({name}))
        for name in WITH_QUEUES
    ),
    *(
        Call(name=f"receive {name}'s messages", service="sqs", operation="ReceiveMessage",
             params=_at(f"{name.capitalize()}QueueUrl"), roles=frozenset({name}))
        for name in WITH_QUEUES
    ),
    *(
        Call(name=f"purge {output}", service="sqs", operation="PurgeQueue", params=_at(output))
        for output in (
            *(f"{name}{kind}QueueUrl" for name in map(str.capitalize, WITH_QUEUES)
              for kind in ("", "DeadLetter")),
            "UndeliveredQueueUrl",
        )
    ),
)  # fmt: skip
_KEEPING = (
    Call(name="keep a record", service="dynamodb", operation="PutItem", params=_in_table,
         roles=LAUNCHES | {"lifecycle", "termination"}),
    Call(name="delete records", service="dynamodb", operation="DeleteItem", params=_in_table),
    Call(name="scan the table", service="dynamodb", operation="Scan", params=_in_table),
    Call(name="delete the table", service="dynamodb", operation="DeleteTable", params=_in_table),
    Call(name="write another table", service="dynamodb", operation="PutItem", params=_fixed(TableName="others")),
    Call(name="read the catalog", service="s3", operation="GetObject", params=_object("there"),
         roles=RESOLVES_NODE_CLASSES | {"catalog"}),
    Call(name="see that the catalog is missing", service="s3", operation="GetObject", params=_object("missing"),
         roles=RESOLVES_NODE_CLASSES | {"catalog"}),
    Call(name="write the catalog", service="s3", operation="PutObject", params=_object("there"),
         roles=frozenset({"catalog"})),
    Call(name="delete the catalog", service="s3", operation="DeleteObject", params=_object("there")),
    Call(name="read another bucket", service="s3", operation="GetObject", params=_fixed(Bucket="others", Key="k")),
    Call(name="list another bucket", service="s3", operation="ListObjectsV2", params=_fixed(Bucket="others")),
    Call(name="write another bucket", service="s3", operation="PutObject", params=_fixed(Bucket="others", Key="k")),
)  # fmt: skip
_REST = (
    Call(name="reach the cluster", service="eks", operation="DescribeCluster", params=_fixed(name="demo"),
         roles=READS_CLUSTER | {"termination", "buffers", "relay"}),
    Call(name="reach another cluster", service="eks", operation="DescribeCluster", params=_fixed(name="other")),
    Call(name="delete the cluster", service="eks", operation="DeleteCluster", params=_fixed(name="demo")),
    Call(name="read a public parameter", service="ssm", operation="GetParameter",
         params=_fixed(Name="/aws/service/eks/x"), roles=RESOLVES_NODE_CLASSES),
    Call(name="read a secret parameter", service="ssm", operation="GetParameter", params=_fixed(Name="/prod/db")),
    Call(name="write a public parameter", service="ssm", operation="PutParameter",
         params=_fixed(Name="/aws/service/eks/x")),
    Call(name="count the messages of a named queue", service="sqs", operation="GetQueueAttributes",
         params=_fixed(QueueUrl="https://sqs/123456789012/orders"), roles=frozenset({"buffers"})),
    Call(name="count the messages of another queue", service="sqs", operation="GetQueueAttributes",
         params=_fixed(QueueUrl="https://sqs/123456789012/others")),
    Call(name="purge the queue of second reads", service="sqs", operation="PurgeQueue",
         params=_fixed(QueueUrl="https://sqs/123456789012/tenon-demo-buffers-delayed")),
    Call(name="receive a named queue's messages", service="sqs", operation="ReceiveMessage",
         params=_fixed(QueueUrl="https://sqs/123456789012/orders")),
    Call(name="see a named alarm", service="cloudwatch", operation="DescribeAlarms",
         params=_fixed(AlarmNames=["latency"]), roles=frozenset({"buffers"})),
    Call(name="see another alarm next to it", service="cloudwatch", operation="DescribeAlarms",
         params=_fixed(AlarmNames=["latency", "others"])),
    Call(name="see all alarms", service="cloudwatch", operation="DescribeAlarms", params=_fixed()),
    Call(name="say a hint", service="events", operation="PutEvents",
         params=_event("tenon.functions", "tenon-demo"), roles=frozenset({"provisioner", "interruption"})),
    Call(name="say what happens to a node group", service="events", operation="PutEvents",
         params=_event("tenon.functions", "tenon-demo", "Node Group Scaled Down"),
         roles=frozenset({"provisioner", "interruption", "nodegroups"})),
    Call(name="say what happens to a node group as EC2", service="events", operation="PutEvents",
         params=_event("aws.ec2", "tenon-demo", "Node Group Scaled Down")),
    Call(name="say what happens to a node group on the default bus", service="events", operation="PutEvents",
         params=_event("tenon.functions", "default", "Node Group Scaled Down")),
    Call(name="say a hint as the relay", service="events", operation="PutEvents",
         params=_event("tenon.relay", "tenon-demo"), roles=frozenset({"relay"})),
    Call(name="say a hint as EC2", service="events", operation="PutEvents", params=_event("aws.ec2", "tenon-demo")),
    Call(name="say a hint on the default bus", service="events", operation="PutEvents",
         params=_event("tenon.functions", "default")),
    Call(name="say a hint as the relay on the default bus", service="events", operation="PutEvents",
         params=_event("tenon.relay", "default")),
)  # fmt: skip

_NODE_GROUPS = (
    Call(name="see node groups", service="autoscaling", operation="DescribeAutoScalingGroups", params=_fixed(),
         roles=SCALES_NODE_GROUPS),
    Call(name="see failed launches", service="autoscaling", operation="DescribeScalingActivities",
         params=_fixed(AutoScalingGroupName="own"), roles=GROWS_NODE_GROUPS),
    Call(name="grow a node group", service="autoscaling", operation="SetDesiredCapacity",
         params=_fixed(AutoScalingGroupName="own", DesiredCapacity=1), roles=GROWS_NODE_GROUPS),
    Call(name="grow another cluster's node group", service="autoscaling", operation="SetDesiredCapacity",
         params=_fixed(AutoScalingGroupName="foreign", DesiredCapacity=1)),
    Call(name="remove an instance of no node group", service="autoscaling",
         operation="TerminateInstanceInAutoScalingGroup",
         params=lambda targets: {"InstanceId": targets.untagged, "ShouldDecrementDesiredCapacity": True}),
    *(
        Call(name=f"{operation} of {group}", service="autoscaling", operation=operation,
             params=_fixed(AutoScalingGroupName=group, LifecycleHookName="h", LifecycleActionResult="CONTINUE"),
             roles=frozenset({"nodegroups"}) if group == "own" else NOBODY)
        for operation in ("CompleteLifecycleAction", "RecordLifecycleActionHeartbeat")
        for group in ("own", "foreign")
    ),
    Call(name="see hooks", service="autoscaling", operation="DescribeLifecycleHooks",
         params=_fixed(AutoScalingGroupName="own"), roles=frozenset({"nodegroups"})),
    Call(name="continue drains of node groups", service="sqs", operation="SendMessage",
         params=_to("NodegroupsQueueUrl"), roles=frozenset({"nodegroups"})),
    Call(name="see node groups of another Region", service="autoscaling", operation="DescribeAutoScalingGroups",
         params=_fixed(), region="eu-x"),
    Call(name="keep instances of a node group waiting", service="autoscaling", operation="PutLifecycleHook",
         params=_fixed(AutoScalingGroupName="own", LifecycleHookName="h")),
    Call(name="see managed node groups", service="eks", operation="ListNodegroups", params=_fixed(clusterName="demo"),
         roles=SCALES_NODE_GROUPS),
    Call(name="see another cluster's managed node groups", service="eks", operation="ListNodegroups",
         params=_fixed(clusterName="other")),
)  # fmt: skip

CALLS: tuple[Call, ...] = (
    *_LAUNCHING,
    *_TAGGING,
    *_TERMINATING,
    *_READING,
    *_ROLES,
    *_QUEUES,
    *_KEEPING,
    *_REST,
    *_NODE_GROUPS,
)
