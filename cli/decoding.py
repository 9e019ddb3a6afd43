"""Decodes objects of files. An object that can't be decoded is reported by itself; the others are used."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cli.errors import UsageError
from shared.api.capacity_buffer import SCALABLE_KINDS, CapacityBuffer, Scalable, StoredPodTemplate
from shared.api.decode import DecodeError, decode, ref_of
from shared.api.kubernetes import Pod
from shared.api.pod_group import StoredPodGroup
from shared.api.provisioning_request import ProvisioningRequest
from shared.cluster.provisioning_requests import wanted_room
from shared.scheduling.decision import UnschedulableReason
from shared.snapshot import BufferObjects, InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from shared.api.pod_group import PodGroup
    from shared.api.pod_references import PodGroupKey
    from shared.cluster.provisioning_requests import RequestedRoom, Templates

T = TypeVar("T")
Raw = bytes | dict[str, Any]


def decode_objects(raw_objects: Iterable[Raw], kind: type[T], invalid: list[InvalidObject]) -> tuple[T, ...]:
    """The objects that can be decoded; the others are appended to ``invalid``."""
    objects: list[T] = []
    for raw in raw_objects:
        try:
            objects.append(decode(raw, kind))
        except DecodeError as error:
            invalid.append(InvalidObject(ref=ref_of(as_mapping(raw)), problems=(error.problem,)))
    return tuple(objects)


def decode_pods(raw_pods: Iterable[Raw], refused: dict[str, UnschedulableReason]) -> tuple[Pod, ...]:
    """The pods that can be decoded; the others are added to ``refused``, by namespace/name."""
    invalid: list[InvalidObject] = []
    pods = decode_objects(raw_pods, Pod, invalid)
    for pod in invalid:
        key = f"{pod.ref.namespace or 'default'}/{pod.ref.name}"
        refused[key] = UnschedulableReason(message=f"the pod can't be read: {pod.problems[0]}")
    return pods


def pod_templates(of_kind: Callable[[str], Iterable[Raw]], invalid: list[InvalidObject]) -> Templates:
    """The PodTemplates of the objects that ``of_kind`` gives by kind; they are decoded when the first is asked for."""

    @cache
    def by_name() -> dict[tuple[str, str], StoredPodTemplate]:
        templates = decode_objects(of_kind("PodTemplate"), StoredPodTemplate, invalid)
        return {(t.metadata.namespace or "default", t.name): t for t in templates}

    return lambda namespace, name: by_name().get((namespace or "default", name))


def decode_buffers(
    of_kind: Callable[[str], Iterable[Raw]], templates: Templates, invalid: list[InvalidObject]
) -> tuple[BufferObjects, ...]:
    """The CapacityBuffers that Tenon provides, with what they name, of the objects that ``of_kind`` gives by kind."""
    buffers = [b for b in decode_objects(of_kind("CapacityBuffer"), CapacityBuffer, invalid) if b.is_active]
    if not buffers:
        return ()
    workloads = {
        (kind, w.metadata.namespace or "default", w.name): w
        for kind in SCALABLE_KINDS
        for w in decode_objects(of_kind(kind), Scalable, invalid)
    }
    objects = []
    for buffer in buffers:
        namespace = buffer.metadata.namespace or "default"
        template, scalable = buffer.spec.pod_template_ref, buffer.spec.scalable_ref
        objects.append(
            BufferObjects(
                buffer=buffer,
                pod_template=templates(namespace, template.name) if template else None,
                workload=workloads.get((scalable.kind, namespace, scalable.name)) if scalable else None,
            )
        )
    return tuple(objects)


def decode_pod_groups(
    of_kind: Callable[[str], Iterable[Raw]], invalid: list[InvalidObject]
) -> dict[PodGroupKey, PodGroup]:
    """The PodGroups of all three kinds."""
    groups = [stored.pod_group() for stored in decode_objects(of_kind("PodGroup"), StoredPodGroup, invalid)]
    return {group.key: group for group in groups}


def decode_requests(
    of_kind: Callable[[str], Iterable[Raw]],
    templates: Templates,
    pods: Iterable[Pod],
    invalid: list[InvalidObject],
    *,
    now: datetime,
) -> RequestedRoom:
    """What the ProvisioningRequests want that nodes are launched or kept for."""
    requests = decode_objects(of_kind("ProvisioningRequest"), ProvisioningRequest, invalid)
    return wanted_room(templates, (request for request in requests if request.is_open), pods, now=now)


def as_mapping(raw: Raw) -> dict[str, Any]:
    """The object as JSON values; empty if it is not a mapping.

    Raises:
        UsageError: a number in it is too large.
    """
    try:
        value = raw if isinstance(raw, dict) else msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise UsageError(f"an object can't be read: {error}") from error
    return value if isinstance(value, dict) else {}
