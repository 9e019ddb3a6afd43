"""The chunks of CapacityBuffers: how many each buffer has, and the virtual pods that stand for them.

Pods of ProvisioningRequests that don't exist yet are chunks too, all those of a request in one PodGroup.

A chunk is the room of one pod of the buffer's template. Its virtual pod exists only in a decision; its name has a
character that no pod's name can have. What is resolved here follows from the objects alone. The status of a buffer
reports it and is never read, so a decision doesn't wait until the status was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from shared.api import labels as names
from shared.api.capacity_buffer import MAX_CHUNKS
from shared.api.kubernetes import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodTemplate,
)
from shared.api.meta import EventReason, ObjectMeta
from shared.api.pod_references import COSCHEDULING_LABEL, REQUEST_MARK, VOLCANO_ANNOTATIONS, PodSchedulingGroup
from shared.api.pods import spec_requests
from shared.api.quantity import QuantityError, parse_resources
from shared.api.validation.capacity_buffer import validate_capacity_buffer
from shared.base.struct import Struct, with_fields
from shared.scheduling.buffers import demand
from shared.scheduling.rules.limit_ranges import admitted, container_defaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.api.capacity_buffer import CapacityBufferSpec
    from shared.api.kubernetes import Node
    from shared.api.provisioning_request import ProvisioningRequest
    from shared.api.quantity import Resources
    from shared.scheduling.buffers.demand import Demand
    from shared.snapshot import BufferObjects, Snapshot

T = TypeVar("T")

SEPARATOR = "#"
"""Between the name of a buffer and the number of a chunk, in the name of its virtual pod."""

RESOLVED = "Resolved"
POD_TEMPLATE_NOT_FOUND = EventReason("PodTemplateNotFound")
SCALABLE_REF_NOT_FOUND = EventReason("ScalableRefNotFound")
RESOLUTION_FAILED = EventReason("ResolutionFailed")


class ResolvedBuffer(Struct, kw_only=True, eq=False):
    """The number of a buffer's chunks and their template; ``reason`` is upstream's, ``message`` a sentence for users.

    Without a template there are no chunks. ``most`` is the spec's number, ``demands`` what annotations want of it.
    """

    objects: BufferObjects
    chunks: int = 0
    most: int = 0
    demands: tuple[Demand, ...] = ()
    template: PodTemplate | None = None
    reason: str = RESOLVED
    message: str = ""

    def pods(self) -> Iterator[Pod]:
        """The virtual pods of the chunks."""
        if self.template is None:
            return
        key, template = self.objects.key, self.template
        namespace, _, name = key.partition("/")
        for number in range(self.chunks):
            metadata = ObjectMeta(
                name=f"{name}{SEPARATOR}{number}",
                namespace=namespace,
                labels=template.metadata.labels,
                annotations=template.metadata.annotations,
            )
            yield Pod(metadata=metadata, spec=template.spec)


def buffer_of(chunk: str) -> str:
    """The buffer of a chunk's key, as ``BufferObjects.key``."""
    return chunk.partition(SEPARATOR)[0]


def resolved_buffers(snapshot: Snapshot) -> tuple[ResolvedBuffer, ...]:
    """The buffers that Tenon provides, by key."""

    def resolve_all() -> tuple[ResolvedBuffer, ...]:
        ordered = sorted(snapshot.capacity_buffers, key=lambda objects: objects.key)
        return tuple(resolve(objects, snapshot) for objects in ordered)

    return snapshot.derive("resolved_buffers", resolve_all)


def chunk_pods(snapshot: Snapshot) -> Mapping[str, Pod]:
    """The virtual pods of all buffers, by key."""
    return snapshot.derive(
        "chunk_pods",
        lambda: {pod.key: pod for buffer in resolved_buffers(snapshot) for pod in buffer.pods()},
    )


