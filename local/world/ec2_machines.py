"""The instances of the world's EC2 as the machines that kubelets run on."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from local.kubelets.machine import Machine
from shared.instance_types import hardware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.aws.ec2_instances import Ec2Instances

_DEFAULT_ROOT_GIB = 20
_ATTACHMENTS = 28
"""EBS volumes and interfaces that share a Nitro instance's slots; the root volume takes one."""
_NEURON, _NEURON_CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
_BRANCH_INTERFACES = "vpc.amazonaws.com/pod-eni"
_FABRIC = "vpc.amazonaws.com/efa"
_GPUS = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}


class Ec2Machines:
    """What runs, in order of launch. Each instance is described once; the answer is as cheap as a list."""

    def __init__(self, instances: Ec2Instances) -> None:
        self._instances = instances
        self._known: dict[str, Machine] = {}

    def running(self) -> Sequence[Machine]:
        """The instances in state running that have not begun to stop."""
        return [self._machine(instance) for instance in self._instances.running.values()]

    def _machine(self, instance: Any) -> Machine:  # noqa: ANN401 - moto's instance
        if instance.id not in self._known:
            self._known[instance.id] = describe(instance)
        return self._known[instance.id]


def describe(instance: Any) -> Machine:  # noqa: ANN401 - moto's instance
    """One instance, its size from what DescribeInstanceTypes says of its type."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES  # noqa: PLC0415 - large: only when something runs

    facts: dict[str, Any] = INSTANCE_TYPES[instance.instance_type]
    network = facts["NetworkInfo"]
    card = next(c for c in network["NetworkCards"] if c["NetworkCardIndex"] == network["DefaultNetworkCardIndex"])
    interfaces, addresses = int(card["MaximumNetworkInterfaces"]), int(network["Ipv4AddressesPerInterface"])
    root = instance.block_device_mapping.get(instance.root_device_name)
    subnet = instance.ec2_backend.get_subnet(instance.subnet_id)
    return Machine(
        instance_id=instance.id,
        instance_type=instance.instance_type,
        zone=instance.availability_zone,
        zone_id=str(subnet.availability_zone_id or ""),
        image_id=instance.image_id,
        user_data=instance.user_data.decode() if instance.user_data is not None else "",
        private_dns_name=instance.private_dns_name,
        private_ip=instance.private_ip,
        launched_at=instance.launch_time.replace(tzinfo=UTC),
        vcpus=int(facts["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(facts["MemoryInfo"]["SizeInMiB"]),
        architecture="arm64" if instance.architecture == "arm64" else "amd64",
        # One address of each interface is the interface's own; two pods need none (kube-proxy, the network plugin).
        max_pods=interfaces * (addresses - 1) + 2,
        spot=instance.lifecycle == "spot",
        root_gib=_DEFAULT_ROOT_GIB if root is None else _size(instance, root),
        nvme_gib=int(facts.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)),
        max_volumes=max(1, _ATTACHMENTS - interfaces - 1),
        devices=_devices(facts, fabric=getattr(instance, "efa_interfaces", 0)),
    )


def _size(instance: Any, device: Any) -> int:  # noqa: ANN401 - moto's
    return int(instance.ec2_backend.volumes[device.volume_id].size)


def _devices(facts: dict[str, Any], *, fabric: int) -> dict[str, int]:
    """What the device plugins report. ``fabric``: how many Elastic Fabric Adapters the instance was launched with."""
    devices = {
        _BRANCH_INTERFACES: hardware.branch_interfaces(facts["InstanceType"]),
        _FABRIC: fabric,
        _NEURON: 0,
        _NEURON_CORE: 0,
    }
    for gpu in facts.get("GpuInfo", {}).get("Gpus", []):
        name = _GPUS.get(str(gpu.get("Manufacturer", "")))
        if name:
            devices[name] = devices.get(name, 0) + int(gpu.get("Count", 0))
    for chip in facts.get("NeuronInfo", {}).get("NeuronDevices", []):
        count = int(chip.get("Count", 0))
        devices[_NEURON] += count
        devices[_NEURON_CORE] += count * int(chip.get("CoreInfo", {}).get("Count", 0))
    return {name: amount for name, amount in devices.items() if amount}
