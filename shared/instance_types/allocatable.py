"""How much of a machine pods get, exactly: capacity and overhead by Karpenter's formulas.

Source: docs/facts/karpenter.md section 4 (AWS provider v1.14.1). Both sides must agree to the byte, or a pod is planned
onto a node that then refuses it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from shared.ami_family.families import CUSTOM, GIB
from shared.api.nodeclass import Kubelet
from shared.api.quantity import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Resources,
    add,
    largest,
    parse_quantity,
    parse_resources,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.ami_family.families import Family
    from shared.api.nodeclass import BlockDeviceMapping
    from shared.instance_types.catalog import Hardware

MIB = 2**20
VM_OVERHEAD = Fraction(75, 1000)
"""The part of a type's memory that the hypervisor and the firmware take, before a real node has told."""
_ARM_RESERVED_MIB = 64
_DEFAULT_PODS = 110
_DEFAULT_VOLUME = 20 * GIB
_CPU_RESERVED = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, 1 << 31, 25))
"""From and to (milli-cores), and how many ten-thousandths of that stretch are reserved."""
_EVICTION_MEMORY = 100 * MIB
_RESERVED_STORAGE = GIB

POD_ENI = "vpc.amazonaws.com/pod-eni"
EFA = "vpc.amazonaws.com/efa"
NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"
PRIVATE_IPV4 = "vpc.amazonaws.com/PrivateIPv4Address"
GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}


def capacity(
    hardware: Hardware,
    family: Family,
    kubelet: Kubelet | None = None,
    *,
    block_devices: Sequence[BlockDeviceMapping] = (),
    raid: bool = False,
    observed_memory: int | None = None,
) -> Resources:
    """What a node of the hardware will say it has.

    ``raid``: the instance store holds the pods' files. ``observed_memory`` is the capacity in bytes that real nodes of
    the type reported; it replaces the estimate.
    """
    resources: Resources = {
        CPU: hardware.vcpus * 1000,
        MEMORY: memory(hardware) if observed_memory is None else observed_memory,
        EPHEMERAL_STORAGE: ephemeral_storage(hardware, family, block_devices, raid=raid),
        PODS: pods(hardware, family, kubelet),
    }
    extended: Resources = {
        POD_ENI: hardware.branch_interfaces if family.os == "linux" else 0,
        EFA: hardware.efa,
        NEURON: sum(device.count for device in hardware.neurons),
        NEURON_CORE: sum(device.count * device.cores for device in hardware.neurons),
        PRIVATE_IPV4: max(hardware.addresses - 1, 0) if family.os == "windows" else 0,
    }
    for manufacturer, resource in GPU_RESOURCES.items():
        extended[resource] = sum(gpu.count for gpu in hardware.gpus if gpu.manufacturer == manufacturer)
    return resources | {name: amount for name, amount in extended.items() if amount}


def memory(hardware: Hardware) -> int:
    """The estimate of a node's memory in bytes: 7.5 % less than EC2 says, and 64 MiB less on Graviton."""
    mib = hardware.memory_mib - (_ARM_RESERVED_MIB if hardware.arch == "arm64" else 0)
    return (mib + (-mib * VM_OVERHEAD).__floor__()) * MIB


def interface_pods(hardware: Hardware) -> int:
    """How many pods have an address: (ENIs) x (IPv4 per ENI - 1) + 2."""
    return hardware.interfaces * (hardware.addresses - 1) + 2 if hardware.interfaces else 0


def pods(hardware: Hardware, family: Family, kubelet: Kubelet | None = None) -> int:
    """How many pods the kubelet admits: maxPods, else by interfaces, else 110; at most podsPerCore x vCPU."""
    settings = kubelet or Kubelet()
    if settings.max_pods is not None:
        count = settings.max_pods
    else:
        count = interface_pods(hardware) if family.pods_from_interfaces else _DEFAULT_PODS
    if settings.pods_per_core and family.pods_per_core:
        count = min(count, settings.pods_per_core * hardware.vcpus)
    return count


def ephemeral_storage(
    hardware: Hardware, family: Family, block_devices: Sequence[BlockDeviceMapping] = (), *, raid: bool = False
) -> int:
    """Bytes for pods' files: the striped instance store, else the root volume's size, else the family's default."""
    if raid and hardware.nvme_gb:
        return hardware.nvme_gb * 10**9
    sizes = [(d, d.ebs.volume_size) for d in block_devices if d.ebs is not None and d.ebs.volume_size is not None]
    marked = [size for device, size in sizes if device.root_volume]
    if not marked:
        marked = [size for device, size in sizes if device.device_name == family.ephemeral_device]
    if not marked and family.name == CUSTOM:
        marked = [size for _, size in sizes[-1:]]
    if marked:
        return parse_quantity(EPHEMERAL_STORAGE, marked[0])
    default = [v.size_gib * GIB for v in family.volumes if v.device == family.ephemeral_device]
    return default[0] if default else _DEFAULT_VOLUME


def overhead(hardware: Hardware, family: Family, kubelet: Kubelet | None, capacity: Mapping[str, int]) -> Resources:
    """What of the capacity pods don't get: kube-reserved + system-reserved + hard eviction thresholds.

    Raises:
        QuantityError: a quantity of the kubelet's settings is none.
    """
    settings = kubelet or Kubelet()
    reserved_for = interface_pods(hardware) if family.reserves_by_interfaces else capacity[PODS]
    kube_reserved: Resources = {
        CPU: reserved_cpu(capacity[CPU]),
        MEMORY: (11 * reserved_for + 255) * MIB,
        EPHEMERAL_STORAGE: _RESERVED_STORAGE,
    } | parse_resources(settings.kube_reserved)
    return add(kube_reserved, parse_resources(settings.system_reserved), eviction(settings, family, capacity))


def reserved_cpu(milli: int) -> int:
    """Milli-cores kept back: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest."""
    return sum((min(milli, end) - start) * share // 10_000 for start, end, share in _CPU_RESERVED if milli > start)


def eviction(kubelet: Kubelet, family: Family, capacity: Mapping[str, int]) -> Resources:
    """The thresholds below which the kubelet evicts; 100 % turns a signal off."""
    default: Resources = {MEMORY: _EVICTION_MEMORY, EPHEMERAL_STORAGE: -(-capacity[EPHEMERAL_STORAGE] // 10)}
    signals = [kubelet.eviction_hard, *([kubelet.eviction_soft] if family.soft_eviction else [])]
    asked = [
        {
            resource: _threshold(resource, signal[name], capacity[resource])
            for name, resource in (("memory.available", MEMORY), ("nodefs.available", EPHEMERAL_STORAGE))
            if name in signal
        }
        for signal in signals
    ]
    return default | largest(*asked)


def _threshold(resource: str, text: str, amount: int) -> int:
    if not text.endswith("%"):
        return parse_quantity(resource, text)
    percent = Fraction(parse_quantity(CPU, text[:-1]), 1000)
    return 0 if percent == 100 else -((-amount * percent / 100).__floor__())  # noqa: PLR2004 (percent)
