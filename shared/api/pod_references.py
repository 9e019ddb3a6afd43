"""What keeps a pod from being scheduled by itself: gates, ResourceClaims, PodGroups.

Of ResourceClaims and PodGroups only that a pod has them is read, as they aren't supported.
"""

from __future__ import annotations

from shared.api.meta import ApiStruct


class SchedulingGate(ApiStruct):
    """Keeps a pod from being scheduled until it is removed."""

    name: str = ""


class ResourceClaimUse(ApiStruct):
    """A container's use of one of its pod's resource claims."""

    name: str = ""


class PodResourceClaim(ApiStruct):
    """A claim for devices that the pod uses, by name or made from a template."""

    name: str = ""


class PodSchedulingGroup(ApiStruct):
    """The PodGroup whose pods are scheduled all together."""

    pod_group_name: str = ""


class WorkloadReference(ApiStruct):
    """The same in Kubernetes 1.35, which had it by another name."""

    name: str = ""
