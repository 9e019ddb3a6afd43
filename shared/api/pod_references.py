"""What keeps a pod from being scheduled by itself: gates, ResourceClaims, PodGroups.

Of ResourceClaims only that a pod has them is read, as they aren't supported.
"""

from __future__ import annotations

from typing import NamedTuple

from shared.api.meta import ApiStruct

KUBERNETES, COSCHEDULING, VOLCANO = "scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh"
"""The API groups that have a kind PodGroup."""
PROVISIONING_REQUEST = "autoscaling.x-k8s.io"
"""The API group of ProvisioningRequests, whose pods that don't exist yet are one PodGroup."""
REQUEST_MARK = "#"
"""Before the request's name, as the name of the PodGroup of such a pod: no PodGroup's name can begin with it."""
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")

POD_SET_MARK = "@"
"""Before the number of a ProvisioningRequest's pod set, in the names of these pods."""


class PodGroupKey(NamedTuple):
    """A PodGroup by its API group, namespace and name."""

    api_group: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """For messages."""
        kind = "ProvisioningRequest" if self.api_group == PROVISIONING_REQUEST else "PodGroup"
        return f"{kind} {self.namespace}/{self.name}"


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
