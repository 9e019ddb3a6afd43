"""EKS managed node groups: each has an Auto Scaling group, a launch template and an instance profile of EKS's.

moto only keeps their descriptions. Labels and taints are in the launch template's user data, as EKS writes it for its
own images; user data for a custom image is the caller's.
"""

from __future__ import annotations

from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from typing import TYPE_CHECKING, Any

from moto.core.types import Base64EncodedString

from local.aws import backends
from local.aws.auto_scaling import managed_hooks
from local.aws.auto_scaling.answers import delete_group
from shared.api import labels as names
from shared.api.yaml_documents import writer
from shared.node_groups.node_group import ENABLED_TAG, MANAGED_LABEL, TAG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.aws.auto_scaling.answers import Replacement
    from local.aws.auto_scaling.groups import AutoScalingGroups

NODE_GROUP_TAG = "eks:nodegroup-name"
"""On the Auto Scaling groups of managed node groups."""
_IMAGES = {
    "AL2023_x86_64_STANDARD": "x86_64/standard",
    "AL2023_ARM_64_STANDARD": "arm64/standard",
    "AL2023_x86_64_NVIDIA": "x86_64/nvidia",
    "AL2023_ARM_64_NVIDIA": "arm64/nvidia",
    "AL2023_x86_64_NEURON": "x86_64/neuron",
}
"""AMI types by the part of the public parameter's name; the first is EKS's default."""
_CUSTOM = "CUSTOM"
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
_SIZES = {"minSize": 1, "maxSize": 2, "desiredSize": 2}
_SPOT_DISTRIBUTION = {
    "OnDemandPercentageAboveBaseCapacity": 0,
    "SpotAllocationStrategy": "price-capacity-optimized",
}
_ON_DEMAND_DISTRIBUTION = {
    "OnDemandPercentageAboveBaseCapacity": 100,
    "OnDemandAllocationStrategy": "prioritized",
}


def replacements(region: str, groups: AutoScalingGroups) -> Sequence[Replacement]:
    """The replacements of moto's EKS backend."""
    from moto.eks.models import EKSBackend

    create, update, delete = (
        EKSBackend.create_nodegroup,
        EKSBackend.update_nodegroup_config,
        EKSBackend.delete_nodegroup,
    )

    def create_nodegroup(backend: Any, **params: Any) -> Any:
        template = _version_data(region, params.get("launch_template"))
        custom = bool(template.get("ImageId"))
        params["ami_type"] = _CUSTOM if custom else params.get("ami_type") or next(iter(_IMAGES))
        params["scaling_config"] = {**_SIZES, **(params.get("scaling_config") or {})}  # moto shares one among all
        node_group = create(backend, **params)
        node_group.version = params.get("version") or backend.clusters[node_group.cluster_name].version
        if template.get("InstanceType"):
            node_group.instance_types = []
        name = _create_group(region, node_group, backend.clusters[node_group.cluster_name], template)
        for hook in managed_hooks.hooks_of(name):
            groups.hooks.put(hook)
        return node_group

    def update_nodegroup_config(backend: Any, **params: Any) -> Any:
        answer = update(backend, **params)
        node_group = backend.clusters[params["cluster_name"]].nodegroups[params["nodegroup_name"]]
        if params.get("scaling_config"):
            group = _group_of(region, node_group)
            sizes = node_group.scaling_config
            group.min_size, group.max_size = int(sizes["minSize"]), int(sizes["maxSize"])
            group.set_desired_capacity(int(sizes["desiredSize"]))
        return answer

    def delete_nodegroup(backend: Any, cluster_name: str, nodegroup_name: str) -> Any:
        node_group = delete(backend, cluster_name, nodegroup_name)
        if (group := _group_of(region, node_group)) is not None:
            delete_group(backends.autoscaling(region), group, groups)
        return node_group

    return [
        (EKSBackend, "create_nodegroup", create_nodegroup),
        (EKSBackend, "update_nodegroup_config", update_nodegroup_config),
        (EKSBackend, "delete_nodegroup", delete_nodegroup),
    ]


def _group_of(region: str, node_group: Any) -> Any:
    return backends.autoscaling(region).autoscaling_groups.get(node_group.resources["autoScalingGroups"][0]["name"])


def _version_data(region: str, reference: Mapping[str, str] | None) -> Mapping[str, Any]:
    """The data of the launch template that the caller gave; {} for none."""
    if not reference:
        return {}
    ec2 = backends.ec2(region)
    template = (
        ec2.get_launch_template(reference["id"])
        if reference.get("id")
        else ec2.get_launch_template_by_name(reference["name"])
    )
    data: Mapping[str, Any] = template.get_version(reference.get("version") or "$Default").data
    if data.get("UserData") and not data.get("ImageId"):
        raise NotImplementedError("here, a node group's launch template has user data only with an image")
    return data


