"""Manifests that users really apply: what must come of each. Sources: those that come with Tenon."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.world import World
from local.world.options import Options
from local.world.sample_objects import deployment
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEOUL = "ap-northeast-2"
KEY = "arn:aws:kms:ap-northeast-2:111122223333:key/00000000-0000-0000-0000-000000000000"
SPECIAL = {"key": "example.com/special-taint", "operator": "Exists", "effect": "NoSchedule"}


def labels_of(world: World, name: str) -> list[str]:
    """The values of a label, one a node."""
    return [node["metadata"]["labels"].get(name, "") for node in world.nodes()]


def events_on(world: World, name: str) -> list[str]:
    return [event["message"] for event in events(world, name=name)]


def all_run(world: World, pods: int) -> None:
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == pods
    assert world.failures() == []
    assert world.dead_letters() == []


@pytest.fixture
def seoul() -> Iterator[World]:
    """A cluster in Seoul, of the last version that has AL2."""
    with World(cluster="demo", region=SEOUL, options=Options(version="1.32")) as world:
        yield world


def template_data(world: World) -> dict[str, Any]:
    ec2 = boto3.client("ec2", region_name=world.region)
    (template,) = ec2.describe_launch_templates()["LaunchTemplates"]
    versions = ec2.describe_launch_template_versions(LaunchTemplateName=template["LaunchTemplateName"])
    return dict(versions["LaunchTemplateVersions"][0]["LaunchTemplateData"])


@pytest.mark.flow
def test_custom_template_is_carried_by_the_launch_template_and_the_nodes(
    seoul: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    world = seoul
    world.apply(load("custom-template.yaml"))
    world.apply(deployment("web", 2, {"cpu": "1"}, tolerations=[SPECIAL], nodeSelector={"kubernetes.io/arch": "amd64"}))
    all_run(world, 2)

    data = template_data(world)
    (device,) = data["BlockDeviceMappings"]
    assert device["DeviceName"] == "/dev/xvda"
    assert device["Ebs"] == {
        "DeleteOnTermination": True,
        "Encrypted": True,
        "Iops": 3000,
        "KmsKeyId": KEY,
        "Throughput": 125,
        "VolumeSize": 30,
        "VolumeType": "gp3",
    }
    assert data["Monitoring"] == {"Enabled": True}
    assert data["IamInstanceProfile"] == {"Name": "KarpenterInstanceProfile"}
    tagged = {s["ResourceType"]: {t["Key"]: t["Value"] for t in s["Tags"]} for s in data["TagSpecifications"]}
    for resource in ("instance", "volume"):
        assert tagged[resource].items() >= {"Name": "general", "auto-delete": "no"}.items()

    for instance in world.instances():
        tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
        assert tags.items() >= {"Name": "general", "auto-delete": "no", "karpenter.sh/nodepool": "general"}.items()
        assert "--eviction-max-pod-grace-period=60" in instance.user_data.decode()
        assert instance.monitoring_state == "enabled"
    assert set(labels_of(world, "topology.kubernetes.io/zone")) <= {"ap-northeast-2a", "ap-northeast-2c"}
    assert set(labels_of(world, "karpenter.k8s.aws/instance-hypervisor")) == {"nitro"}
    assert set(labels_of(world, "karpenter.k8s.aws/instance-category")) <= {"c", "m", "r", "t"}
    assert all(int(generation) > 3 for generation in labels_of(world, "karpenter.k8s.aws/instance-generation"))
    for node in world.nodes():
        assert [(t["key"], t["effect"]) for t in node["spec"]["taints"]] == [(SPECIAL["key"], "NoSchedule")]
    for claim in world.claims():
        assert claim["spec"]["expireAfter"] == "2592000s"


@pytest.mark.flow
def test_pods_with_their_own_security_groups_land_on_types_with_branch_interfaces(
    spot_default: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    world = spot_default
    pool, pod = load("security-groups-for-pods.yaml")
    burstable: dict[str, Any] = {
        **pool,
        "metadata": {"name": "burstable"},
        "spec": {
            **pool["spec"],
            "labels": {"nodepool": "burstable"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["t3.2xlarge"]},
            ],
        },
    }
    unlucky = {
        **pod,
        "metadata": {"name": "unlucky"},
        "spec": {**pod["spec"], "nodeSelector": {"nodepool": "burstable"}},
    }
    world.apply([pool, pod, burstable, unlucky])
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=timedelta(minutes=5))
    (node,) = world.nodes()
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "c7i.2xlarge"
    assert node["metadata"]["labels"]["nodepool"] == "test-nodepool"
    allocatable = node["status"]["allocatable"]
    assert (allocatable["vpc.amazonaws.com/pod-eni"], allocatable["cpu"], allocatable["pods"]) == ("38", "7910m", "58")
    messages = events_on(world, "unlucky")
    assert any("burstable" in text and "vpc.amazonaws.com/pod-eni" in text for text in messages), messages
    assert world.failures() == []


@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
def test_a_teams_pods_run_on_its_own_nodes_and_apart_where_they_ask_for_it(
    spot_default: World, load: Callable[[str], list[dict[str, Any]]], *, apart: bool
) -> None:
    world = spot_default
    docs = load("team1.yaml")
    if not apart:
        del docs[1]["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    world.apply(docs)
    world.scale("default", "inflate-team1", 5)
    all_run(world, 5)
    assert set(labels_of(world, "karpenter.sh/nodepool")) == set(labels_of(world, "team")) == {"team1"}
    assert set(labels_of(world, "karpenter.sh/capacity-type")) == {"on-demand"}
    on = Counter(pod["spec"]["nodeName"] for pod in world.pods(phase="Running"))
    assert len(world.nodes()) == len(on)
    assert (len(on), max(on.values())) == (5, 1) if apart else len(on) < 5


@pytest.mark.flow
def test_a_spread_over_capacity_labels_gives_four_on_demand_and_six_spot_of_ten(
    spot_default: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    world = spot_default
    world.apply(load("capacity-spread.yaml"))
    world.store.delete(world.store.kind("karpenter.sh/v1alpha5", "Provisioner"), "default")
    world.scale("default", "ratio", 10)
    all_run(world, 10)
    bought = {n["metadata"]["name"]: n["metadata"]["labels"]["karpenter.sh/capacity-type"] for n in world.nodes()}
    pods = Counter(bought[pod["spec"]["nodeName"]] for pod in world.pods(phase="Running"))
    assert pods == {"on-demand": 4, "spot": 6}


@pytest.mark.flow
def test_the_v1_kinds_do_the_same(world: World, load: Callable[[str], list[dict[str, Any]]]) -> None:
    world.apply(load("v1.yaml"))
    world.apply(deployment("web", 5, {"cpu": "1"}, terminationGracePeriodSeconds=0))
    all_run(world, 5)
    assert set(labels_of(world, "type")) == {"karpenter"}
    assert set(labels_of(world, "karpenter.k8s.aws/instance-category")) <= {"c", "m", "r"}
    assert all(int(generation) > 4 for generation in labels_of(world, "karpenter.k8s.aws/instance-generation"))
    for claim in world.claims():
        assert (claim["spec"]["expireAfter"], claim["spec"]["terminationGracePeriod"]) == ("720h", "1h")
    node_class = world.store.get(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"), "default")
    assert node_class["status"]["instanceProfile"] == "KarpenterInstanceProfile"
    assert {c["type"]: c["status"] for c in node_class["status"]["conditions"]}["Ready"] == "True"
    world.scale("default", "web", 0)
    world.run_until_idle()
    assert world.nodes() == world.claims() == world.instances() == []
