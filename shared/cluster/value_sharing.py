"""Equal parts of pods as one object: pods of a template differ in little but their names, nodes and times.

A decoded pod takes 3.5 KiB, nearly all of which is equal to parts of other pods: labels, owners, containers,
tolerations, and a dozen empty lists. With shared parts it takes 0.6 KiB. What is shared is never changed: the API's
types are immutable, and their lists and dictionaries are only read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shared.api.kubernetes import RESIZE_PENDING, PodSpec
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Pod, PodStatus
    from shared.api.meta import Condition, ObjectMeta

T = TypeVar("T")

READ_CONDITIONS = frozenset({"PodScheduled", "Ready", RESIZE_PENDING})
"""The types of a pod's conditions that something reads; a pod of a kubelet has five and more."""
_MAX_VALUES = 100_000
"""Different values that are remembered: some 15 MiB. With more, sharing begins anew."""
_SPEC = tuple(f.name for f in msgspec.structs.fields(PodSpec) if f.type not in {bool, int | None})

_EMPTY: dict[type, Any] = {list: [], dict: {}}
_encode = msgspec.msgpack.Encoder().encode
_set = msgspec.structs.force_setattr


class ValueSharing:
    """Remembers values, and puts them in the place of equal ones in pods that were just decoded. Not thread-safe."""

    def __init__(self) -> None:
        self._values: dict[str | int, Any] = {}
        """Strings by themselves, other values by the hash of their encoding."""
        self._specs: dict[int, PodSpec] = {}
        """The first spec, without its node, of pods with these labels, by the labels' identity."""

    def share(self, pods: Iterable[Pod]) -> None:
        """Make equal parts of these pods, and of those before them, the same objects; drop what nobody reads."""
        if len(self._values) > _MAX_VALUES:
            self._specs.clear()
            self._values.clear()
        for pod in pods:
            metadata = self._metadata(pod.metadata)
            _set(pod, "metadata", metadata)
            _set(pod, "spec", self._spec(pod.spec, metadata.labels))
            _set(pod, "status", self._status(pod.status))

    def _metadata(self, metadata: ObjectMeta) -> ObjectMeta:
        return with_fields(
            metadata,
            namespace=self._string(metadata.namespace),
            labels=self._shared(metadata.labels),
            annotations=self._shared(metadata.annotations),
            finalizers=self._shared(metadata.finalizers),
            owner_references=self._shared(metadata.owner_references),
        )

    def _spec(self, spec: PodSpec, labels: dict[str, str]) -> PodSpec:
        """An equal spec that shares all but the node's name with other pods of the template.

        The volume of each pod's own token has a name of its own, and ties the pod to no node.
        """
        volumes = [v for v in spec.volumes if v.ties_to_nodes] if spec.volumes else []
        template = with_fields(spec, node_name="", volumes=volumes)
        shared = self._specs.get(id(labels))
        if shared != template:
            shared = with_fields(template, **{name: self._shared(getattr(template, name)) for name in _SPEC})
            self._specs.setdefault(id(labels), shared)
        return with_fields(shared, node_name=self._string(spec.node_name)) if spec.node_name else shared

    def _status(self, status: PodStatus) -> PodStatus:
        return with_fields(
            status,
            phase=self._string(status.phase),
            conditions=[self._condition(c) for c in status.conditions if c.type in READ_CONDITIONS],
            container_statuses=self._shared(status.container_statuses),
            init_container_statuses=self._shared(status.init_container_statuses),
            allocated_resources=self._shared(status.allocated_resources),
        )

    def _condition(self, condition: Condition) -> Condition:
        return with_fields(
            condition,
            type=self._string(condition.type),
            status=self._string(condition.status),
            reason=self._string(condition.reason),
            message=self._string(condition.message),
        )

    def _string(self, value: str) -> str:
        shared: str = self._values.setdefault(value, value)
        return shared

    def _shared(self, value: T) -> T:
        if not value:
            empty: T = _EMPTY.get(type(value), value)
            return empty
        shared: T = self._values.setdefault(hash(_encode(value)), value)
        return shared if shared == value else value
