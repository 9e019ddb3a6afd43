"""What keeps a pod from being scheduled by itself: gates, ResourceClaims, PodGroups.

Of ResourceClaims and PodGroups only that a pod has them is read, as they aren't supported.
"""

from __future__ import annotations

from shared.api.meta import Struct


class SchedulingGate(Struct):
    """Keeps a pod from being scheduled until it is removed."""

    name: str = ""


class ResourceClaimUse(Struct):
    """A container's use of one of its pod's resource claims."""

    name: str = ""


class PodResourceClaim(Struct):
    """A claim for devices that the pod uses, by name or made from a template."""

    name: str = ""


class PodSchedulingGroup(Struct):
    """The PodGroup whose pods are scheduled all together."""

    pod_group_name: str = ""


class WorkloadReference(Struct):
    """The same in Kubernetes 1.35, which had it by another name."""

    name: str = ""
