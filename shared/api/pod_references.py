"""A pod's references to ResourceClaims and PodGroups: only that they are there is read, as they aren't supported."""

from __future__ import annotations

from shared.api.meta import Struct


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
