"""Validation of CapacityBuffers: what their definition can't refuse, and what an older definition let in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import buffer_signals, capacity_demand
from shared.api.capacity_buffer import SCALABLE_KINDS
from shared.api.validation import fields
from shared.api.validation.fields import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.capacity_buffer import CapacityBuffer, CapacityBufferSpec, ScalableRef

_GROUPS = ("apps", "")
"""The API group of the workloads; upstream takes none for apps."""


def validate_capacity_buffer(buffer: CapacityBuffer) -> Iterator[str]:
    """The problems of a CapacityBuffer, in the order of its fields."""
    spec = buffer.spec
    yield from capacity_demand.problems(buffer.metadata.annotations)
    yield from buffer_signals.problems(buffer.metadata.annotations)
    if spec.pod_template_ref is not None and spec.scalable_ref is not None:
        yield "spec.podTemplateRef, spec.scalableRef: both are given; allowed is one of them"
    elif spec.pod_template_ref is None and spec.scalable_ref is None:
        yield "spec.podTemplateRef, spec.scalableRef: are missing; one of them is needed"
    if spec.scalable_ref is not None:
        yield from _scalable_ref(spec.scalable_ref)
    yield from _size(spec)
    yield from fields.within("spec.replicas", spec.replicas, 0)
    yield from fields.within("spec.percentage", spec.percentage, 0)
    yield from fields.quantities("spec.limits", spec.limits or {})


def _scalable_ref(ref: ScalableRef) -> Iterator[str]:
    if ref.api_group not in _GROUPS:
        yield f"spec.scalableRef.apiGroup: {quoted(ref.api_group)} is not supported; allowed is apps"
    if ref.kind not in SCALABLE_KINDS:
        yield f"spec.scalableRef.kind: {quoted(ref.kind)} is not supported; allowed are {', '.join(SCALABLE_KINDS)}"


def _size(spec: CapacityBufferSpec) -> Iterator[str]:
    if spec.percentage is not None and spec.pod_template_ref is not None:
        yield "spec.percentage: needs spec.scalableRef, because a PodTemplate has no replicas"
    if spec.replicas is None and spec.limits is None and (spec.percentage is None or spec.scalable_ref is None):
        missing = (
            "spec.replicas, spec.limits" if spec.pod_template_ref else "spec.replicas, spec.percentage, spec.limits"
        )
        yield f"{missing}: are missing; one of them is needed"
