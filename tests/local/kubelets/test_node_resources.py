"""How big a machine's node is, against figures known from real nodes (manifests/README.md)."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from local.kubelets.kubelet_configuration import KubeletConfiguration
from local.kubelets.machine import Machine
from local.kubelets.node_resources import allocatable, capacity
from shared.api.quantity import format_resources, parse_quantity

MEMORY_OVERHEAD = Fraction(75, 1000)


def machine(**fields: Any) -> Machine:
    values: dict[str, Any] = {
        "zone": "us-east-1a",
        "instance_type": "c7i.2xlarge",
        "vcpus": 8,
        "memory_mib": 16384,
        "max_pods": 58,
        **fields,
    }
    return Machine(
        instance_id="i-1",
        image_id="ami-1",
        user_data="",
        private_dns_name="n1",
        launched_at=datetime(2026, 11, 21, tzinfo=UTC),
        **values,
    )


def sizes(of: Machine, **settings: Any) -> tuple[dict[str, str], dict[str, str]]:
    kubelet = KubeletConfiguration(**settings)
    size = capacity(of, kubelet, memory_overhead=MEMORY_OVERHEAD)
    return format_resources(size), format_resources(allocatable(size, of, kubelet))


def test_a_c7i_2xlarge_has_the_resources_of_a_real_one() -> None:
    _, usable = sizes(machine())
    assert (usable["cpu"], usable["pods"], usable["ephemeral-storage"]) == ("7910m", "58", "17Gi")
    assert parse_quantity("memory", usable["memory"]) // 2**20 == 14162


def test_a_pod_limit_counts_and_so_do_cores() -> None:
    assert sizes(machine(), max_pods=110)[0]["pods"] == "110"
    assert sizes(machine(), max_pods=110, pods_per_core=4)[0]["pods"] == "32"


def test_reservations_of_the_user_replace_the_defaults() -> None:
    _, usable = sizes(machine(), kube_reserved={"cpu": "1"}, system_reserved={"cpu": "500m"})
    assert usable["cpu"] == "6500m"


def test_eviction_thresholds_may_be_shares() -> None:
    size, usable = sizes(
        machine(), eviction_hard={"memory.available": "50%"}, kube_reserved={"memory": "0"}, system_reserved={}
    )
    assert int(usable["memory"].removesuffix("Ki")) * 2 == int(size["memory"].removesuffix("Ki"))


def test_instance_storage_counts_when_it_is_striped_for_pods() -> None:
    assert sizes(machine(nvme_gib=118))[0]["ephemeral-storage"] == "20Gi"
    assert sizes(machine(nvme_gib=118), raid0=True)[0]["ephemeral-storage"] == "118Gi"


def test_local_zones_have_their_regions_name() -> None:
    regions = [machine(zone=zone).region for zone in ("us-east-1a", "us-west-2-lax-1a", "us-gov-west-1b")]
    assert regions == ["us-east-1", "us-west-2", "us-gov-west-1"]


@given(vcpus=st.integers(1, 448), memory=st.integers(512, 25_165_824), pods=st.integers(1, 737))
def test_a_node_never_offers_more_than_it_has(vcpus: int, memory: int, pods: int) -> None:
    of, kubelet = machine(vcpus=vcpus, memory_mib=memory, max_pods=pods), KubeletConfiguration()
    size = capacity(of, kubelet, memory_overhead=MEMORY_OVERHEAD)
    usable = allocatable(size, of, kubelet)
    assert all(0 <= usable[name] <= size[name] for name in size)