def resolve(objects: BufferObjects, snapshot: Snapshot) -> ResolvedBuffer:
    """The buffer's chunks. Containers that state no requests get the defaults of the namespace's LimitRanges."""
    buffer = objects.buffer
    problems = tuple(validate_capacity_buffer(buffer))
    if problems:
        return ResolvedBuffer(objects=objects, reason=RESOLUTION_FAILED, message="; ".join(problems))
    template = _template(objects)
    if template is None:
        reason, ref = _missing(objects)
        message = f"there is no valid {ref} in namespace {buffer.metadata.namespace}"
        return ResolvedBuffer(objects=objects, reason=reason, message=message)
    try:
        own_namespace = (r for r in snapshot.limit_ranges if r.metadata.namespace == buffer.metadata.namespace)
        spec = admitted(template.spec, container_defaults(own_namespace))
        requests = spec_requests(spec)
        most = chunk_count(buffer.spec, requests, objects.workload.spec.replicas if objects.workload else None)
        demands = demand.demands(buffer.metadata.annotations, snapshot)
    except QuantityError as error:
        return ResolvedBuffer(objects=objects, reason=RESOLUTION_FAILED, message=str(error))
    template = type(template)(metadata=template.metadata, spec=spec)
    if objects.request is not None:
        template = _of_request(template, objects.request, snapshot)
    most = min(most, MAX_CHUNKS)
    chunks = demand.wanted(most, demands)
    return ResolvedBuffer(objects=objects, chunks=chunks, most=most, demands=demands, template=template)


def _of_request(template: PodTemplate, request: ProvisioningRequest, snapshot: Snapshot) -> PodTemplate:
    """The template of pods that are planned all together, and on nodes that exist unless the request buys others."""
    metadata = with_fields(
        template.metadata,
        labels={key: value for key, value in template.metadata.labels.items() if key != COSCHEDULING_LABEL},
        annotations={k: v for k, v in template.metadata.annotations.items() if k not in VOLCANO_ANNOTATIONS},
    )
    group = PodSchedulingGroup(pod_group_name=f"{REQUEST_MARK}{request.metadata.name}")
    spec = with_fields(template.spec, scheduling_group=group)
    if not request.buys:
        spec = with_fields(spec, affinity=_on_nodes(spec.affinity, snapshot.nodes))
    return PodTemplate(metadata=metadata, spec=spec)


def _on_nodes(affinity: Affinity | None, nodes: Iterable[Node]) -> Affinity:
    """The affinity, and to one of these nodes."""
    hostnames = [node.metadata.labels.get(names.HOSTNAME, node.metadata.name) for node in nodes]
    one_of_them = NodeSelectorRequirement(key=names.HOSTNAME, operator="In", values=hostnames or [""])
    affinity = affinity or Affinity()
    of_nodes = affinity.node_affinity or NodeAffinity()
    required = of_nodes.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else [NodeSelectorTerm()]
    selector = NodeSelector(
        node_selector_terms=[
            with_fields(term, match_expressions=[*term.match_expressions, one_of_them]) for term in terms
        ]
    )
    return with_fields(
        affinity, node_affinity=with_fields(of_nodes, required_during_scheduling_ignored_during_execution=selector)
    )


def chunk_count(spec: CapacityBufferSpec, requests: Resources, workload_replicas: int | None) -> int:
    """The smallest of ``replicas``, the percentage of the workload's replicas, and what fits into ``limits``.

    A percentage is rounded up: at least one chunk while the workload has replicas. Source:
    docs/facts/capacity-buffers-and-overlays.md.

    Raises:
        QuantityError: the limits alone give the number, and a chunk requests nothing that they limit.
    """
    counts: list[int] = []
    if spec.replicas is not None:
        counts.append(spec.replicas)
    if spec.percentage is not None and workload_replicas is not None:
        counts.append(-(-spec.percentage * workload_replicas // 100))
    if spec.limits is not None:
        limits = parse_resources(spec.limits)
        fitting = [max(0, amount) // requests[name] for name, amount in limits.items() if requests.get(name, 0) > 0]
        if not fitting and not counts:
            limited = ", ".join(sorted(limits))
            raise QuantityError(f"spec.limits: the template requests none of what they limit ({limited})")
        counts += fitting
    return min(counts)


def _template(objects: BufferObjects) -> PodTemplate | None:
    if objects.pod_template is not None:
        return objects.pod_template.template
    return objects.workload.spec.template if objects.workload is not None else None


def _missing(objects: BufferObjects) -> tuple[str, str]:
    """The reason, and the object that the buffer names."""
    spec = objects.buffer.spec
    if spec.pod_template_ref is not None:
        return POD_TEMPLATE_NOT_FOUND, f"PodTemplate {spec.pod_template_ref.name}"
    assert spec.scalable_ref is not None  # validated
    return SCALABLE_REF_NOT_FOUND, f"{spec.scalable_ref.kind} {spec.scalable_ref.name}"
