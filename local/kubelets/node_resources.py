"""A node's capacity and allocatable: the machine, less what the hypervisor keeps, less the kubelet's reservations.

Source of the reservations: docs/facts/karpenter.md, section 4, which is EKS's own defaults.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from shared.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources, parse_quantity, parse_resources

if TYPE_CHECKING:
    from local.kubelets.kubelet_configuration import KubeletConfiguration
    from local.kubelets.machine import Machine

_MIB = 2**20
_GIB = 2**30
_ARM_RESERVED_MIB = 64
_DEFAULT_EVICTION = {"memory.available": "100Mi", "nodefs.available": "10%"}
_EPHEMERAL_RESERVED = "1Gi"


def capacity(machine: Machine, configuration: KubeletConfiguration, *, memory_overhead: Fraction) -> Resources:
    """The node's capacity without devices, which their plugins report later.

    ``memory_overhead`` is the share that hypervisor and kernel keep; on EC2 up to 7.5 %.
    """
    mib = machine.memory_mib - (_ARM_RESERVED_MIB if machine.architecture == "arm64" else 0)
    disk = machine.nvme_gib if configuration.raid0 and machine.nvme_gib else machine.root_gib
    return {
        CPU: machine.vcpus * 1000,
        MEMORY: int(mib * 1024 * (1 - memory_overhead)) * 1024,
        EPHEMERAL_STORAGE: disk * _GIB,
        PODS: max_pods(machine, configuration),
    }


def max_pods(machine: Machine, configuration: KubeletConfiguration) -> int:
    """The kubelet's pod limit: its setting, else what the addresses allow; at most podsPerCore."""
    pods = machine.max_pods if configuration.max_pods is None else configuration.max_pods
    if configuration.pods_per_core:
        pods = min(pods, configuration.pods_per_core * machine.vcpus)
    return pods


def allocatable(node_capacity: Resources, machine: Machine, configuration: KubeletConfiguration) -> Resources:
    """The capacity less kube-reserved, system-reserved and the hard eviction thresholds.

    Raises:
        QuantityError: a reservation is not a quantity.
    """
    pods = machine.max_pods if configuration.reserves_by_interfaces else node_capacity[PODS]
    kube = {CPU: _reserved_cpu(machine.vcpus), MEMORY: (11 * pods + 255) * _MIB}
    kube[EPHEMERAL_STORAGE] = parse_quantity(EPHEMERAL_STORAGE, _EPHEMERAL_RESERVED)
    kube |= parse_resources(configuration.kube_reserved)
    system = parse_resources(configuration.system_reserved)
    thresholds = {**_DEFAULT_EVICTION, **configuration.eviction_hard}
    eviction = {
        MEMORY: _threshold(thresholds["memory.available"], node_capacity[MEMORY]),
        EPHEMERAL_STORAGE: _threshold(thresholds["nodefs.available"], node_capacity[EPHEMERAL_STORAGE]),
    }
    return {
        name: max(amount - kube.get(name, 0) - system.get(name, 0) - eviction.get(name, 0), 0)
        for name, amount in node_capacity.items()
    }


def _reserved_cpu(cores: int) -> int:
    """Milli-cores, rounded down: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the rest."""
    quarters = 240 * min(cores, 1) + 40 * min(max(cores - 1, 0), 1) + 20 * min(max(cores - 2, 0), 2)
    return (quarters + 10 * max(cores - 4, 0)) // 4


def _threshold(text: str, total: int) -> int:
    if text.endswith("%"):
        share = Fraction(text[:-1]) / 100
        return -(-(total * share.numerator) // share.denominator)
    return parse_quantity(MEMORY, text)
