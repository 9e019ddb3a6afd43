"""The world's EC2 instances as machines for kubelets."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any
from zlib import crc32

from local.aws import amis
from local.kubelets.machine import Machine
from shared.api import labels
from shared.instance_types import hardware

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.aws.backends import MotoObject
    from local.aws.ec2_instances import Ec2Instances

KUBELET_THREADS = 8
MACHINES_PER_THREAD = 512
_DEFAULT_ROOT_GIB = 20
_ATTACHMENTS = 27
"""EBS volumes of a Nitro instance that has one network interface, where EC2 doesn't say."""
_NEURON, _NEURON_CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
_BRANCH_INTERFACES = "vpc.amazonaws.com/pod-eni"
_FABRIC = "vpc.amazonaws.com/efa"
_GPUS = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}


class Ec2Machines:
    """The running instances in order of launch. Each instance is converted once."""

    def __init__(self, instances: Ec2Instances) -> None:
        self._instances = instances
        self._machines: dict[str, Machine] = {}

    def running(self) -> Sequence[Machine]:
        """The instances in state running that have not begun to stop."""
        # A copy: in real time, instances are launched meanwhile.
        return [self._machine(instance) for instance in list(self._instances.running.values())]

    def is_stopped(self, instance_id: str) -> bool:
        """Whether the instance is stopping, stopped or being started again, so that it still exists."""
        return instance_id in self._instances.stopped

    def reboots(self) -> Mapping[str, int]:
        """How often instances were rebooted, by id."""
        # A copy: in real time, instances are rebooted meanwhile.
        return dict(self._instances.reboots)

    def _machine(self, instance: MotoObject) -> Machine:
        if instance.id not in self._machines:
            self._machines[instance.id] = machine_of(instance)
        return self._machines[instance.id]


class MachinesOfCluster:
    """The machines whose instances have a cluster's tag, where several clusters are in one account."""

    def __init__(self, instances: Ec2Instances, cluster: str) -> None:
        self._machines = Ec2Machines(instances)
        self._instances = instances
        self._tag = labels.CLUSTER_TAG.format(cluster=cluster)

    def running(self) -> Sequence[Machine]:
        """As :meth:`Ec2Machines.running`."""
        own = {i.id for i in self._instances.running.values() if self._tag in {tag["key"] for tag in i.get_tags()}}
        return [machine for machine in self._machines.running() if machine.instance_id in own]

    def is_stopped(self, instance_id: str) -> bool:
        """As :meth:`Ec2Machines.is_stopped`."""
        return self._machines.is_stopped(instance_id)

    def reboots(self) -> Mapping[str, int]:
        """As :meth:`Ec2Machines.reboots`."""
        return self._machines.reboots()


class MachinesOfThread:
    """The machines whose kubelets one of several threads runs."""

    def __init__(self, machines: Ec2Machines, thread: int, threads: int) -> None:
        self._machines = machines
        self._thread = thread
        self._threads = threads

    def running(self) -> Sequence[Machine]:
        """The thread's share of the running instances, in order of launch."""
        return [m for m in self._machines.running() if crc32(m.instance_id.encode()) % self._threads == self._thread]

    def is_stopped(self, instance_id: str) -> bool:
        """As :meth:`Ec2Machines.is_stopped`."""
        return self._machines.is_stopped(instance_id)

    def reboots(self) -> Mapping[str, int]:
        """As :meth:`Ec2Machines.reboots`."""
        return self._machines.reboots()


def machine_of(instance: MotoObject) -> Machine:
    """The instance as a machine, with the size of its type in DescribeInstanceTypes."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES  # noqa: PLC0415 - large: only when something runs

    type_info: dict[str, Any] = INSTANCE_TYPES[instance.instance_type]
    network = type_info["NetworkInfo"]
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
        vcpus=int(type_info["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(type_info["MemoryInfo"]["SizeInMiB"]),
        architecture="arm64" if instance.architecture == "arm64" else "amd64",
        # One address of each interface is its own; two host-network pods need none (kube-proxy, the network plugin).
        max_pods=interfaces * (addresses - 1) + 2,
        spot=instance.lifecycle == "spot",
        root_gib=_DEFAULT_ROOT_GIB if root is None else _size(instance, root),
        nvme_gib=int(type_info.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)),
        max_volumes=_max_volumes(type_info, interfaces, len(instance.block_device_mapping)),
        kubernetes_version=_kubernetes_version(instance),
        devices=_devices(type_info, fabric=getattr(instance, "efa_interfaces", 0)),
    )


def _max_volumes(type_info: dict[str, Any], interfaces: int, own_volumes: int) -> int:
    """What the EBS driver writes into the CSINode: EC2's limit less the node's own volumes and its second interface."""
    ebs = type_info.get("EbsInfo", {})
    shared = ebs.get("AttachmentLimitType", "shared") == "shared"
    limit = int(ebs.get("MaximumEbsAttachments", _ATTACHMENTS))
    return max(1, limit - max(1, own_volumes) - (1 if shared and interfaces > 1 else 0))


def _kubernetes_version(instance: MotoObject) -> str:
    image = instance.ec2_backend.amis.get(instance.image_id)
    return amis.kubernetes_version(image.name) if image is not None else ""


def _size(instance: MotoObject, device: MotoObject) -> int:
    return int(instance.ec2_backend.volumes[device.volume_id].size)


def _devices(type_info: dict[str, Any], *, fabric: int) -> dict[str, int]:
    """The devices that plugins report. ``fabric`` is the number of Elastic Fabric Adapters at launch."""
    devices = {
        _BRANCH_INTERFACES: hardware.branch_interfaces(type_info["InstanceType"]),
        _FABRIC: fabric,
        _NEURON: 0,
        _NEURON_CORE: 0,
    }
    for gpu in type_info.get("GpuInfo", {}).get("Gpus", []):
        name = _GPUS.get(str(gpu.get("Manufacturer", "")))
        if name:
            devices[name] = devices.get(name, 0) + int(gpu.get("Count", 0))
    for chip in type_info.get("NeuronInfo", {}).get("NeuronDevices", []):
        count = int(chip.get("Count", 0))
        devices[_NEURON] += count
        devices[_NEURON_CORE] += count * int(chip.get("CoreInfo", {}).get("Count", 0))
    return {name: amount for name, amount in devices.items() if amount}
