"""Capacity, overhead and allocatable, by kubelet settings, volumes and AMI family."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.ami_family.families import FAMILIES, GIB
from shared.api.kubelet import Kubelet
from shared.api.nodeclass import BlockDevice, BlockDeviceMapping
from shared.api.quantity import Resources, format_resources
from shared.instance_types import allocatable
from shared.instance_types.catalog import Device, Hardware

MIB = 2**20
AL2023, BOTTLEROCKET, WINDOWS, CUSTOM = (FAMILIES[n] for n in ("AL2023", "Bottlerocket", "Windows2022", "Custom"))


def hardware(**changes: object) -> Hardware:
    given_: dict[str, object] = {
        "name": "c7i.2xlarge",
        "arch": "amd64",
        "vcpus": 8,
        "memory_mib": 16384,
        "interfaces": 4,
        "addresses": 15,
        "branch_interfaces": 38,
    }
    return Hardware(**(given_ | changes))  # type: ignore[arg-type]  # the fields of Hardware


def pods_get(machine: Hardware, kubelet: Kubelet | None = None, family: str = "AL2023", **options: object) -> Resources:
    capacity = allocatable.capacity(machine, FAMILIES[family], kubelet, **options)  # type: ignore[arg-type]  # its keywords
    overhead = allocatable.overhead(machine, FAMILIES[family], kubelet, capacity)
    return {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}


def test_the_documented_example() -> None:
    assert format_resources(pods_get(hardware())) == {
        "cpu": "7910m",
        "memory": "14162Mi",
        "pods": "58",
        "ephemeral-storage": "17Gi",
        "vpc.amazonaws.com/pod-eni": "38",
    }


@pytest.mark.parametrize(
    ("kubelet", "family", "pods"),
    [
        (Kubelet(max_pods=110), "AL2023", 110),
        (Kubelet(pods_per_core=4), "AL2023", 32),
        (Kubelet(max_pods=20, pods_per_core=4), "AL2023", 20),
        (Kubelet(pods_per_core=4), "Bottlerocket", 58),
        (None, "Windows2022", 110),
    ],
)
def test_max_pods(kubelet: Kubelet | None, family: str, pods: int) -> None:
    assert pods_get(hardware(), kubelet, family)["pods"] == pods


def test_memory_is_reserved_for_the_pods_that_interfaces_allow_but_on_bottlerocket_for_max_pods() -> None:
    few = Kubelet(max_pods=10)
    assert pods_get(hardware(), few)["memory"] == pods_get(hardware())["memory"]
    assert pods_get(hardware(), few, "Bottlerocket")["memory"] - pods_get(hardware())["memory"] == 11 * 48 * MIB


def test_user_settings_replace_kube_reserved_and_add_to_system_reserved() -> None:
    usual = pods_get(hardware())
    changed = pods_get(hardware(), Kubelet(kube_reserved={"cpu": "1"}, system_reserved={"memory": "1Gi"}))
    assert changed["cpu"] == 7000
    assert usual["memory"] - changed["memory"] == GIB


@pytest.mark.parametrize(
    ("kubelet", "family", "threshold"),
    [
        (Kubelet(eviction_hard={"memory.available": "500Mi"}), "AL2023", 500 * MIB),
        (Kubelet(eviction_hard={"memory.available": "10%"}), "AL2023", -(-15155 * MIB // 10)),
        (Kubelet(eviction_hard={"memory.available": "100%"}), "AL2023", 0),
        (
            Kubelet(eviction_hard={"memory.available": "100Mi"}, eviction_soft={"memory.available": "1Gi"}),
            "AL2023",
            GIB,
        ),
        (
            Kubelet(eviction_hard={"memory.available": "100Mi"}, eviction_soft={"memory.available": "1Gi"}),
            "Bottlerocket",
            100 * MIB,
        ),
    ],
)
def test_the_eviction_threshold_of_memory(kubelet: Kubelet, family: str, threshold: int) -> None:
    capacity = allocatable.capacity(hardware(), FAMILIES[family], kubelet)
    assert allocatable.eviction(kubelet, FAMILIES[family], capacity)["memory"] == threshold


def devices(*given_: tuple[str, str, bool]) -> list[BlockDeviceMapping]:
    return [
        BlockDeviceMapping(device_name=name, root_volume=root, ebs=BlockDevice(volume_size=size))
        for name, size, root in given_
    ]


@pytest.mark.parametrize(
    ("family", "mappings", "raid", "size"),
    [
        ("AL2023", [], False, 20 * GIB),
        ("AL2023", [], True, 950 * 10**9),
        ("AL2023", devices(("/dev/xvda", "50Gi", False)), False, 50 * GIB),
        ("AL2023", devices(("/dev/xvdb", "50Gi", False)), False, 20 * GIB),
        ("AL2023", devices(("/dev/xvda", "50Gi", False), ("/dev/sda", "70Gi", True)), False, 70 * GIB),
        ("Bottlerocket", devices(("/dev/xvda", "4Gi", False), ("/dev/xvdb", "30Gi", False)), False, 30 * GIB),
        ("Custom", devices(("/dev/sda", "8Gi", False), ("/dev/sdb", "90Gi", False)), False, 90 * GIB),
        ("Windows2022", [], False, 50 * GIB),
    ],
)
def test_ephemeral_storage(family: str, mappings: list[BlockDeviceMapping], raid: bool, size: int) -> None:  # noqa: FBT001 (a column of the table)
    machine = hardware(nvme_gb=950)
    assert allocatable.ephemeral_storage(machine, FAMILIES[family], mappings, raid=raid) == size


def test_reported_memory_replaces_the_estimate() -> None:
    reported = 15_500 * MIB
    assert allocatable.capacity(hardware(), AL2023, observed_memory=reported)["memory"] == reported


def test_accelerators_and_efa_are_counted() -> None:
    machine = hardware(
        gpus=(Device("a100", "nvidia", 8), Device("gaudi", "habana", 2)),
        neurons=(Device("inferentia2", "aws", 2, cores=2),),
        efa=4,
    )
    capacity = allocatable.capacity(machine, AL2023)
    assert {name: capacity[name] for name in capacity if "/" in name or "." in name} == {
        "nvidia.com/gpu": 8,
        "habana.ai/gaudi": 2,
        "aws.amazon.com/neuron": 2,
        "aws.amazon.com/neuroncore": 4,
        "vpc.amazonaws.com/efa": 4,
        "vpc.amazonaws.com/pod-eni": 38,
    }


@given(st.integers(1, 448))
def test_the_cpu_reserve_is_a_small_share_that_grows_with_the_machine(vcpus: int) -> None:
    reserved = allocatable.reserved_cpu(vcpus * 1000)
    assert 0 < reserved <= vcpus * 60
    assert reserved <= allocatable.reserved_cpu(vcpus * 1000 + 1000) <= reserved + 10


@given(st.integers(512, 2**25))
def test_the_memory_estimate_is_whole_mebibytes_and_never_above_92_5_percent(mib: int) -> None:
    estimate = allocatable.memory(hardware(memory_mib=mib))
    assert estimate % MIB == 0
    assert 0 <= mib * 925 - estimate // MIB * 1000 < 1000
