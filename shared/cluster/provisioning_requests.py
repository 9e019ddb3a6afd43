"""Reads ProvisioningRequests, with the PodTemplates that they name, as room that is wanted: like CapacityBuffers.

A request is one buffer for each of its pod sets, whose chunks are those of its pods that don't exist yet, and the
PodGroup of all these chunks.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from shared.api.capacity_buffer import CapacityBuffer, CapacityBufferSpec, LocalObjectRef, StoredPodTemplate
from shared.api.meta import ObjectMeta, is_true
from shared.api.pod_group import PodGroup
from shared.api.pod_references import PROVISIONING_REQUEST, PodGroupKey
from shared.api.provisioning_request import PROVISIONED, consumed_request
from shared.base.struct import Struct
from shared.cluster import listing, resources
from shared.cluster.errors import NotFoundError
from shared.snapshot import BufferObjects, InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.api.provisioning_request import ProvisioningRequest
    from shared.cluster.client import Client

    Templates = Callable[[str, str], StoredPodTemplate | None]
    """PodTemplates by namespace and name."""

MOST = 100
"""As many requests are looked at in a decision, the oldest; the others wait."""


class RequestedRoom(Struct, kw_only=True):
    """The pod sets of all requests as buffers, and their PodGroups."""

    buffers: tuple[BufferObjects, ...] = ()
    pod_groups: Mapping[PodGroupKey, PodGroup] = {}


def wanted_room(
    templates: Templates, requests: Iterable[ProvisioningRequest], pods: Iterable[Pod], *, now: datetime
) -> RequestedRoom:
    """What open requests want: the pods of their pod sets that aren't among the cluster's ``pods`` yet."""
    oldest = sorted(requests, key=lambda r: (r.metadata.creation_timestamp or now, r.ref))[:MOST]
    consumed = Counter(
        (pod.metadata.namespace, name)
        for pod in pods
        if (name := consumed_request(pod.metadata.annotations)) and pod.status.phase != "Failed"
    )
    buffers: list[BufferObjects] = []
    groups: dict[PodGroupKey, PodGroup] = {}
    for request in oldest:
        own = _buffers(templates, request, 0 if request.is_expired(now) else None, consumed)
        buffers += own
        waiting = sum(objects.buffer.spec.replicas or 0 for objects in own)
        if waiting:
            key = PodGroupKey(PROVISIONING_REQUEST, request.metadata.namespace or "default", request.metadata.name)
            # What is booked may be used pod by pod.
            minimum = 1 if is_true(request.status.conditions, PROVISIONED) else waiting
            groups[key] = PodGroup(key=key, minimum=minimum, created=request.metadata.creation_timestamp)
    return RequestedRoom(buffers=tuple(buffers), pod_groups=groups)


def _buffers(
    templates: Templates, request: ProvisioningRequest, chunks: int | None, consumed: Counter[tuple[str, str]]
) -> list[BufferObjects]:
    """The request's pod sets as buffers, each with so many ``chunks``, or its count less the pods that exist."""
    exist = consumed[request.metadata.namespace, request.metadata.name]
    buffers = []
    for number, pod_set in enumerate(request.spec.pod_sets):
        taken = min(exist, pod_set.count)
        exist -= taken
        metadata = ObjectMeta(
            name=request.metadata.name,
            namespace=request.metadata.namespace,
            uid=request.metadata.uid,
            generation=request.metadata.generation,
            creation_timestamp=request.metadata.creation_timestamp,
        )
        template = pod_set.pod_template_ref.name
        spec = CapacityBufferSpec(
            pod_template_ref=LocalObjectRef(name=template),
            replicas=max(0, pod_set.count - taken) if chunks is None else chunks,
        )
        buffers.append(
            BufferObjects(
                buffer=CapacityBuffer(metadata=metadata, spec=spec, kind=request.kind, api_version=request.api_version),
                pod_template=templates(request.metadata.namespace, template),
                request=request,
                pod_set=number,
            )
        )
    return buffers


def templates_of(client: Client) -> Templates:
    """The cluster's PodTemplates by name; None if there is no valid one. A queue may create it after the request.

    Calling it raises ApiError if the API server can't be read.
    """

    @cache
    def template(namespace: str, name: str) -> StoredPodTemplate | None:
        try:
            stored = client.get(resources.POD_TEMPLATES.path(name, namespace=namespace)) if name else None
        except NotFoundError:
            return None
        decoded = listing.decode(stored, resources.POD_TEMPLATES, StoredPodTemplate) if stored is not None else None
        return None if isinstance(decoded, InvalidObject) else decoded

    return template
