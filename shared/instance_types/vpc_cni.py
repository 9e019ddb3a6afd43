"""How many pods the VPC CNI has addresses for, where its own DaemonSet doesn't have the default settings.

The environment of kube-system/aws-node decides, as it does on the nodes: a setting that users would have to repeat in
each node class is one that differs one day. Source of the numbers: max-pods-calculator.sh of the EKS optimized AMIs,
and Amazon EKS User Guide, "Assign more IP addresses to nodes with prefixes".

Imported only in clusters that have this DaemonSet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ami_family.families import CUSTOM
from shared.api import labels as names
from shared.api.kubelet import MAX_PODS
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from shared.ami_family.families import Family
    from shared.api.daemon_set import DaemonSet
    from shared.api.nodeclass import EC2NodeClass
    from shared.instance_types.catalog import Hardware

_CONTAINER = "aws-node"
_PREFIXES = "ENABLE_PREFIX_DELEGATION"
_CUSTOM_NETWORK = "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG"
_ADDRESSES_OF_PREFIX = 16
_HOST_NETWORK_PODS = 2
"""The CNI's own and kube-proxy's, which need no address."""
_NITRO = "nitro"
_MANY_CPUS = 30
_MOST_PODS, _MOST_PODS_OF_MANY_CPUS = 110, 250
"""What Kubernetes recommends for a node, and what AWS does for one with more than thirty vCPUs."""


class VpcCni(Struct, kw_only=True):
    """Settings of the VPC CNI that change how many pods get an address.

    ``custom_networking``: pods have none of the first interface. ``prefixes``: an address of an interface holds a
    prefix of sixteen.
    """

    custom_networking: bool = False
    prefixes: bool = False

    def max_pods(self, hardware: Hardware) -> int | None:
        """The pods of a node; None where the image's own number holds.

        >>> from shared.instance_types.catalog import Hardware
        >>> large = Hardware(
        ...     name="c7g.medium", arch="arm64", vcpus=1, memory_mib=2048, interfaces=2, addresses=4, hypervisor="nitro"
        ... )
        >>> VpcCni(prefixes=True).max_pods(large), VpcCni(custom_networking=True).max_pods(large)
        (98, 5)
        """
        prefixes = self.prefixes and hardware.hypervisor == _NITRO
        if not hardware.interfaces or not (prefixes or self.custom_networking):
            return None
        interfaces = hardware.interfaces - int(self.custom_networking)
        addresses = interfaces * (hardware.addresses - 1) * (_ADDRESSES_OF_PREFIX if prefixes else 1)
        most = _MOST_PODS_OF_MANY_CPUS if hardware.vcpus > _MANY_CPUS else _MOST_PODS
        pods = addresses + _HOST_NETWORK_PODS
        return min(pods, most) if prefixes else pods


def read_settings(daemon_sets: Iterable[DaemonSet]) -> VpcCni | None:
    """The settings of the CNI's DaemonSet; None if they are the default, or there is no such container."""
    environment = {
        variable.name: variable.value
        for daemon_set in daemon_sets
        for container in daemon_set.spec.template.spec.containers
        if container.name == _CONTAINER
        for variable in container.env
    }
    custom, prefixes = (environment.get(name, "").lower() == "true" for name in (_CUSTOM_NETWORK, _PREFIXES))
    return VpcCni(custom_networking=custom, prefixes=prefixes) if custom or prefixes else None


def settings_for(cni: VpcCni, node_class: EC2NodeClass, family: Family) -> VpcCni | None:
    """The settings that count for a class's nodes; None where its ``maxPods``, its annotation or its image decides.

    The user data of the family Custom is the user's alone, and Windows has a CNI of its own.
    """
    stated: Mapping[str, Any] = node_class.spec.kubelet or {}
    if stated.get(MAX_PODS) is not None or node_class.metadata.annotations.get(names.PREFIX_DELEGATION) == "false":
        return None
    return cni if family.pods_from_interfaces and family.name != CUSTOM else None
