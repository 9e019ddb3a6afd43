"""The DaemonSets that new nodes keep no room for, and why: for people, as nothing else shows it.

A device that no instance type of a NodePool has may come from a device plugin that Tenon doesn't know; a NodeOverlay
can declare it. Until then the DaemonSet's pods are expected on none of the NodePool's nodes, or the NodePool could
launch nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.rules.requirements import RequirementError
from shared.scheduling.state.daemonsets import daemon_set_pods, unreadable_daemon_sets
from shared.scheduling.state.instance_type_arrays import allowed_in, instance_type_arrays
from shared.scheduling.state.launch_options import template_requirements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.meta import ObjectRef
    from shared.api.nodepool import NodePool
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.state.daemonsets import DaemonSetPod
    from shared.snapshot import Snapshot

_CONSEQUENCE = "its pods are left out of the room that new nodes keep for DaemonSets"


def ignored_daemon_sets(
    snapshot: Snapshot, types: Mapping[str, tuple[InstanceType, ...]]
) -> tuple[tuple[ObjectRef, str], ...]:
    """The DaemonSets that are ignored, each with a sentence for its event.

    ``types`` are the instance types of the NodePools by name. A DaemonSet that runs on no node of a NodePool anyway,
    by its affinity or tolerations, isn't ignored there.
    """
    ignored = [(ref, f"{why}; {_CONSEQUENCE}") for ref, why in unreadable_daemon_sets(snapshot).items()]
    for pod in daemon_set_pods(snapshot):
        lacking = {device: _lacking(pod, device, snapshot, types) for device in sorted(pod.devices)}
        whys = [
            f"{device} is offered by no instance type of NodePool{'s' if len(pools) > 1 else ''} {', '.join(pools)}"
            for device, pools in lacking.items()
            if pools
        ]
        if whys:
            ignored.append((pod.ref, f"{' and '.join(whys)}; {_CONSEQUENCE}"))
    return tuple(ignored)


def _lacking(
    pod: DaemonSetPod, device: str, snapshot: Snapshot, types: Mapping[str, tuple[InstanceType, ...]]
) -> list[str]:
    """The NodePools whose nodes would run the pod, if one of their instance types had the device."""
    pools = (pool for pool in snapshot.node_pools if pool.spec.replicas is None)
    return sorted(pool.name for pool in pools if _lacks(pod, device, pool, types.get(pool.name, ())))


def _lacks(pod: DaemonSetPod, device: str, pool: NodePool, types: tuple[InstanceType, ...]) -> bool:
    if not types:
        return False
    arrays = instance_type_arrays(types)
    try:
        requirements = template_requirements(pool)
    except RequirementError:
        return False
    allowed_types, offerings = allowed_in(arrays, requirements)
    runs = pod.runs_on_types(arrays, requirements, pool.spec.template.spec.taints, offerings)
    if runs is None or not (runs & allowed_types).any():
        return False
    having = arrays.allocatable[:, arrays.resources.index(device)] > 0 if device in arrays.resources else False
    return not (runs & allowed_types & having).any()
