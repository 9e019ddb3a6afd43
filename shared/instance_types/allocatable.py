"""Capacity and overhead of a node, by Karpenter's formulas; allocatable is the difference.

Source: docs/facts/karpenter.md, section 4 (AWS provider v1.14.1). The values must equal the kubelet's to the byte, or
pods are scheduled to nodes that then reject them.

The memory capacity that registered nodes report is more exact than the estimate of the hypervisor's overhead. As in
Karpenter, the first node of an instance type and AMI shows the type's capacity. It is read from the existing nodes, so
nothing is stored. Of several nodes the smallest counts, because a pod must fit on the next one too.

EC2 publishes how many EBS volumes a type can attach (DescribeInstanceTypes, EbsInfo). Instance store volumes and
accelerators are subtracted from it, and of shared limits one network interface. The VPC CNI attaches a second one from
the start, and the volumes that the node comes with count too. Source: Amazon EBS User Guide, "Amazon EBS volume limits
for Amazon EC2 instances". Once a node is there, its CSINode says what the EBS driver counted.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from shared.ami_family.families import CUSTOM, GIB
from shared.api import labels
from shared.api.devices import EFA, GPU_RESOURCES, NEURON, NEURON_CORE, POD_ENI, PRIVATE_IPV4
from shared.api.kubelet import Kubelet
from shared.api.quantity import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    QuantityError,
    Resources,
    add,
    largest,
    parse_quantity,
    parse_resources,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.ami_family.families import Family
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import BlockDeviceMapping, EC2NodeClass
    from shared.instance_types.catalog import Hardware


MIB = 2**20
VM_OVERHEAD = Fraction(75, 1000)
"""The part of a type's memory that the hypervisor and the firmware take, until a node reports its capacity."""
_ARM_RESERVED_MIB = 64
_FURTHER_INTERFACES = 1
"""Network interfaces besides the first that a node has when its EBS driver counts."""
_DEFAULT_MAX_PODS = 110
_DEFAULT_VOLUME_SIZE = 20 * GIB
_CPU_RESERVED = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, 1 << 31, 25))
"""Ranges of milli-cores (from, to), and the ten-thousandths of each range that are reserved."""
_EVICTION_MEMORY = 100 * MIB
_RESERVED_STORAGE = GIB


def capacity(
    hardware: Hardware,
    family: Family,
    kubelet: Kubelet | None = None,
    *,
    block_devices: Sequence[BlockDeviceMapping] = (),
    raid: bool = False,
    observed_memory: int | None = None,
) -> Resources:
    """The capacity that a node will report.

    ``raid``: the instance store holds the ephemeral storage. ``observed_memory`` is the memory capacity in bytes that
    nodes of the type reported; it replaces the estimate.
    """
    resources: Resources = {
        CPU: hardware.vcpus * 1000,
        MEMORY: memory(hardware) if observed_memory is None else observed_memory,
        EPHEMERAL_STORAGE: ephemeral_storage(hardware, family, block_devices, raid=raid),
        PODS: pods(hardware, family, kubelet),
    }
    return resources | {name: amount for name, amount in _extended_resources(hardware, family).items() if amount}


def _extended_resources(hardware: Hardware, family: Family) -> Resources:
    extended: Resources = {
        POD_ENI: hardware.branch_interfaces if family.os == "linux" else 0,
        EFA: hardware.efa,
        NEURON: sum(device.count for device in hardware.neurons),
        NEURON_CORE: sum(device.count * device.cores for device in hardware.neurons),
        PRIVATE_IPV4: max(hardware.addresses - 1, 0) if family.os == "windows" else 0,
    }
    for manufacturer, resource in GPU_RESOURCES.items():
        extended[resource] = sum(gpu.count for gpu in hardware.gpus if gpu.manufacturer == manufacturer)
    return extended


def memory(hardware: Hardware) -> int:
    """The estimate of a node's memory in bytes: 7.5 % less than EC2 reports, and 64 MiB less on Graviton.

    >>> from shared.instance_types.catalog import Hardware
    >>> m5_large = Hardware(name="m5.large", arch="amd64", vcpus=2, memory_mib=8192, interfaces=3, addresses=10)
    >>> memory(m5_large) // MIB
    7577
    """
    mib = hardware.memory_mib - (_ARM_RESERVED_MIB if hardware.arch == "arm64" else 0)
    return (mib + (-mib * VM_OVERHEAD).__floor__()) * MIB


def interface_pods(hardware: Hardware) -> int:
    """The number of pods that get an address: (ENIs) x (IPv4 per ENI - 1) + 2.

    >>> from shared.instance_types.catalog import Hardware
    >>> interface_pods(Hardware(name="m5.large", arch="amd64", vcpus=2, memory_mib=8192, interfaces=3, addresses=10))
    29
    """
    return hardware.interfaces * (hardware.addresses - 1) + 2 if hardware.interfaces else 0


def pods(hardware: Hardware, family: Family, kubelet: Kubelet | None = None) -> int:
    """The number of pods that the kubelet admits: maxPods, else by interfaces, else 110; at most podsPerCore x vCPU."""
    settings = kubelet or Kubelet()
    if settings.max_pods is not None:
        count = settings.max_pods
    else:
        count = interface_pods(hardware) if family.pods_from_interfaces else _DEFAULT_MAX_PODS
    if settings.pods_per_core and family.pods_per_core:
        count = min(count, settings.pods_per_core * hardware.vcpus)
    return count


