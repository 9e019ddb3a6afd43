"""An account with Tenon's stack and foreign resources, in which every role is enforced."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from infra import assembly
from local.aws.cloud import Cloud
from local.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

CLUSTER = "demo"
OWNED = {"kubernetes.io/cluster/demo": "owned", "karpenter.sh/nodepool": "default"}


def tag_list(tags: dict[str, str]) -> list[Any]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The cloud, and the ids of resources for calls."""

    cloud: Cloud
    node: str
    """An instance of a NodePool of the cluster."""
    managed: str
    """An instance of the cluster in a managed node group, without NodePool."""
    foreign_instance: str
    """An instance of another cluster."""
    untagged: str
    own_volume: str
    own_template: str
    others_template: str
    bare_template: str
    """A launch template of the cluster without tag specifications."""
    administrators_template: str
    """A launch template of the cluster with an instance profile of another role."""

    def queue(self, name: str) -> str:
        return self.cloud.deployed.outputs[name]

    @property
    def bucket(self) -> str:
        return _bucket(self.cloud)

    @property
    def table(self) -> str:
        return self.cloud.deployed.outputs["TableName"]


def _bucket(cloud: Cloud) -> str:
    """The catalog's, which a fleet's own stack may have."""
    return next(s.outputs["CatalogBucket"] for s in cloud.stacks if "CatalogBucket" in s.outputs)


def auto_scaling_group(name: str, cluster: str, *, image: str, subnet: str) -> None:
    """An empty group with Cluster Autoscaler's tag for a cluster."""
    data: Any = {"ImageId": image, "InstanceType": "m5.large"}
    boto3.client("ec2").create_launch_template(LaunchTemplateName=f"group-{name}", LaunchTemplateData=data)
    tag: Any = {"Key": f"k8s.io/cluster-autoscaler/{cluster}", "Value": "owned", "PropagateAtLaunch": False}
    boto3.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=3,
        LaunchTemplate={"LaunchTemplateName": f"group-{name}", "Version": "$Default"},
        VPCZoneIdentifier=subnet,
        Tags=[{**tag, "ResourceId": name, "ResourceType": "auto-scaling-group"}],
    )


@contextlib.contextmanager
def account(**context: str) -> Iterator[Targets]:
    """An account with the stack of these options."""
    clock = Clock(datetime(2026, 11, 21, 12, tzinfo=UTC))
    with Cloud(now=clock.now, sleep=clock.sleep) as cloud:
        account = cloud.prepare(cluster=CLUSTER, version="1.34", endpoint="https://127.0.0.1", certificate_authority="")
        context = {"bundle": "source", "clusterSide": "printed", **context}
        in_fleet = "fleet" in context
        cloud.deploy(assembly.cached(cluster="" if in_fleet else CLUSTER, root=assembly.CHECKOUT, context=context))
        ec2, iam, s3 = boto3.client("ec2"), boto3.client("iam"), boto3.client("s3")
        trust = '{"Version": "2012-10-17", "Statement": []}'
        iam.create_role(RoleName="Administrator", AssumeRolePolicyDocument=trust)
        iam.create_instance_profile(InstanceProfileName="administrators")
        iam.add_role_to_instance_profile(InstanceProfileName="administrators", RoleName="Administrator")
        s3.put_object(Bucket=_bucket(cloud), Key="there", Body=b"")
        s3.create_bucket(Bucket="others")
        s3.put_object(Bucket="others", Key="k", Body=b"")
        image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        for name, cluster in (("own", CLUSTER), ("foreign", "other")):
            auto_scaling_group(name, cluster, image=image, subnet=next(iter(account.subnets.values())))

        def instance(tags: dict[str, str]) -> str:
            targets: Any = {"TagSpecifications": [{"ResourceType": "instance", "Tags": tag_list(tags)}]} if tags else {}
            ran = ec2.run_instances(
                ImageId=image, MinCount=1, MaxCount=1, SubnetId=next(iter(account.subnets.values())), **targets
            )
            return ran["Instances"][0]["InstanceId"]

        def template(name: str, tags: dict[str, str], profile: str, *, tagging: bool = True) -> str:
            data: Any = {
                "ImageId": image,
                "IamInstanceProfile": {"Name": profile},
                "SecurityGroupIds": [account.security_group_id],
                "TagSpecifications": [
                    {"ResourceType": type_, "Tags": tag_list(OWNED)}
                    for type_ in ("instance", "volume", "network-interface", "spot-instances-request")
                    if tagging
                ],
            }
            type_tags: Any = [{"ResourceType": "launch-template", "Tags": tag_list(tags)}]
            answer = ec2.create_launch_template(
                LaunchTemplateName=name, LaunchTemplateData=data, TagSpecifications=type_tags
            )
            return answer["LaunchTemplate"]["LaunchTemplateId"]

        volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
        ec2.create_tags(Resources=[volume], Tags=tag_list(OWNED))
        nodes_profile = cloud.deployed.outputs.get("NodeInstanceProfile", "administrators")  # shadow mode has none
        yield Targets(
            cloud=cloud,
            node=instance(OWNED),
            managed=instance({"kubernetes.io/cluster/demo": "owned"}),
            foreign_instance=instance({"kubernetes.io/cluster/other": "owned", "karpenter.sh/nodepool": "default"}),
            untagged=instance({}),
            own_volume=volume,
            own_template=template("own", OWNED, nodes_profile),
            others_template=template("others", {"kubernetes.io/cluster/other": "owned"}, nodes_profile),
            bare_template=template("bare", OWNED, nodes_profile, tagging=False),
            administrators_template=template("administrators", OWNED, "administrators"),
        )


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    with account(bufferQueues="orders", bufferAlarms="latency", nodeGroups="on") as deployed:
        yield deployed
