"""Fields of a pod that change where it can run, and that Tenon doesn't support: no node is launched for such a pod.

Devices of a ResourceClaim exist only where a driver publishes them, which no instance type says. The pods of a PodGroup
are scheduled all together, perhaps within one topology, which a plan doesn't promise. A node that is bought as if the
field were not there stays empty. Source: Karpenter, which ignores pods with resource claims by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.decision import UnschedulableReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.kubernetes import PodSpec

_MEANINGS = {
    "resourceClaims": "dynamic resource allocation",
    "claims": "dynamic resource allocation",
    "schedulingGroup": "gang scheduling",
    "workloadRef": "gang scheduling",
}
"""What a field asks for, by its last name."""


def unsupported_fields(spec: PodSpec) -> tuple[str, ...]:
    """The paths of the unsupported fields that the spec uses, in order.

    >>> from shared.api.kubernetes import PodSpec
    >>> from shared.api.pod_references import PodResourceClaim
    >>> unsupported_fields(PodSpec(resource_claims=[PodResourceClaim(name="gpu")]))
    ('spec.resourceClaims',)
    """
    return tuple(_fields(spec))


def unsupported(spec: PodSpec) -> UnschedulableReason | None:
    """Why no node is launched for pods of this spec, with each unsupported field; None if it uses none."""
    fields = unsupported_fields(spec)
    if not fields:
        return None
    named = ", ".join(f"{field} ({_MEANINGS[field.rpartition('.')[2]]})" for field in fields)
    return UnschedulableReason(message=f"not supported: {named}; no node is launched for the pod")


def _fields(spec: PodSpec) -> Iterator[str]:
    if spec.resource_claims:
        yield "spec.resourceClaims"
    if spec.resources is not None and spec.resources.claims:
        yield "spec.resources.claims"
    for name, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for i, container in enumerate(containers):
            # Without the pod's own list, which the API server requires, the message has to lead to the container.
            if container.resources.claims and not spec.resource_claims:
                yield f"spec.{name}[{i}].resources.claims"
    if spec.scheduling_group is not None:
        yield "spec.schedulingGroup"
    if spec.workload_ref is not None:
        yield "spec.workloadRef"
