"""Extended resources that drivers of dynamic resource allocation provide: DeviceClasses and ResourceSlices.

From Kubernetes 1.36 on, a DeviceClass may say that its devices serve an extended resource, such as nvidia.com/gpu
(``spec.extendedResourceName``, KEP-5004). kube-scheduler then allocates them from ResourceSlices, and the kubelet never
reports the resource. As in ``shared.api.kubernetes``, field names and defaults are the API's (resource.k8s.io/v1).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shared.api.labels import DYNAMIC_RESOURCES
from shared.api.meta import ApiStruct, ObjectMeta
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Before the class's name: the extended resource that every class provides."""


class DeviceClassSpec(ApiStruct):
    """Which extended resource the devices of a class serve."""

    extended_resource_name: str = ""


class DeviceClass(ApiStruct):
    """A class of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class ResourcePool(ApiStruct):
    """The pool of a slice: complete once it has ``resource_slice_count`` slices of the same, highest generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiStruct):
    """Devices that a driver publishes for a node."""

    driver: str = ""
    node_name: str = ""
    pool: ResourcePool = ResourcePool()


class ResourceSlice(ApiStruct):
    """A part of a pool of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


def provides(classes: Iterable[DeviceClass], resource: str) -> bool:
    """Whether one of the classes provides the extended resource.

    >>> provides([DeviceClass(metadata=ObjectMeta(name="gpu"))], "deviceclass.resource.kubernetes.io/gpu")
    True
    """
    return any(
        resource == c.spec.extended_resource_name or device_class_of(resource) == c.metadata.name for c in classes
    )


def device_class_of(resource: str) -> str:
    """The DeviceClass whose name the extended resource has; "" if it has none.

    >>> device_class_of("deviceclass.resource.kubernetes.io/gpu")
    'gpu'
    """
    return resource.removeprefix(_IMPLICIT) if resource.startswith(_IMPLICIT) else ""


def has_complete_pool(slices: Iterable[ResourceSlice]) -> bool:
    """Whether one of the pools is complete, so that kube-scheduler allocates its devices."""
    pools = Counter((s.spec.driver, s.spec.pool) for s in slices)
    newest: dict[tuple[str, str], int] = {}
    for driver, pool in pools:
        newest[driver, pool.name] = max(pool.generation, newest.get((driver, pool.name), 0))
    return any(
        pool.generation == newest[driver, pool.name] and count == pool.resource_slice_count
        for (driver, pool), count in pools.items()
    )


def dynamic_resources(claim: NodeClaim) -> frozenset[str]:
    """The extended resources that drivers provide on the NodeClaim's node."""
    text = claim.metadata.annotations.get(DYNAMIC_RESOURCES, "")
    return frozenset(text.split(",")) if text else frozenset()


def with_dynamic_resources(node: Node, claim: NodeClaim) -> Node:
    """The NodeClaim's node with what its drivers provide, as the NodeClaim's status has it."""
    provided, planned = dynamic_resources(claim), claim.status
    if not provided:
        return node
    status = with_fields(
        node.status,
        capacity={**node.status.capacity, **{k: v for k, v in planned.capacity.items() if k in provided}},
        allocatable={**node.status.allocatable, **{k: v for k, v in planned.allocatable.items() if k in provided}},
    )
    return with_fields(node, status=status)
