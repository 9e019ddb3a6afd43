"""Fields of a pod that change where it can run, and that Tenon doesn't support: no node is launched for such a pod.

Devices of a ResourceClaim exist only where a driver publishes them, which no instance type says. Pods of a Workload of
Kubernetes 1.35 are scheduled all together; from 1.37 on a PodGroup says so, which is planned. A node that is bought as
if the field were not there stays empty. Source: Karpenter, which ignores pods with resource claims by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.decision import UnschedulableReason

if TYPE_CHECKING:
    from collections.abc import Sequence

_MEANINGS = {
    "resourceClaims": "dynamic resource allocation",
    "claims": "dynamic resource allocation",
    "workloadRef": "gang scheduling",
}
"""What a field asks for, by its last name."""


def unsupported(fields: Sequence[str]) -> UnschedulableReason:
    """Why no node is launched for pods that use these fields (:func:`shared.api.pods.unsupported_fields`)."""
    return UnschedulableReason(message=f"not supported: {named_fields(fields)}; no node is launched for the pod")


def named_fields(fields: Sequence[str]) -> str:
    """The fields with what they ask for, for messages."""
    return ", ".join(f"{field} ({_MEANINGS[field.rpartition('.')[2]]})" for field in fields)
