"""Kubelet settings of a class: why its nodes can't have them, and a launch template for each set of values."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from shared.api.meta import condition
from shared.base import aws
from shared.base.struct import with_fields
from shared.cloud_provider import LaunchedInstance
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.launch.node_class.status import resolve

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType

SIZES = ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge")
NAMES = [f"{family}.{size}" for family in ("c5", "c6i", "m5", "m6i", "r5", "r6i", "c7i") for size in SIZES][:55]
Account = Any
"""The fixture's class: tests can't import from conftest."""


def validation(account: Account, *, catalog: InstanceTypeCatalog | None = None, **spec: Any) -> tuple[str, str, str]:
    """Status, reason and message of the class's condition."""
    resolver = with_fields(account.resolver(), catalog=catalog)
    status = resolve(resolver, account.node_class(**spec), now=account.now)
    validated = condition(status.conditions, "ValidationSucceeded")
    assert validated is not None
    return validated.status, validated.reason, validated.message


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"kubelet": {"cpuManagerPolicy": "static"}, "ami_family": "Bottlerocket"},
            "UnsupportedKubeletConfiguration",
            'spec.kubelet.cpuManagerPolicy: "static" is not supported by Bottlerocket',
        ),
        (
            {"kubelet": {"podsPerCore": 4}, "ami_family": "Bottlerocket"},
            "UnsupportedKubeletConfiguration",
            "spec.kubelet.podsPerCore: 4 is not supported by Bottlerocket",
        ),
        (
            {"kubelet": {"maxPods": "cores * 10"}},
            "KubeletExpressionInvalid",
            'spec.kubelet.maxPods: "cores * 10" is no valid expression: "cores" is unknown',
        ),
        (
            {"kubelet": {"kubeReserved": {"cpu": "100 - vcpus * 10"}}},
            "KubeletExpressionEvaluationFailed",
            'spec.kubelet.kubeReserved.cpu: "100 - vcpus * 10" on m5.24xlarge is -860; allowed is 0 to',
        ),
    ],
)
def test_settings_that_nodes_cannot_have_are_named(
    account: Account, spec: dict[str, Any], reason: str, message: str
) -> None:
    status, given_reason, text = validation(account, catalog=catalog(account), **spec)
    assert (status, given_reason) == ("False", reason)
    assert text.startswith(message)


@pytest.mark.parametrize(
    "spec",
    [
        {"kubelet": {"cpuManagerPolicy": "static", "maxPods": "vcpus * 10"}},
        {"kubelet": {"kubeReserved": {"cpu": "max(60, vcpus * 30)"}, "maxPods": 110}, "ami_family": "Bottlerocket"},
    ],
)
def test_settings_that_nodes_can_have_are_valid(account: Account, spec: dict[str, Any]) -> None:
    assert validation(account, catalog=catalog(account), **spec)[:2] == ("True", "ValidationSucceeded")


def test_without_a_catalog_expressions_are_tried_on_a_sample(account: Account) -> None:
    assert validation(account, kubelet={"maxPods": "vcpus * 10"})[0] == "True"
    assert validation(account, kubelet={"maxPods": "1 / (vcpus - 2)"})[1] == "KubeletExpressionEvaluationFailed"


def catalog(account: Account) -> InstanceTypeCatalog:
    sizes = {"m5.large": 2, "m5.24xlarge": 96}
    hardware = tuple(
        Hardware(name=name, arch="amd64", vcpus=vcpus, memory_mib=vcpus * 4096, interfaces=3, addresses=10)
        for name, vcpus in sizes.items()
    )
    return InstanceTypeCatalog(region="us-east-1", types_at=account.now, prices_at=account.now, hardware=hardware)


def with_values(instance_type: InstanceType, values: dict[str, Any]) -> InstanceType:
    return with_fields(instance_type, kubelet_values=msgspec.json.encode(values).decode())


def test_types_with_equal_values_share_a_launch_template_whose_user_data_has_them(account: Account) -> None:
    few = {"maxPods": 30, "kubeReserved": {"cpu": "60m"}}
    many = {"maxPods": 60, "kubeReserved": {"cpu": "120m"}}
    types = [
        with_values(account.instance_type("m5.large", on_demand=0.096), few),
        with_values(account.instance_type("c5.large", on_demand=0.085), few),
        with_values(account.instance_type("m5.xlarge", on_demand=0.192), many),
    ]
    settings = {"maxPods": "vcpus * 15", "kubeReserved": {"cpu": "vcpus * 30"}, "cpuManagerPolicy": "static"}
    (result,) = account.launch([account.claim("web")], types, node_class=account.ready(kubelet=settings))
    assert isinstance(result, LaunchedInstance)
    by_types = {
        frozenset(o["InstanceType"] for o in config["Overrides"]): kubelet_config(config["LaunchTemplateSpecification"])
        for config in account.fleets.requests[-1]["LaunchTemplateConfigs"]
    }
    assert by_types == {
        frozenset({"m5.large", "c5.large"}): {**few, "cpuManagerPolicy": "static"},
        frozenset({"m5.xlarge"}): {**many, "cpuManagerPolicy": "static"},
    }


def kubelet_config(specification: dict[str, str]) -> dict[str, Any]:
    name = specification["LaunchTemplateName"]
    (version,) = aws.ec2().describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
    text = base64.b64decode(version["LaunchTemplateData"]["UserData"]).decode()
    document = text[text.index("apiVersion: node.eks.aws") :].partition("\n--//")[0]
    config: dict[str, Any] = yaml.safe_load(document)["spec"]["kubelet"]["config"]
    return config


def test_a_call_has_no_more_launch_templates_than_ec2_takes(account: Account) -> None:
    prices = {name: 0.1 + i / 1000 for i, name in enumerate(NAMES)}
    types = [
        with_values(account.instance_type(name, on_demand=price), {"maxPods": round(price * 1000)})
        for name, price in prices.items()
    ]
    account.launch([account.claim("web")], types, node_class=account.ready(kubelet={"maxPods": "vcpus"}))
    assert len(account.fleets.requests[-1]["LaunchTemplateConfigs"]) == 50
    assert {name for name, _ in account.offered()} == set(NAMES[:50])