def _tags(node_group: Any) -> list[tuple[str, str]]:
    return [
        ("eks:cluster-name", node_group.cluster_name),
        (NODE_GROUP_TAG, node_group.nodegroup_name),
        (ENABLED_TAG, "true"),
        (f"{TAG}{node_group.cluster_name}", "owned"),
        (f"kubernetes.io/cluster/{node_group.cluster_name}", "owned"),
    ]


def _create_group(region: str, node_group: Any, cluster: Any, template: Mapping[str, Any]) -> str:
    """Create the Auto Scaling group of the node group; its name."""
    (name,) = (group["name"] for group in node_group.resources["autoScalingGroups"])
    backends.iam().create_instance_profile(name, "/", [node_group.node_role.rsplit("/", 1)[-1]])
    data = {**_template_data(region, node_group, cluster), **template, "IamInstanceProfile": {"Name": name}}
    version = backends.ec2(region).create_launch_template(name, "", data, {})
    sizes, spot = node_group.scaling_config, node_group.capacity_type == "SPOT"
    types = node_group.instance_types or [template["InstanceType"]]
    backends.autoscaling(region).create_auto_scaling_group(
        name=name,
        availability_zones=[],
        desired_capacity=sizes["desiredSize"],
        max_size=sizes["maxSize"],
        min_size=sizes["minSize"],
        launch_config_name="",
        launch_template={},
        vpc_zone_identifier=",".join(node_group.subnets),
        default_cooldown=None,
        health_check_period=15,
        health_check_type="EC2",
        load_balancers=[],
        target_group_arns=[],
        placement_group=None,
        termination_policies=["AllocationStrategy", "OldestLaunchTemplate", "OldestInstance"],
        capacity_rebalance=spot,
        tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in _tags(node_group)],
        mixed_instances_policy={
            "LaunchTemplate": {
                "LaunchTemplateSpecification": {"LaunchTemplateId": version.id, "Version": "1"},
                "Overrides": [{"InstanceType": instance_type} for instance_type in types],
            },
            "InstancesDistribution": dict(_SPOT_DISTRIBUTION if spot else _ON_DEMAND_DISTRIBUTION),
        },
    )
    return str(name)


def _template_data(region: str, node_group: Any, cluster: Any) -> dict[str, Any]:
    """EKS's launch template without what the caller's own says."""
    data: dict[str, Any] = {
        "SecurityGroupIds": cluster.resources_vpc_config.get("securityGroupIds") or [],
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": int(node_group.disk_size), "VolumeType": "gp3"}}
        ],
    }
    if node_group.ami_type != _CUSTOM:
        image_id = _image(region, node_group)
        data |= {"ImageId": image_id, "UserData": _user_data(node_group, cluster, image_id)}
    return data


def _image(region: str, node_group: Any) -> str:
    if node_group.ami_type not in _IMAGES:
        raise NotImplementedError(f"here, managed node groups have no images of the type {node_group.ami_type}")
    path = f"/aws/service/eks/optimized-ami/{node_group.version}/amazon-linux-2023/{_IMAGES[node_group.ami_type]}"
    return str(backends.ssm(region).get_parameter(f"{path}/recommended/image_id").value)


def _user_data(node_group: Any, cluster: Any, image_id: str) -> Base64EncodedString:
    """The MIME document with the NodeConfig of EKS for Amazon Linux 2023."""
    labels = {
        **node_group.labels,
        MANAGED_LABEL: node_group.nodegroup_name,
        names.EKS_CAPACITY_TYPE: node_group.capacity_type,
        "eks.amazonaws.com/nodegroup-image": image_id,
    }
    if template := node_group.launch_template:
        labels["eks.amazonaws.com/sourceLaunchTemplateId"] = template["id"]
        labels["eks.amazonaws.com/sourceLaunchTemplateVersion"] = template.get("version") or "1"
    taints = [{**taint, "effect": _EFFECTS[taint["effect"]]} for taint in node_group.taints]
    pairs = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    node_config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": cluster.name,
                "apiServerEndpoint": cluster.endpoint,
                "certificateAuthority": cluster.certificate_authority["data"],
                "cidr": cluster.kubernetes_network_config["serviceIpv4Cidr"],
            },
            "kubelet": {"config": {"registerWithTaints": taints}, "flags": [f"--node-labels={pairs}"]},
        },
    }
    document = MIMEMultipart(boundary="//")
    part = MIMEText(writer.text(node_config, sort_keys=True), "plain", "us-ascii")
    part.replace_header("Content-Type", "application/node.eks.aws")
    document.attach(part)
    return Base64EncodedString.from_raw_bytes(document.as_bytes())
