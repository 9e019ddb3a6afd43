"""Devices of DeviceClasses that serve an extended resource, on nodes whose kubelets don't report it.

Source: ``pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go`` (on since 1.36). Every device
of a node serves every class here: selectors of classes aren't evaluated, and no ResourceClaims are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.kubernetes.scheduler.cache import Cache

KINDS = (kinds.DEVICE_CLASSES, kinds.RESOURCE_SLICES)
PLURALS = frozenset(kind.plural for kind in KINDS)
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Before the class's name: the extended resource that every class serves."""


class DynamicDevices:
    """The DeviceClasses and ResourceSlices of a cluster, whose devices the nodes of the cache get."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._resources: dict[str, tuple[str, ...]] = {}
        """By DeviceClass, the extended resources that it serves."""
        self._slices: dict[str, tuple[str, int]] = {}
        """By ResourceSlice, its node and how many devices it has."""

    def update(self, plural: str, obj: Obj, *, deleted: bool) -> None:
        """Take in an object of one of the two kinds."""
        name, spec = obj["metadata"]["name"], obj.get("spec") or {}
        if plural == kinds.DEVICE_CLASSES.plural:
            served = tuple(filter(None, (spec.get("extendedResourceName"), _IMPLICIT + name)))
            self._resources[name] = () if deleted else served
        else:
            self._slices[name] = ("", 0) if deleted else (spec.get("nodeName") or "", len(spec.get("devices") or ()))
        counts: dict[str, int] = {}
        for node, count in self._slices.values():
            counts[node] = counts.get(node, 0) + count
        resources = {resource for of_class in self._resources.values() for resource in of_class}
        self._cache.set_devices({node: dict.fromkeys(resources, count) for node, count in counts.items() if node})
