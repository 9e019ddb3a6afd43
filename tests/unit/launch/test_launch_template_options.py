"""Options of a class in EC2's form: what is accepted, and what is reported by field."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.ami_family.families import FAMILIES
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec, EnclaveOptions
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.instance_types.provider import build_instance_types
from shared.launch import launch_template
from shared.launch.fleet import errors
from shared.launch.launch_template import OptionError

ENA = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}


def fabric(card: int, device: int = 1) -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": "efa-only"}


def interfaces(*given: dict[str, Any], public: bool | None = None) -> list[dict[str, Any]]:
    return launch_template.network_interfaces(
        EC2NodeClassSpec(network_interfaces=list(given), associate_public_ip_address=public), ["sg-1"], efa_count=0
    )


def test_interfaces_have_ec2s_form() -> None:
    assert interfaces(ENA, fabric(0), fabric(1, 0)) == [
        {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface", "Groups": ["sg-1"]},
        {"NetworkCardIndex": 0, "DeviceIndex": 1, "InterfaceType": "efa-only", "Groups": ["sg-1"]},
        {"NetworkCardIndex": 1, "DeviceIndex": 0, "InterfaceType": "efa-only", "Groups": ["sg-1"]},
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([fabric(0)], "spec.networkInterfaces has none with networkCardIndex 0 and deviceIndex 0"),
        ([fabric(0, 0)], 'spec.networkInterfaces[0].interfaceType is "efa-only", but the primary'),
        ([ENA, ENA], "spec.networkInterfaces[1]: networkCardIndex 0 with deviceIndex 0 is used twice"),
        ([ENA, fabric(-1)], "spec.networkInterfaces[1]: networkCardIndex and deviceIndex must not be negative"),
        ([ENA, fabric(1), fabric(1, 2)], "spec.networkInterfaces[2].interfaceType: network card 1 has"),
        ([{**ENA, "subnet": "subnet-1"}], "spec.networkInterfaces[0].subnet is unknown"),
        ([{**ENA, "deviceIndex": "0"}], "spec.networkInterfaces[0].deviceIndex"),
    ],
)
def test_interfaces_that_ec2_would_reject_are_reported_by_field(given: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        interfaces(*given)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (EC2NodeClassSpec(cpu_options={"cores": 2}), "spec.cpuOptions.cores is unknown; known are coreCount"),
        (EC2NodeClassSpec(cpu_options={"amdSevSnp": "on"}), 'spec.cpuOptions.amdSevSnp is "on", and must be one of'),
        (EC2NodeClassSpec(placement_group_selector={"tags": {}}), "spec.placementGroupSelector.tags is unknown"),
        (
            EC2NodeClassSpec(placement_group_selector={"name": "a", "id": "pg-1"}),
            "spec.placementGroupSelector takes either name or id",
        ),
    ],
)
def test_options_that_ec2_does_not_have_are_reported_by_field(spec: EC2NodeClassSpec, message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        launch_template.cpu_and_placement(spec)


def test_options_that_ec2_has_go_into_the_template() -> None:
    spec = EC2NodeClassSpec(cpu_options={"nestedVirtualization": "enabled"}, placement_group_selector={"name": "near"})
    assert launch_template.cpu_and_placement(spec) == {
        "CpuOptions": {"NestedVirtualization": "enabled"},
        "Placement": {"GroupName": "near"},
    }


def test_a_missing_placement_group_is_reported_by_field() -> None:
    message = errors.user_message("InvalidPlacementGroup.Unknown", "The Placement Group 'near' is unknown.")
    assert message == "The Placement Group 'near' is unknown: check spec.placementGroupSelector"
    assert errors.kind("InvalidPlacementGroup.Unknown") == "configuration"


def template(**spec: Any) -> dict[str, Any]:
    node_class = EC2NodeClass(spec=EC2NodeClassSpec(**spec))
    al2023 = FAMILIES["AL2023"]
    return dict(
        launch_template.launch_template(
            node_class, al2023, cluster="demo", ami_id="ami-1", user_data="", tags={}, spot=False
        ).data
    )


def test_enclaves_are_enabled_by_the_template() -> None:
    assert template(enclave_options=EnclaveOptions(enabled=True))["EnclaveOptions"] == {"Enabled": True}
    off = template(enclave_options=EnclaveOptions(enabled=False))
    assert off == template()
    assert "EnclaveOptions" not in off


def test_every_interface_with_addresses_gets_its_ip_prefixes() -> None:
    assert template(ip_prefix_count=2)["NetworkInterfaces"] == [{"DeviceIndex": 0, "Groups": [], "Ipv4PrefixCount": 2}]
    spec = EC2NodeClassSpec(network_interfaces=[ENA, fabric(0)], ip_prefix_count=1)
    prefixes = [nic.get("Ipv4PrefixCount") for nic in launch_template.network_interfaces(spec, [], efa_count=0)]
    assert prefixes == [1, None]
    (only,) = launch_template.network_interfaces(EC2NodeClassSpec(ip_prefix_count=1), [], efa_count=0, ipv6=True)
    assert only["Ipv6PrefixCount"] == 1
    assert "Ipv4PrefixCount" not in only


def test_in_an_ipv6_cluster_each_interface_with_addresses_has_an_ipv6_address() -> None:
    address = {"PrimaryIpv6": True, "Ipv6AddressCount": 1}
    assert launch_template.network_interfaces(EC2NodeClassSpec(), ["sg-1"], efa_count=0, ipv6=True) == [
        {"DeviceIndex": 0, "Groups": ["sg-1"], **address}
    ]
    spec = EC2NodeClassSpec(network_interfaces=[ENA, fabric(0)])
    first, second = launch_template.network_interfaces(spec, [], efa_count=0, ipv6=True)
    assert address.items() <= first.items()
    assert not address.keys() & second.keys()
    cards = launch_template.network_interfaces(EC2NodeClassSpec(), [], efa_count=2, ipv6=True)
    assert [address.items() <= card.items() for card in cards] == [True, True]


def test_in_an_ipv4_cluster_ec2s_default_interface_is_enough() -> None:
    assert launch_template.network_interfaces(EC2NodeClassSpec(), ["sg-1"], efa_count=0) == []


def test_no_ip_prefixes_are_as_if_nothing_was_said() -> None:
    assert template(ip_prefix_count=0) == template()


def test_only_types_with_the_requested_efa_count_can_be_launched() -> None:
    def hardware(name: str, efa: int) -> Hardware:
        return Hardware(
            name=name, arch="amd64", vcpus=96, memory_mib=2**20, interfaces=15, addresses=50, efa=efa,
            capacity_types=("on-demand",),
        )  # fmt: skip

    now = datetime(2026, 11, 21, tzinfo=UTC)
    raw = InstanceTypeCatalog(
        region="us-east-1",
        types_at=now,
        prices_at=now,
        hardware=(hardware("m5.metal", 0), hardware("c6in.metal", 2), hardware("p5.48xlarge", 32)),
        zones={"us-east-1a": ""},
        offered=dict.fromkeys(("m5.metal", "c6in.metal", "p5.48xlarge"), ("us-east-1a",)),
        on_demand={"m5.metal": 4.6, "c6in.metal": 7.3, "p5.48xlarge": 55.0},
        spot={},
    )

    def names(*given: dict[str, Any]) -> list[str]:
        node_class = EC2NodeClass(spec=EC2NodeClassSpec(network_interfaces=list(given)))
        return [t.name for t in build_instance_types(raw, node_class, None, zones=["us-east-1a"], unavailable=())]

    assert names(ENA) == ["c6in.metal", "m5.metal", "p5.48xlarge"]
    assert names(ENA, fabric(0)) == ["c6in.metal", "p5.48xlarge"]
    assert names(ENA, fabric(0), fabric(1, 0), fabric(2, 0)) == ["p5.48xlarge"]
