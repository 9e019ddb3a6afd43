"""Node groups next to Tenon: their instances become nodes of the cluster, and Tenon leaves them alone."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.world import Options, World, sample_objects
from local.world.hostility import Hostility
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj

LIMIT = timedelta(minutes=15)
TAINT = {"key": "dedicated", "value": "batch", "effect": "NO_SCHEDULE"}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}
NODE_CONFIG = """apiVersion: node.eks.aws/v1
kind: NodeConfig
spec:
  cluster:
    name: {name}
    apiServerEndpoint: {endpoint}
    certificateAuthority: {authority}
    cidr: {cidr}
  kubelet:
    config:
      registerWithTaints: [{{key: licence, value: sap, effect: NoSchedule}}]
    flags: ["--node-labels=tier=sap,licensed=yes"]
"""


def managed_node_group(world: World, *, desired: int = 0) -> str:
    """A managed node group of at most four m5.large with a label and a taint; the name of its group."""
    create: Any = boto3.client("eks").create_nodegroup
    created = create(
        clusterName=world.cluster,
        nodegroupName="batch",
        nodeRole=f"arn:aws:iam::123456789012:role/TenonNodeRole-{world.cluster}",
        subnets=list(world.aws.account.subnets.values()),
        instanceTypes=["m5.large"],
        labels={"tier": "batch"},
        taints=[TAINT],
        scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": desired},
    )
    return str(created["nodegroup"]["resources"]["autoScalingGroups"][0]["name"])


def scale(group: str, desired: int) -> None:
    boto3.client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=desired)


def described(group: str) -> dict[str, Any]:
    answer: Any = boto3.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    (only,) = answer["AutoScalingGroups"]
    return {
        "sizes": (only["MinSize"], only["DesiredCapacity"], only["MaxSize"]),
        "instances": sorted((i["InstanceId"], i["LifecycleState"]) for i in only["Instances"]),
    }


def ready(nodes: list[Obj]) -> list[Obj]:
    return [n for n in nodes if any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"]["conditions"])]


def grow_and_shrink(world: World) -> None:
    """A managed node group from none to two and back: nodes join, a pod runs on one, and they leave."""
    group = managed_node_group(world)
    scale(group, 2)
    world.run_until(lambda: len(ready(world.nodes())) == 2, limit=LIMIT)
    world.run_until(lambda: [s for _, s in described(group)["instances"]] == ["InService"] * 2, limit=LIMIT)
    ids = {instance_id for instance_id, _ in described(group)["instances"]}
    nodes = world.nodes()
    assert {node["spec"]["providerID"].rsplit("/", 1)[-1] for node in nodes} == ids
    assert len({node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes}) == 2
    for node in nodes:
        labels = node["metadata"]["labels"]
        assert labels["eks.amazonaws.com/nodegroup"] == "batch"
        assert labels["eks.amazonaws.com/capacityType"] == "ON_DEMAND"
        assert (labels["tier"], labels["node.kubernetes.io/instance-type"]) == ("batch", "m5.large")
        assert {**TAINT, "effect": "NoSchedule"} in node["spec"]["taints"]
    selector = {"eks.amazonaws.com/nodegroup": "batch"}
    requests = {"cpu": "500m", "memory": "256Mi"}
    world.apply(sample_objects.deployment("job", 1, requests, nodeSelector=selector, tolerations=[TOLERATION]))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=LIMIT)
    assert world.pods(phase="Running")[0]["spec"]["nodeName"] in {node["metadata"]["name"] for node in nodes}
    world.scale("default", "job", 0)
    scale(group, 0)
    world.run_until(lambda: not (world.nodes() or world.instances()), limit=LIMIT)
    world.run_until(lambda: not described(group)["instances"], limit=LIMIT)
    assert len(world.aws.instances.all) == 2
    assert world.claims() == []
    assert world.failures() == []


def test_a_managed_node_group_grows_and_shrinks(world: World) -> None:
    grow_and_shrink(world)


def test_a_managed_node_group_grows_and_shrinks_in_a_hostile_world() -> None:
    # A rebalancing would launch more than the two instances that are counted.
    with World(cluster="demo", options=Options(hostility=with_fields(Hostility(), rebalance_after=None))) as world:
        grow_and_shrink(world)


def test_eks_drains_a_managed_node_before_its_instance_is_terminated(world: World) -> None:
    group = managed_node_group(world, desired=2)
    world.run_until(lambda: len(ready(world.nodes())) == 2, limit=LIMIT)
    selector = {"eks.amazonaws.com/nodegroup": "batch"}
    requests = {"cpu": "500m", "memory": "256Mi"}
    world.apply(sample_objects.deployment("job", 1, requests, nodeSelector=selector, tolerations=[TOLERATION]))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=LIMIT)
    (pod,) = world.pods(phase="Running")
    (node,) = (n for n in world.nodes() if n["metadata"]["name"] == pod["spec"]["nodeName"])
    instance_id = node["spec"]["providerID"].rsplit("/", 1)[-1]
    boto3.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance_id, ShouldDecrementDesiredCapacity=True
    )
    world.run_until(lambda: (instance_id, "Terminating:Wait") in described(group)["instances"], limit=LIMIT)
    uid = pod["metadata"]["uid"]
    world.run_until(lambda: all(p["metadata"]["uid"] != uid for p in world.pods()), limit=LIMIT)
    assert instance_id in world.aws.instances.running
    world.run_until(lambda: len(described(group)["instances"]) == 1, limit=LIMIT)
    (moved,) = world.pods(phase="Running")
    assert moved["spec"]["nodeName"] != pod["spec"]["nodeName"]


def test_nodes_of_a_self_managed_group_have_the_labels_and_taints_of_its_user_data(world: World) -> None:
    cluster: Any = boto3.client("eks").describe_cluster(name=world.cluster)["cluster"]
    user_data = NODE_CONFIG.format(
        name=world.cluster,
        endpoint=cluster["endpoint"],
        authority=cluster["certificateAuthority"]["data"],
        cidr=cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
    )
    name = (
        f"/aws/service/eks/optimized-ami/{world.options.version}/amazon-linux-2023/x86_64/standard/recommended/image_id"
    )
    image = boto3.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    boto3.client("ec2").create_launch_template(
        LaunchTemplateName="sap",
        LaunchTemplateData={
            "ImageId": image,
            "InstanceType": "m5.large",
            "UserData": base64.b64encode(user_data.encode()).decode(),
        },
    )
    boto3.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="sap",
        MinSize=0,
        MaxSize=2,
        DesiredCapacity=1,
        LaunchTemplate={"LaunchTemplateName": "sap", "Version": "$Default"},
        VPCZoneIdentifier=next(iter(world.aws.account.subnets.values())),
    )
    world.run_until(lambda: len(ready(world.nodes())) == 1, limit=LIMIT)
    (node,) = world.nodes()
    assert (node["metadata"]["labels"]["tier"], node["metadata"]["labels"]["licensed"]) == ("sap", "yes")
    assert {"key": "licence", "value": "sap", "effect": "NoSchedule"} in node["spec"]["taints"]


@pytest.mark.parametrize(
    "hostility",
    [None, pytest.param(with_fields(Hostility(), rebalance_after=None), marks=pytest.mark.long)],
    ids=["kind", "hostile"],
)
def test_an_hour_of_sweeps_leaves_a_group_unchanged(hostility: Hostility | None) -> None:
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    with World(cluster="demo", options=Options(hostility=hostility)) as world:
        world.apply([sample_objects.node_class(world), sample_objects.node_pool({}, disruption=disruption)])
        world.apply(sample_objects.deployment("web", 2, {"cpu": "700m", "memory": "256Mi"}))
        group = managed_node_group(world, desired=2)
        world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=LIMIT)
        world.run_until(lambda: [s for _, s in described(group)["instances"]] == ["InService"] * 2, limit=LIMIT)
        world.run_until(lambda: len(ready(of_group(world))) == 2, limit=LIMIT)
        world.run_for(timedelta(minutes=1))  # until the cluster's controllers have removed their taints
        nodes, before = identities(of_group(world)), described(group)
        world.run_for(timedelta(hours=1))
        assert described(group) == before
        assert identities(of_group(world)) == nodes
        assert len(world.claims()) == 1
        assert world.failures() == []


def of_group(world: World) -> list[Obj]:
    return [n for n in world.nodes() if n["metadata"]["labels"].get("eks.amazonaws.com/nodegroup") == "batch"]


def identities(nodes: list[Obj]) -> list[Obj]:
    """Each node's identity, labels, annotations and finalizers, and its spec."""
    keys = ("name", "uid", "labels", "annotations", "finalizers", "deletionTimestamp")
    return [{**{key: node["metadata"].get(key) for key in keys}, "spec": node["spec"]} for node in nodes]
