"""Images, subnets, security groups and instance profiles of a node class go, or lose their tags, under use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.aws import amis
from local.world import sample_objects
from shared.api import labels
from tests.e2e.aws_failures.conditions import (
    MINUTE,
    assert_nothing_lost_or_doubled,
    is_true,
    launched,
    message,
    node_class,
    node_pool,
)
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from local.world import World

REQUESTS = {"cpu": "1500m", "memory": "900Mi"}


def start(world: World, **spec: Any) -> set[str]:
    """Two nodes with a pod each; their uids."""
    requirements = {
        labels.ARCH: ["amd64"],
        labels.CAPACITY_TYPE: ["on-demand"],
        "karpenter.k8s.aws/instance-cpu": ["2"],
    }
    pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "Never"})
    world.apply([sample_objects.node_class(world, **spec), pool, sample_objects.deployment("web", 2, REQUESTS)])
    world.run_until(lambda: len(running(world)) == 2, limit=5 * MINUTE)
    world.run_for(2 * MINUTE)
    return {n["metadata"]["uid"] for n in world.nodes()}


def images(world: World, architecture: str) -> list[amis.Image]:
    """The standard images of Amazon Linux 2023 for the cluster's version, oldest first."""
    prefix = f"amazon-eks-node-al2023-{architecture}-standard"
    return [image for image in amis.published(world.options.version) if image.name.startswith(prefix)]


@pytest.mark.parametrize("by", ["id", "alias"])
def test_nodes_stay_when_their_image_is_deregistered_and_the_class_says_so(world: World, by: str) -> None:
    image = images(world, "x86_64")[-1].image_id
    term = {"id": image} if by == "id" else {"alias": "al2023@latest"}
    before = start(world, amiFamily="AL2023", amiSelectorTerms=[term])
    assert {i.image_id for i in world.instances()} == {image}
    boto3.client("ec2").deregister_image(ImageId=image)
    world.run_for(8 * MINUTE)
    world.scale("default", "web", 3)
    world.run_for(22 * MINUTE)
    assert {n["metadata"]["uid"] for n in world.nodes()} == before
    assert launched(world) == 2
    assert len([c for c in world.timeline.of("call") if c.name == "ec2 CreateFleet"]) <= 2 + 3 * 22
    reported = [e["message"] for e in events(world, kind="Pod") + events(world, kind="NodeClaim")]
    assert any(image in text for text in reported)


def test_an_image_of_another_architecture_launches_nothing_and_the_pod_says_why(world: World) -> None:
    before = start(world)
    arm = images(world, "arm64")[-1].image_id
    world.apply(sample_objects.node_class(world, amiFamily="AL2023", amiSelectorTerms=[{"id": arm}]))
    world.run_for(2 * MINUTE)
    world.scale("default", "web", 3)
    world.run_for(20 * MINUTE)
    assert {n["metadata"]["uid"] for n in world.nodes()} == before
    assert launched(world) == 2
    assert "selects images for arm64 only" in message(node_pool(world), "NodeClassReady")
    assert any("selects images for arm64 only" in e["message"] for e in events(world, kind="Pod"))


@pytest.mark.parametrize("kind", ["subnets", "security groups"])
def test_nodes_stay_when_all_subnets_or_groups_lose_their_tags(world: World, kind: str) -> None:
    before = start(world)
    ec2 = boto3.client("ec2")
    tagged: list[FilterTypeDef] = [{"Name": "tag:karpenter.sh/discovery", "Values": [world.cluster]}]
    ids = (
        [s["SubnetId"] for s in ec2.describe_subnets(Filters=tagged)["Subnets"]]
        if kind == "subnets"
        else [g["GroupId"] for g in ec2.describe_security_groups(Filters=tagged)["SecurityGroups"]]
    )
    ec2.delete_tags(Resources=ids, Tags=[{"Key": "karpenter.sh/discovery"}])
    world.run_for(8 * MINUTE)
    condition_type = "SubnetsReady" if kind == "subnets" else "SecurityGroupsReady"
    assert not is_true(node_class(world), condition_type)
    world.scale("default", "web", 3)
    world.run_for(20 * MINUTE)
    assert {n["metadata"]["uid"] for n in world.nodes()} == before
    assert launched(world) == 2
    ec2.create_tags(Resources=ids, Tags=[{"Key": "karpenter.sh/discovery", "Value": world.cluster}])
    world.run_for(8 * MINUTE)
    assert {n["metadata"]["uid"] for n in world.nodes()} > before
    assert_nothing_lost_or_doubled(world, pods=3)


def test_a_subnet_that_is_deleted_is_left_for_another(world: World) -> None:
    start(world)
    used = {i.subnet_id for i in world.instances()}
    free = sorted(set(world.aws.account.subnets.values()) - used)
    for subnet in free[:-1]:
        boto3.client("ec2").delete_subnet(SubnetId=subnet)
    world.apply(sample_objects.deployment("zonal", 4, REQUESTS))
    world.run_until(lambda: len(running(world)) == 6, limit=8 * MINUTE)
    world.run_for(5 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=6)


def test_an_instance_profile_and_its_role_that_are_made_again_are_used(world: World) -> None:
    before = start(world)
    iam, role = boto3.client("iam"), f"TenonNodeRole-{world.cluster}"
    document = iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]
    for profile in iam.list_instance_profiles_for_role(RoleName=role)["InstanceProfiles"]:
        name = profile["InstanceProfileName"]
        iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role)
        iam.delete_instance_profile(InstanceProfileName=name)
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
    iam.delete_role(RoleName=role)
    world.scale("default", "web", 3)
    world.run_for(8 * MINUTE)
    assert {n["metadata"]["uid"] for n in world.nodes()} == before
    assert not is_true(node_class(world), "InstanceProfileReady")
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=str(document).replace("'", '"'))
    world.run_until(lambda: len(running(world)) == 3, limit=20 * MINUTE)
    world.run_for(2 * MINUTE)
    assert {n["metadata"]["uid"] for n in world.nodes()} > before
    assert_nothing_lost_or_doubled(world, pods=3)
    world.expect_denials()  # a profile without a role can't be passed
