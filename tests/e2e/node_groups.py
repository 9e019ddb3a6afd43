"""Node groups for tests of the local world: groups of the cluster, and what became of them."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3

from local.kubernetes import kinds
from local.world import Options, sample_objects
from local.world.hostility import of_environment
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.world import World

TAG = "k8s.io/cluster-autoscaler/"
LIMIT = timedelta(minutes=15)
LARGE = {"cpu": "1500m", "memory": "1Gi"}
SMALL = {"cpu": "300m", "memory": "256Mi"}
"""Requests of pods: one large and one small fill an m5.large."""
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
      registerWithTaints: {taints}
    flags: ["--node-labels={labels}"]
"""


def scaling(**fields: Any) -> Options:
    """Options of a world that scales node groups. A rebalancing would replace the nodes that a test names."""
    hostility = of_environment()
    calm = with_fields(hostility, rebalance_after=None) if hostility is not None else None
    return Options(context={"nodeGroups": "on"}, hostility=calm, **fields)


def managed_node_group(
    world: World,
    name: str = "batch",
    *,
    desired: int = 0,
    minimum: int = 0,
    maximum: int = 6,
    zones: Sequence[str] = (),
    instance_type: str = "m5.large",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> str:
    """A managed node group; the name of its Auto Scaling group."""
    subnets = world.aws.account.subnets
    create: Any = boto3.client("eks").create_nodegroup
    created = create(
        clusterName=world.cluster,
        nodegroupName=name,
        nodeRole=f"arn:aws:iam::123456789012:role/TenonNodeRole-{world.cluster}",
        subnets=[subnet for zone, subnet in subnets.items() if not zones or zone in zones],
        instanceTypes=[instance_type],
        labels=dict(labels or {}),
        taints=list(taints),
        scalingConfig={"minSize": minimum, "maxSize": maximum, "desiredSize": desired},
    )
    return str(created["nodegroup"]["resources"]["autoScalingGroups"][0]["name"])


def auto_scaling_group(
    world: World,
    name: str,
    *,
    maximum: int = 6,
    zones: Sequence[str] = (),
    instance_type: str = "m5.large",
    labels: Mapping[str, str] | None = None,
) -> str:
    """A self-managed group with Cluster Autoscaler's tags; its nodes have these labels."""
    labels = labels or {"group": name}
    cluster: Any = boto3.client("eks").describe_cluster(name=world.cluster)["cluster"]
    user_data = NODE_CONFIG.format(
        name=world.cluster,
        endpoint=cluster["endpoint"],
        authority=cluster["certificateAuthority"]["data"],
        cidr=cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
        taints="[]",
        labels=",".join(f"{key}={value}" for key, value in labels.items()),
    )
    parameter = (
        f"/aws/service/eks/optimized-ami/{world.options.version}/amazon-linux-2023/x86_64/standard/recommended/image_id"
    )
    boto3.client("ec2").create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={
            "ImageId": boto3.client("ssm").get_parameter(Name=parameter)["Parameter"]["Value"],
            "InstanceType": instance_type,  # type: ignore[typeddict-item]
            "UserData": base64.b64encode(user_data.encode()).decode(),
        },
    )
    tags = {f"{TAG}enabled": "true", f"{TAG}{world.cluster}": "owned"}
    tags |= {f"{TAG}node-template/label/{key}": value for key, value in labels.items()}
    subnets = world.aws.account.subnets
    create: Any = boto3.client("autoscaling").create_auto_scaling_group
    create(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=maximum,
        DesiredCapacity=0,
        LaunchTemplate={"LaunchTemplateName": name, "Version": "$Default"},
        VPCZoneIdentifier=",".join(subnet for zone, subnet in subnets.items() if not zones or zone in zones),
        Tags=[
            {
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": False,
                "ResourceId": name,
                "ResourceType": "auto-scaling-group",
            }
            for key, value in tags.items()
        ],
    )
    return name


def sizes(group: str) -> tuple[int, int, int]:
    """The group's minimum, desired and maximum size."""
    answer: Any = boto3.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    (only,) = answer["AutoScalingGroups"]
    return only["MinSize"], only["DesiredCapacity"], only["MaxSize"]


def options(data: Mapping[str, str], prefer: str = "", scale_down: str = "") -> dict[str, Any]:
    """The ConfigMap with the options of node groups, what is preferred, and the rules of scale-down."""
    chosen = {"tenon.sh/prefer": prefer, "tenon.sh/scale-down": scale_down}
    annotations = {name: value for name, value in chosen.items() if value}
    metadata = {"name": "tenon-node-groups", "namespace": "kube-system", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def all_run(world: World, pods: int) -> bool:
    """Whether that many pods run."""
    return len(world.pods(phase="Running")) == pods


def reasons(world: World) -> set[str]:
    """The reasons of all events."""
    return {event["reason"] for event in world.store.list(kinds.EVENTS)}


def node_of(world: World, app: str) -> str:
    """The node of the only pod of a Deployment."""
    (pod,) = (p for p in world.pods(phase="Running") if p["metadata"]["labels"]["app"] == app)
    return str(pod["spec"]["nodeName"])


def two_nodes(world: World, **small: Any) -> tuple[str, str]:
    """A managed group of two: one node is nearly full, a small pod runs alone on the second; their names."""
    managed_node_group(world, "batch")
    world.apply(sample_objects.deployment("large", 1, LARGE))
    world.run_until(lambda: all_run(world, 1), limit=LIMIT)
    world.apply(sample_objects.deployment("guest", 1, SMALL))
    world.run_until(lambda: all_run(world, 2), limit=LIMIT)
    world.apply(sample_objects.deployment("small", 1, SMALL, **small))
    world.run_until(lambda: all_run(world, 3), limit=LIMIT)
    world.scale("default", "guest", 0)
    world.run_until(lambda: all_run(world, 2), limit=LIMIT)
    names = node_of(world, "large"), node_of(world, "small")
    assert names[0] != names[1]
    return names
