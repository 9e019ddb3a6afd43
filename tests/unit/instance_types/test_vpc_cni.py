"""How many pods a node runs, by the settings of the VPC CNI's own DaemonSet."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.ami_family.families import FAMILIES
from shared.api import labels as names
from shared.api.daemon_set import DaemonSet
from shared.api.decode import decode
from shared.api.meta import ObjectMeta
from shared.api.nodeclass import AMISelectorTerm, EC2NodeClass, EC2NodeClassSpec
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.instance_types.provider import build_instance_types
from shared.instance_types.vpc_cni import VpcCni, read_settings, settings_for

PREFIXES, CUSTOM = VpcCni(prefixes=True), VpcCni(custom_networking=True)
BOTH = VpcCni(prefixes=True, custom_networking=True)
NOW = datetime(2026, 11, 24, tzinfo=UTC)


def hardware(name: str, vcpus: int, interfaces: int, addresses: int, hypervisor: str = "nitro") -> Hardware:
    return Hardware(
        name=name,
        arch="amd64",
        vcpus=vcpus,
        memory_mib=vcpus * 4096,
        interfaces=interfaces,
        addresses=addresses,
        hypervisor=hypervisor,
        capacity_types=("on-demand",),
    )


M5_LARGE = hardware("m5.large", 2, 3, 10)
T3_NANO = hardware("t3.nano", 2, 2, 2)
M5_8XLARGE, M5_24XLARGE = hardware("m5.8xlarge", 32, 8, 30), hardware("m5.24xlarge", 96, 15, 50)
C5_XLARGE, C5_9XLARGE = hardware("c5.xlarge", 4, 4, 15), hardware("c5.7xlarge", 30, 8, 30)
T2_LARGE, METAL = hardware("t2.large", 2, 3, 12, "xen"), hardware("m5.metal", 96, 15, 50, "")


@pytest.mark.parametrize(
    ("cni", "type_", "pods"),
    [
        (PREFIXES, T3_NANO, 34),  # 2 interfaces with one prefix each
        (PREFIXES, M5_LARGE, 110),
        (PREFIXES, C5_9XLARGE, 110),  # thirty vCPUs aren't many
        (PREFIXES, M5_8XLARGE, 250),
        (PREFIXES, M5_24XLARGE, 250),
        (PREFIXES, T2_LARGE, None),  # EC2 has prefixes on Nitro only
        (PREFIXES, METAL, None),
        (CUSTOM, M5_LARGE, 20),
        (CUSTOM, C5_XLARGE, 44),
        (CUSTOM, T2_LARGE, 24),
        (BOTH, T3_NANO, 18),
        (BOTH, M5_LARGE, 110),
        (BOTH, T2_LARGE, 24),
    ],
)
def test_it_is_the_number_of_the_images_own_calculator(cni: VpcCni, type_: Hardware, pods: int | None) -> None:
    assert cni.max_pods(type_) == pods


def aws_node(*env: dict[str, Any], container: str = "aws-node") -> DaemonSet:
    containers = [{"name": "aws-eks-nodeagent"}, {"name": container, "env": list(env)}]
    return decode({"spec": {"template": {"spec": {"containers": containers}}}}, DaemonSet)


def variable(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


@pytest.mark.parametrize(
    ("daemon_set", "settings"),
    [
        (aws_node(variable("ENABLE_PREFIX_DELEGATION", "true")), PREFIXES),
        (aws_node(variable("ENABLE_PREFIX_DELEGATION", "TRUE")), PREFIXES),
        (aws_node(variable("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "true")), CUSTOM),
        (aws_node(variable("ENABLE_PREFIX_DELEGATION", "false"), variable("ENABLE_POD_ENI", "true")), None),
        (aws_node({"name": "ENABLE_PREFIX_DELEGATION", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}), None),
        (aws_node(variable("ENABLE_PREFIX_DELEGATION", "true"), container="another"), None),
        (aws_node(), None),
    ],
)
def test_they_are_the_environment_of_its_container(daemon_set: DaemonSet, settings: VpcCni | None) -> None:
    assert read_settings([daemon_set]) == settings


def node_class(family: str = "al2023", annotation: str = "", **spec: Any) -> EC2NodeClass:
    annotations = {names.PREFIX_DELEGATION: annotation} if annotation else {}
    terms = [AMISelectorTerm(alias=f"{family}@latest")]
    return EC2NodeClass(
        metadata=ObjectMeta(name="default", annotations=annotations),
        spec=EC2NodeClassSpec(ami_selector_terms=terms, **spec),
    )


@pytest.mark.parametrize("family", ["AL2023", "AL2", "Bottlerocket"])
def test_they_count_where_tenon_writes_the_kubelets_settings(family: str) -> None:
    assert settings_for(PREFIXES, node_class(family), FAMILIES[family]) == PREFIXES


@pytest.mark.parametrize("family", ["Custom", "Windows2022"])
def test_they_do_not_where_it_does_not(family: str) -> None:
    assert settings_for(PREFIXES, node_class(family), FAMILIES[family]) is None


def test_the_class_has_the_last_word() -> None:
    family = FAMILIES["AL2023"]
    assert settings_for(PREFIXES, node_class(kubelet={"maxPods": 40}), family) is None
    assert settings_for(PREFIXES, node_class(kubelet={"maxPods": "vcpus * 8"}), family) is None
    assert settings_for(PREFIXES, node_class(annotation="false"), family) is None
    assert settings_for(PREFIXES, node_class(kubelet={"podsPerCore": 10}), family) == PREFIXES


CATALOG = InstanceTypeCatalog(
    region="us-east-1",
    types_at=NOW,
    prices_at=NOW,
    hardware=(M5_LARGE, M5_24XLARGE, T2_LARGE),
    on_demand={"m5.large": 0.1, "m5.24xlarge": 4.6, "t2.large": 0.1},
    offered=dict.fromkeys(("m5.large", "m5.24xlarge", "t2.large"), ("a",)),
    zones={"a": ""},
)


def types(vpc_cni: VpcCni | None, **kubelet: Any) -> dict[str, tuple[int, dict[str, Any]]]:
    """The pods of each type, and the settings that its launch template has."""
    with_kubelet = node_class(kubelet=kubelet or None)
    built = build_instance_types(CATALOG, with_kubelet, None, zones={"a"}, unavailable=(), vpc_cni=vpc_cni)
    return {t.name: (t.capacity["pods"], json.loads(t.kubelet_values or "{}")) for t in built}


def test_what_is_planned_is_what_the_kubelet_is_told() -> None:
    assert types(PREFIXES) == {
        "m5.large": (110, {"maxPods": 110}),
        "m5.24xlarge": (250, {"maxPods": 250}),
        "t2.large": (35, {}),
    }
    assert types(None) == {"m5.large": (29, {}), "m5.24xlarge": (737, {}), "t2.large": (35, {})}


def test_pods_per_core_and_expressions_of_reserved_amounts_follow_it() -> None:
    assert types(PREFIXES, podsPerCore=10)["m5.large"] == (20, {"maxPods": 110})
    reserved = {"memory": "max_pods * 10"}
    assert types(PREFIXES, kubeReserved=reserved)["m5.large"][1] == {
        "maxPods": 110,
        "kubeReserved": {"memory": "1104Mi"},
    }
    assert types(PREFIXES, kubeReserved=reserved)["t2.large"][1] == {"kubeReserved": {"memory": "352Mi"}}
