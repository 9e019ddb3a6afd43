"""Reads the PodTemplates and workloads that CapacityBuffers name.

They are read by name, because few workloads have a buffer: that needs no right to list them, and no memory for the
others.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from shared.api.capacity_buffer import SCALABLE_KINDS, Scalable, StoredPodTemplate
from shared.cluster import listing, resources
from shared.cluster.errors import NotFoundError
from shared.snapshot import BufferObjects, InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.api.capacity_buffer import CapacityBuffer
    from shared.cluster.client import Client
    from shared.cluster.resources import Resource

T = TypeVar("T")


def with_references(
    client: Client, buffers: Iterable[CapacityBuffer]
) -> tuple[tuple[BufferObjects, ...], tuple[InvalidObject, ...]]:
    """The buffers that Tenon provides with what they name, and the PodTemplates and workloads that can't be decoded.

    A buffer that names such an object has none.
    """
    invalid: list[InvalidObject] = []

    @cache
    def read(resource: Resource, namespace: str, name: str, kind: type[T]) -> T | None:
        try:
            decoded = listing.decode(client.get(resource.path(name, namespace=namespace)), resource, kind)
        except NotFoundError:
            return None
        if isinstance(decoded, InvalidObject):
            invalid.append(decoded)
            return None
        return decoded

    return tuple(_with_reference(b, read) for b in buffers if b.is_active), tuple(invalid)


def _with_reference(buffer: CapacityBuffer, read: Callable[..., Any]) -> BufferObjects:
    namespace, spec = buffer.metadata.namespace, buffer.spec
    if spec.pod_template_ref is not None and spec.pod_template_ref.name:
        name = spec.pod_template_ref.name
        template: StoredPodTemplate | None = read(resources.POD_TEMPLATES, namespace, name, StoredPodTemplate)
        return BufferObjects(buffer=buffer, pod_template=template)
    scalable = spec.scalable_ref
    if scalable is None or scalable.kind not in SCALABLE_KINDS or not scalable.name:
        return BufferObjects(buffer=buffer)
    workload: Scalable | None = read(resources.for_kind("apps/v1", scalable.kind), namespace, scalable.name, Scalable)
    return BufferObjects(buffer=buffer, workload=workload)
