"""Node groups from AWS's descriptions, by Cluster Autoscaler's tags and EKS's own labels and taints."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from shared.api.kubernetes import Node, Taint
from shared.base.struct import with_fields
from shared.instance_types.instance_type import InstanceType, Offering
from shared.node_groups.descriptions import AutoScalingGroup, ManagedNodeGroup
from shared.node_groups.node_group import NodeGroup, node_group
from shared.node_groups.template_node import template_node

TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
OPTION = f"{TEMPLATE}autoscaling-options/"


def described(**fields: Any) -> AutoScalingGroup:
    raw = {
        "AutoScalingGroupName": "workers",
        "MinSize": 1,
        "MaxSize": 5,
        "DesiredCapacity": 3,
        "AvailabilityZones": ["us-east-1b", "us-east-1a"],
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "7"},
        **fields,
    }
    return msgspec.convert(raw, AutoScalingGroup)


def tagged(**tags: str) -> list[dict[str, str]]:
    return [{"Key": f"{TEMPLATE}{key.replace('__', '/')}", "Value": value} for key, value in tags.items()]


def group(managed: ManagedNodeGroup | None = None, **fields: Any) -> NodeGroup:
    return node_group(
        described(**fields), managed, {"lt-1:7": ("m5.large", False), "lt-spot:$Default": ("c5.large", True)}
    )


def instance(name: str, state: str = "InService") -> dict[str, str]:
    zone = "us-east-1a"
    return {"InstanceId": name, "AvailabilityZone": zone, "InstanceType": "m5.large", "LifecycleState": state}


def test_sizes_zones_and_the_type_of_its_launch_template() -> None:
    workers = group(Instances=[instance("i-1"), instance("i-2", "Pending:Wait")])
    assert (workers.minimum, workers.desired, workers.maximum, workers.room, workers.coming) == (1, 3, 5, 2, 2)
    assert (workers.zones, workers.instance_types) == (("us-east-1a", "us-east-1b"), ("m5.large",))
    assert workers.instances[0].provider_id == "aws:///us-east-1a/i-1"
    assert workers.problems == ()


@pytest.mark.parametrize("state", ["Warmed:Pending", "Warmed:Stopped", "Warmed:Running", "Warmed:Terminating:Wait"])
def test_instances_of_a_warm_pool_neither_come_nor_are_nodes(state: str) -> None:
    workers = group(DesiredCapacity=2, Instances=[instance("i-1"), instance("i-2", state)])
    assert (workers.coming, [i.id for i in workers.instances]) == (1, ["i-1"])


def test_a_group_above_its_maximum_has_no_room() -> None:
    assert group(DesiredCapacity=9).room == 0


def test_a_mixed_group_has_the_types_of_its_overrides() -> None:
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "7"},
            "Overrides": [{"InstanceType": "m5.xlarge"}, {"InstanceType": "m6i.xlarge"}],
        },
        "InstancesDistribution": {"OnDemandBaseCapacity": 0, "OnDemandPercentageAboveBaseCapacity": 0},
    }
    mixed = group(LaunchTemplate=None, MixedInstancesPolicy=policy)
    assert (mixed.instance_types, mixed.capacity_type) == (("m5.xlarge", "m6i.xlarge"), "spot")
    policy["InstancesDistribution"] = {"OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": 0}
    assert group(MixedInstancesPolicy=policy).capacity_type == "on-demand"


def test_a_launch_template_can_ask_for_spot() -> None:
    assert group(LaunchTemplate={"LaunchTemplateId": "lt-spot"}).capacity_type == "spot"


def test_tags_give_labels_taints_resources_and_options() -> None:
    workers = group(
        Tags=[
            *tagged(label__team="data", taint__dedicated="gpu:NoSchedule", taint__empty=":NoExecute"),
            {"Key": f"{TEMPLATE}resources/nvidia.com/gpu", "Value": "4"},
            {"Key": f"{OPTION}scaledownutilizationthreshold", "Value": "0.65"},
            {"Key": f"{OPTION}scaledownunneededtime", "Value": "5m"},
        ]
    )
    assert workers.labels == {"team": "data"}
    assert workers.taints == (
        Taint(key="dedicated", value="gpu", effect="NoSchedule"),
        Taint(key="empty", value="", effect="NoExecute"),
    )
    assert workers.resources == {"nvidia.com/gpu": 4}
    assert workers.scale_down.utilization_threshold == 650
    assert workers.scale_down.unneeded_time == timedelta(minutes=5)
    assert workers.scale_down.unready_time is None


def test_eks_own_labels_and_taints_come_before_tags() -> None:
    raw = {
        "nodegroupName": "blue",
        "capacityType": "SPOT",
        "labels": {"team": "web"},
        "taints": [{"key": "dedicated", "value": "web", "effect": "NO_SCHEDULE"}],
    }
    managed = msgspec.convert(raw, ManagedNodeGroup)
    blue = group(managed, Tags=tagged(label__team="data", label__tier="1", taint__dedicated="x:NoSchedule"))
    assert blue.managed == "blue"
    assert blue.capacity_type == "spot"
    assert blue.labels == {
        "team": "web",
        "tier": "1",
        "eks.amazonaws.com/nodegroup": "blue",
        "eks.amazonaws.com/capacityType": "SPOT",
    }
    assert blue.taints == (Taint(key="dedicated", value="web", effect="NoSchedule"),)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"LaunchTemplate": None}, "neither its launch template nor its overrides name an instance type"),
        (
            {
                "MixedInstancesPolicy": {
                    "LaunchTemplate": {"Overrides": [{"InstanceRequirements": {"VCpuCount": {"Min": 2}}}]}
                }
            },
            "its instance types are given by requirements (InstanceRequirements), so their size isn't known",
        ),
        (
            {"Tags": tagged(taint__a="b")},
            f'tag {TEMPLATE}taint/a: "b" has no effect; allowed is VALUE:EFFECT with NoSchedule, PreferNo',
        ),
        ({"Tags": tagged(resources__cpu="lots")}, f"tag {TEMPLATE}resources/cpu: "),
        (
            {"Tags": [{"Key": f"{OPTION}scaledownutilizationthreshold", "Value": "50%"}]},
            f'tag {OPTION}scaledownutilizationthreshold: "50%" is not a share from 0 to 1',
        ),
        (
            {"Tags": [{"Key": f"{OPTION}scaledownunneededtime", "Value": "soon"}]},
            f"tag {OPTION}scaledownunneededtime: ",
        ),
    ],
)
def test_a_group_that_cannot_be_used_says_why(fields: dict[str, Any], problem: str) -> None:
    (sentence,) = group(**fields).problems
    assert sentence.startswith(problem)


def instance_type(name: str, cpu: int, memory: int, price: float) -> InstanceType:
    return InstanceType(
        name=name,
        labels={"node.kubernetes.io/instance-type": name, "kubernetes.io/arch": "amd64"},
        capacity={"cpu": cpu, "memory": memory},
        overhead={"cpu": 100},
        offerings=tuple(
            Offering(zone=zone, capacity_type="on-demand", price=price) for zone in ("us-east-1a", "us-east-1c")
        ),
    )


TYPES = {
    "a.large": instance_type("a.large", 2000, 8, 0.1),
    "b.large": instance_type("b.large", 1900, 9, 0.3),
}


def test_a_mixed_groups_node_has_what_each_of_its_types_has() -> None:
    mixed = NodeGroup(
        name="g",
        minimum=0,
        maximum=1,
        desired=0,
        zones=("us-east-1a",),
        instance_types=("a.large", "b.large", "c.large"),
    )
    node = template_node(mixed, TYPES, ())
    assert node is not None
    assert node.allocatable == {"cpu": 1800, "memory": 8}
    assert node.labels["topology.kubernetes.io/zone"] == "us-east-1a"
    assert node.price == pytest.approx(0.2)


def test_a_ready_node_of_the_group_says_more_than_tags() -> None:
    workers = with_fields(
        group(Instances=[instance("i-1")], Tags=tagged(label__team="data")), instance_types=("a.large",)
    )
    raw = {
        "metadata": {
            "name": "n",
            "labels": {
                "agent": "v2",
                "kubernetes.io/hostname": "n",
                "failure-domain.beta.kubernetes.io/zone": "us-east-1a",
                "team": "old",
            },
        },
        "spec": {"providerID": "aws:///us-east-1a/i-1"},
        "status": {"allocatable": {"cpu": "1500m"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    node = template_node(workers, TYPES, [msgspec.convert(raw, Node)])
    assert node is not None
    assert node.allocatable == {"cpu": 1500}
    assert {key: node.labels.get(key) for key in ("agent", "team", "kubernetes.io/hostname")} == {
        "agent": "v2",
        "team": "data",
        "kubernetes.io/hostname": None,
    }
    assert not [key for key in node.labels if key.endswith("zone")]  # it has two


def test_a_group_of_unknown_types_has_no_node() -> None:
    assert (
        template_node(NodeGroup(name="g", minimum=0, maximum=1, desired=0, instance_types=("x.y",)), TYPES, ()) is None
    )
