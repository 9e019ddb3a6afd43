"""Kubelet settings that depend on the instance type: their values, units and rounding, and what they change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.ami_family.families import FAMILIES
from shared.api.kubelet import KubeletError
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.instance_types.kubelet_expressions import compile_expressions
from shared.instance_types.provider import build_instance_types

NOW = datetime(2026, 11, 26, tzinfo=UTC)


def hardware(name: str, vcpus: int, memory_mib: int, interfaces: int, addresses: int) -> Hardware:
    return Hardware(
        name=name,
        arch="amd64",
        vcpus=vcpus,
        memory_mib=memory_mib,
        interfaces=interfaces,
        addresses=addresses,
        capacity_types=("on-demand",),
    )


M5_LARGE, M5_4XLARGE = hardware("m5.large", 2, 8192, 3, 10), hardware("m5.4xlarge", 16, 65536, 8, 30)
CATALOG = InstanceTypeCatalog(
    region="us-east-1",
    types_at=NOW,
    prices_at=NOW,
    hardware=(M5_LARGE, M5_4XLARGE),
    zones={"a": ""},
    offered={"m5.large": ("a",), "m5.4xlarge": ("a",)},
    on_demand={"m5.large": 0.096, "m5.4xlarge": 0.768},
)


def values(family: str = "AL2023", machine: Hardware = M5_LARGE, **settings: Any) -> dict[str, Any]:
    return compile_expressions(settings).values(machine, FAMILIES[family])


@pytest.mark.parametrize(
    ("text", "large", "larger"),
    [
        ("vcpus * 20", 40, 320),
        ("max(50, memory_mib / 1024)", 50, 64),
        ("default_enis * (ips_per_eni - 1) + 2", 29, 234),
        ("max_pods", 29, 234),
        ("max_pods * 4", 116, 936),
        ("double(vcpus) * 7.6", 15, 121),
        ('instance_type == "m5.large" ? 10 : 20', 10, 20),
        ("110", 110, 110),
    ],
)
def test_max_pods_is_computed_for_each_type(text: str, large: int, larger: int) -> None:
    assert values(maxPods=text) == {"maxPods": large}
    assert values(machine=M5_4XLARGE, maxPods=text) == {"maxPods": larger}


def test_max_pods_of_its_own_expression_is_the_default() -> None:
    assert values(maxPods="max_pods", podsPerCore=5) == {"maxPods": 10}
    assert values("Windows2022", maxPods="max_pods") == {"maxPods": 110}


@pytest.mark.parametrize(
    ("settings", "cpu"),
    [
        ({}, "60m"),
        ({"maxPods": 50}, "100m"),
        ({"maxPods": "vcpus * 30"}, "120m"),
        ({"maxPods": "vcpus * 30", "podsPerCore": 10}, "40m"),
    ],
)
def test_reservations_see_the_max_pods_that_nodes_have(settings: dict[str, Any], cpu: str) -> None:
    assert values(kubeReserved={"cpu": "max_pods * 2"}, **settings)["kubeReserved"] == {"cpu": cpu}


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "vcpus * 30", "60m"),
        ("cpu", "vcpus * 30 + 1", "70m"),
        ("cpu", "vcpus - 2", "0m"),
        ("memory", "memory_mib / 100", "96Mi"),
        ("memory", "memory_mib * 5 / 100", "416Mi"),
        ("memory", "double(memory_mib) / 500.0", "16Mi"),
        ("ephemeral-storage", "vcpus + 1", "3Gi"),
        ("pid", "vcpus * 500 + 1", "1001"),
    ],
)
def test_reservations_have_the_unit_of_their_resource_and_are_rounded_up(resource: str, text: str, amount: str) -> None:
    reserved = values(systemReserved={resource: text}, kubeReserved={resource: "1"})
    assert reserved == {"systemReserved": {resource: amount}}


def test_quantities_next_to_an_expression_stay_as_they_are() -> None:
    reserved = {"cpu": "vcpus * 30", "memory": "1Gi", "pid": 1000}
    assert values(kubeReserved=reserved) == {"kubeReserved": {"cpu": "60m", "memory": "1Gi", "pid": "1000"}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"maxPods": "vcpus -"}, 'spec.kubelet.maxPods: "vcpus -" is no valid expression: the end is not expected'),
        ({"kubeReserved": {"cpu": "cores"}}, 'spec.kubelet.kubeReserved.cpu: "cores" is no valid expression: "cores"'),
        ({"systemReserved": {"memory": "vcpus > 1"}}, 'spec.kubelet.systemReserved.memory: "vcpus > 1" is no valid'),
    ],
)
def test_an_invalid_expression_is_named_with_its_field(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(KubeletError) as error:
        compile_expressions(settings)
    assert error.value.reason == "KubeletExpressionInvalid"
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"maxPods": "100 / (vcpus - 2)"}, '"100 / (vcpus - 2)" on m5.large: division by zero'),
        ({"maxPods": "vcpus - 8"}, '"vcpus - 8" on m5.large is -6; allowed is 0 to 2147483647'),
        ({"maxPods": "vcpus * 2000000000"}, "is 4000000000; allowed is 0 to 2147483647"),
        ({"maxPods": "1.0 / 0.0"}, "is inf; allowed is"),
        ({"maxPods": "0.0 / 0.0"}, "is nan; allowed is"),
        ({"kubeReserved": {"memory": "8000 - memory_mib"}}, 'memory: "8000 - memory_mib" on m5.large is -192;'),
    ],
)
def test_a_value_that_no_kubelet_takes_is_named_with_its_type(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(KubeletError) as error:
        values(**settings)
    assert error.value.reason == "KubeletExpressionEvaluationFailed"
    assert message in str(error.value)


def types(**kubelet: Any) -> dict[str, Any]:
    node_class = EC2NodeClass(spec=EC2NodeClassSpec(kubelet=kubelet))
    return {t.name: t for t in build_instance_types(CATALOG, node_class, None, zones={"a"}, unavailable=())}


def test_allocatable_follows_the_values_of_each_type() -> None:
    reserved = {"cpu": "vcpus * 50", "memory": "max_pods * 11 + 255"}
    by_name = types(maxPods="vcpus * 15", kubeReserved=reserved, systemReserved={"ephemeral-storage": "vcpus"})
    large, larger = by_name["m5.large"], by_name["m5.4xlarge"]
    assert (large.capacity["pods"], larger.capacity["pods"]) == (30, 240)
    assert (large.overhead["cpu"], larger.overhead["cpu"]) == (100, 800)
    assert large.overhead["memory"] == (592 + 100) * 2**20  # 585, rounded up to 16, and the eviction threshold
    assert json.loads(large.kubelet_values) == {
        "maxPods": 30,
        "kubeReserved": {"cpu": "100m", "memory": "592Mi"},
        "systemReserved": {"ephemeral-storage": "2Gi"},
    }


def test_equal_values_are_equal_texts_and_without_expressions_there_are_none() -> None:
    by_name = types(maxPods="vcpus > 100 ? 250 : 110", kubeReserved={"cpu": "100m"})
    assert {t.kubelet_values for t in by_name.values()} == {'{"maxPods":110}'}
    assert {t.kubelet_values for t in types(maxPods=110, kubeReserved={"cpu": "100m"}).values()} == {""}