def ephemeral_storage(
    hardware: Hardware, family: Family, block_devices: Sequence[BlockDeviceMapping] = (), *, raid: bool = False
) -> int:
    """Bytes of ephemeral storage: the striped instance store, else the root volume, else the family's default."""
    if raid and hardware.nvme_gb:
        return hardware.nvme_gb * 10**9
    root_size = _root_volume_size(family, block_devices)
    if root_size is not None:
        return parse_quantity(EPHEMERAL_STORAGE, root_size)
    defaults = [v.size_gib * GIB for v in family.volumes if v.device == family.ephemeral_device]
    return defaults[0] if defaults else _DEFAULT_VOLUME_SIZE


def _root_volume_size(family: Family, block_devices: Sequence[BlockDeviceMapping]) -> str | int | float | None:
    """The size of the volume with ``rootVolume``, else of the family's device, else (Custom only) of the last one."""
    sizes = [(d, d.ebs.volume_size) for d in block_devices if d.ebs is not None and d.ebs.volume_size is not None]
    candidates = [size for device, size in sizes if device.root_volume]
    if not candidates:
        candidates = [size for device, size in sizes if device.device_name == family.ephemeral_device]
    if not candidates and family.name == CUSTOM:
        candidates = [size for _, size in sizes[-1:]]
    return candidates[0] if candidates else None


def overhead(hardware: Hardware, family: Family, kubelet: Kubelet | None, capacity: Mapping[str, int]) -> Resources:
    """The part of the capacity that pods don't get: kube-reserved, system-reserved and hard eviction thresholds.

    Raises:
        QuantityError: a kubelet setting has an invalid quantity.
    """
    settings = kubelet or Kubelet()
    pod_count = interface_pods(hardware) if family.reserves_by_interfaces else capacity[PODS]
    kube_reserved: Resources = {
        CPU: reserved_cpu(capacity[CPU]),
        MEMORY: (11 * pod_count + 255) * MIB,
        EPHEMERAL_STORAGE: _RESERVED_STORAGE,
    } | parse_resources(settings.kube_reserved)
    return add(kube_reserved, parse_resources(settings.system_reserved), eviction(settings, family, capacity))


def reserved_cpu(milli: int) -> int:
    """Reserved milli-cores: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.

    >>> reserved_cpu(2000), reserved_cpu(16_000)
    (70, 110)
    """
    return sum((min(milli, end) - start) * share // 10_000 for start, end, share in _CPU_RESERVED if milli > start)


def eviction(kubelet: Kubelet, family: Family, capacity: Mapping[str, int]) -> Resources:
    """The thresholds below which the kubelet evicts; 100 % turns a signal off."""
    default: Resources = {MEMORY: _EVICTION_MEMORY, EPHEMERAL_STORAGE: -(-capacity[EPHEMERAL_STORAGE] // 10)}
    signals = [kubelet.eviction_hard, *([kubelet.eviction_soft] if family.soft_eviction else [])]
    thresholds = [
        {
            resource: _threshold(resource, signal[name], capacity[resource])
            for name, resource in (("memory.available", MEMORY), ("nodefs.available", EPHEMERAL_STORAGE))
            if name in signal
        }
        for signal in signals
    ]
    return default | largest(*thresholds)


def _threshold(resource: str, text: str, amount: int) -> int:
    if not text.endswith("%"):
        return parse_quantity(resource, text)
    percent = Fraction(parse_quantity(CPU, text[:-1]), 1000)
    return 0 if percent == 100 else -((-amount * percent / 100).__floor__())  # noqa: PLR2004 (percent)


def discovered_memory(nodes: Iterable[Node], claims: Iterable[NodeClaim], node_class: EC2NodeClass) -> dict[str, int]:
    """By instance type: the memory capacity in bytes that registered nodes of the class reported.

    Only nodes with one of the class's current AMIs count, because another kernel reserves another amount.
    """
    amis = {ami.id for ami in node_class.status.amis}
    provider_ids = {c.status.provider_id for c in claims if c.status.provider_id and c.status.image_id in amis}
    smallest: dict[str, int] = {}
    for node in nodes:
        instance_type = node.metadata.labels.get(labels.INSTANCE_TYPE, "")
        if node.spec.provider_id not in provider_ids or not instance_type or not _is_registered(node, node_class):
            continue
        reported = _reported(node)
        if reported > 0:
            smallest[instance_type] = min(reported, smallest.get(instance_type, reported))
    return smallest


def _is_registered(node: Node, node_class: EC2NodeClass) -> bool:
    node_labels = node.metadata.labels
    return node_labels.get(labels.REGISTERED) == "true" and node_labels.get(labels.NODECLASS) == node_class.name


def _reported(node: Node) -> int:
    """Bytes; 0 if the kubelet has reported nothing yet, or an invalid quantity."""
    try:
        return parse_quantity(MEMORY, node.status.capacity.get(MEMORY, 0))
    except QuantityError:
        return 0


def attachable_volumes(hardware: Hardware, *, own_volumes: int) -> int | None:
    """How many volumes pods may attach; None if EC2 doesn't say. ``own_volumes``: those that the node comes with."""
    if not hardware.ebs_attachments:
        return None
    interfaces = min(_FURTHER_INTERFACES, max(0, hardware.interfaces - 1)) if hardware.shared_attachments else 0
    return max(0, hardware.ebs_attachments - interfaces - max(1, own_volumes))
