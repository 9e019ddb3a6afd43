"""`tenon node-groups`: the groups of a cluster, by AWS's own answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest

from tests.e2e.cli.conftest import CLUSTER, Shell, shell_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TAG = "k8s.io/cluster-autoscaler/"


def auto_scaling_group(
    shell: Shell, name: str, *, cluster: str = CLUSTER, tags: Mapping[str, str] | None = None
) -> None:
    """A group of one m5.large, of at most four, that Cluster Autoscaler would find."""
    ec2 = boto3.client("ec2")
    (image, *_) = ec2.describe_images(Owners=["amazon"])["Images"]
    ec2.create_launch_template(
        LaunchTemplateName=f"{name}-template",
        LaunchTemplateData={"InstanceType": "m5.large", "ImageId": image["ImageId"]},
    )
    subnet = next(iter(shell.world.aws.account.subnets.values()))
    create: Any = boto3.client("autoscaling").create_auto_scaling_group
    create(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=4,
        DesiredCapacity=0,
        LaunchTemplate={"LaunchTemplateName": f"{name}-template", "Version": "$Default"},
        VPCZoneIdentifier=subnet,
        Tags=[
            {
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": False,
                "ResourceId": name,
                "ResourceType": "auto-scaling-group",
            }
            for key, value in {f"{TAG}enabled": "true", f"{TAG}{cluster}": "owned", **(tags or {})}.items()
        ],
    )


@pytest.fixture
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A cluster with a tagged group, a managed node group, and the group of another cluster."""
    with shell_in(tmp_path_factory.mktemp("grouped")) as opened:
        create_groups(opened)
        yield opened


def create_groups(shell: Shell) -> None:
    role = boto3.client("iam").create_role(RoleName="nodes", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    boto3.client("eks").create_nodegroup(
        clusterName=CLUSTER,
        nodegroupName="system",
        nodeRole=role,
        subnets=[next(iter(shell.world.aws.account.subnets.values()))],
        instanceTypes=["m5.large"],
        scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 0},
        labels={"tier": "system"},
        taints=[{"key": "CriticalAddonsOnly", "value": "true", "effect": "NO_SCHEDULE"}],
    )
    auto_scaling_group(shell, "licences", tags={f"{TAG}node-template/taint/licence": "sap"})
    auto_scaling_group(shell, "foreign", cluster="another")


def test_groups_are_shown_with_the_node_that_they_would_add(grouped: Shell) -> None:
    shown = grouped.tenon("node-groups")
    assert shown.code == 0, shown.err
    assert shown.lines[0] == f"{CLUSTER} in us-east-1 · 2 node groups · 0 nodes"
    rows = {line.split()[0]: line.split()[1:] for line in shown.lines[2:4]}
    assert rows.keys() == {"system", "licences"}
    assert rows["system"][:3] == ["0", "0", "4"]
    assert {"m5.large", "on-demand", "1930m"} <= set(rows["system"])
    assert "foreign" not in shown.out
    (problem,) = (line for line in shown.lines if line.startswith("  licences: "))
    assert '"sap" has no effect' in problem


def test_the_same_as_json(grouped: Shell) -> None:
    groups = {group["managed"] or group["name"]: group for group in grouped.tenon("node-groups", "--json").json}
    system = groups["system"]
    assert system["labels"]["eks.amazonaws.com/nodegroup"] == "system"
    assert system["labels"]["node.kubernetes.io/instance-type"] == "m5.large"
    assert system["labels"]["tier"] == "system"
    assert system["taints"] == [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}]
    assert system["allocatable"]["cpu"] == "1930m"
    assert system["price"] > 0
    assert (system["problems"], len(groups["licences"]["problems"])) == ([], 1)


def test_a_cluster_without_groups_says_so(shell: Shell) -> None:
    shown = shell.tenon("node-groups")
    assert (shown.code, shown.lines[0]) == (0, f"{CLUSTER} in us-east-1 · 0 node groups")
    assert "no Auto Scaling group has Cluster Autoscaler's tags" in shown.out
