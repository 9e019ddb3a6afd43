"""How big a node says it is: the machine, less what the hypervisor keeps, less what the kubelet keeps back.

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


def capacity(machine: Machine, settings: KubeletConfiguration, *, memory_lost: Fraction) -> Resources:
    """What the node has. ``memory_lost`` is the share that hypervisor and kernel keep; EC2 keeps up to 7.5 %.

    Devices are not in it: their plugins report them once they run.
    """
    mib = machine.memory_mib - (_ARM_RESERVED_MIB if machine.architecture == "arm64" else 0)
    disk = machine.nvme_gib if settings.raid0 and machine.nvme_gib else machine.root_gib
    return {
        CPU: machine.vcpus * 1000,
        MEMORY: int(mib * 1024 * (1 - memory_lost)) * 1024,
        EPHEMERAL_STORAGE: disk * _GIB,
        PODS: max_pods(machine, settings),
    }


def max_pods(machine: Machine, settings: KubeletConfiguration) -> int:
    """The pods the kubelet takes: its setting or what the addresses are for, at most so many a core."""
    pods = machine.max_pods if settings.max_pods is None else settings.max_pods
    if settings.pods_per_core:
        pods = min(pods, settings.pods_per_core * machine.vcpus)
    return pods


def allocatable(size: Resources, machine: Machine, settings: KubeletConfiguration) -> Resources:
    """What of the capacity pods may use: less kube-reserved, system-reserved and the hard eviction thresholds.

    Raises:
        QuantityError: a reservation is no quantity.
    """
    pods = machine.max_pods if settings.reserves_by_interfaces else size[PODS]
    kube = {CPU: _reserved_cpu(machine.vcpus), MEMORY: (11 * pods + 255) * _MIB}
    kube[EPHEMERAL_STORAGE] = parse_quantity(EPHEMERAL_STORAGE, _EPHEMERAL_RESERVED)
    kube |= parse_resources(settings.kube_reserved)
    system = parse_resources(settings.system_reserved)
    hard = {**_DEFAULT_EVICTION, **settings.eviction_hard}
    evicted = {
        MEMORY: _threshold(hard["memory.available"], size[MEMORY]),
        EPHEMERAL_STORAGE: _threshold(hard["nodefs.available"], size[EPHEMERAL_STORAGE]),
    }
    return {
        name: max(amount - kube.get(name, 0) - system.get(name, 0) - evicted.get(name, 0), 0)
        for name, amount in size.items()
    }


def _reserved_cpu(cores: int) -> int:
    """Milli-cores, rounded down: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the rest."""
    quarters = 240 * min(cores, 1) + 40 * min(max(cores - 1, 0), 1) + 20 * min(max(cores - 2, 0), 2)
    return (quarters + 10 * max(cores - 4, 0)) // 4


def _threshold(text: str, whole: int) -> int:
    if text.endswith("%"):
        share = Fraction(text[:-1]) / 100
        return -(-(whole * share.numerator) // share.denominator)
    return parse_quantity(MEMORY, text)
