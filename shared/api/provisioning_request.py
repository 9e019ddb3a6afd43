"""ProvisioningRequest of autoscaling.x-k8s.io: nodes for a set of pods all at once, before the pods exist.

Kueue and other queues create one before they start a workload. Two classes are served: ``check-capacity`` asks whether
there is room now, ``best-effort-atomic-scale-up`` asks for nodes, for all pods or for none. What was provided is booked
for ten minutes, or until the pods are there: they bear the request's name in an annotation.

Sources: kubernetes/autoscaler, cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1 (fields, classes,
conditions), cluster-autoscaler/provisioningrequest/{conditions,checkcapacity} (reasons, times, parameters).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api.meta import ApiStruct, Condition, NamedObject, ObjectRef, condition, is_true, namespaced_ref

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

API_VERSION = "autoscaling.x-k8s.io/v1"
V1BETA1 = "autoscaling.x-k8s.io/v1beta1"
"""The same fields under an older version; clusters may serve only this one."""
KIND = "ProvisioningRequest"
GROUP = "autoscaling.x-k8s.io"

CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
ATOMIC_SCALE_UP = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""The classes that Tenon serves; requests with another are left alone."""

CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
DEPRECATED_CONSUMES = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
"""Annotations of a pod with the name of the request that it uses."""

ACCEPTED, PROVISIONED, FAILED, BOOKING_EXPIRED = "Accepted", "Provisioned", "Failed", "BookingExpired"
"""Conditions."""
BOOKING = timedelta(minutes=10)
"""How long what was provided is kept."""
EXPIRATION = timedelta(days=7)
"""How long nodes are looked for."""
_PROCESSOR_INSTANCE, _NO_RETRY = "processorInstance", "noRetry"


class PodTemplateReference(ApiStruct):
    """The name of a PodTemplate of the same namespace."""

    name: str = ""


class PodSet(ApiStruct):
    """``count`` pods of one template."""

    count: int = 1
    pod_template_ref: PodTemplateReference = PodTemplateReference()


class ProvisioningRequestSpec(ApiStruct):
    """The pods, and how nodes are provided for them."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] = {}
    pod_sets: list[PodSet] = []


class ProvisioningRequestStatus(ApiStruct):
    """What became of it."""

    conditions: list[Condition] = []


class ProvisioningRequest(NamedObject):
    """Nodes for all pods of its pod sets, or for none."""

    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
    kind: str = KIND
    api_version: str = API_VERSION

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return namespaced_ref(self.api_version, self.kind, self.metadata)

    @property
    def is_served(self) -> bool:
        """Whether it is Tenon's: by its class, and it names no instance of an autoscaler as its processor."""
        is_ours = self.spec.provisioning_class_name in {CHECK_CAPACITY, ATOMIC_SCALE_UP}
        return is_ours and not self.spec.parameters.get(_PROCESSOR_INSTANCE) and not self.metadata.deletion_timestamp

    @property
    def buys(self) -> bool:
        """Whether nodes are launched for it."""
        return self.spec.provisioning_class_name == ATOMIC_SCALE_UP

    @property
    def fails_at_once(self) -> bool:
        """Whether it fails instead of waiting, which its class has to allow."""
        return not self.buys and self.spec.parameters.get(_NO_RETRY) == "true"

    @property
    def unsupported_parameters(self) -> tuple[str, ...]:
        """The names of its parameters that nothing follows from."""
        return tuple(sorted(self.spec.parameters.keys() - {_PROCESSOR_INSTANCE, _NO_RETRY}))

    @property
    def has_ended(self) -> bool:
        """Whether it failed, or is no longer booked."""
        conditions = self.status.conditions
        return is_true(conditions, FAILED) or is_true(conditions, BOOKING_EXPIRED)

    @property
    def is_open(self) -> bool:
        """Whether nodes are launched or kept for it."""
        return self.is_served and not self.has_ended

    def is_expired(self, now: datetime) -> bool:
        """Whether its booking or, if it isn't provided, its time to wait is over."""
        provided = condition(self.status.conditions, PROVISIONED)
        if provided is not None and provided.status == "True":
            return provided.last_transition_time is not None and now - provided.last_transition_time >= BOOKING
        created = self.metadata.creation_timestamp
        return created is not None and now - created >= EXPIRATION


def consumed_request(annotations: Mapping[str, str]) -> str:
    """The name of the request that a pod with these annotations uses; "" if it uses none.

    >>> consumed_request({"autoscaling.x-k8s.io/consume-provisioning-request": "train"})
    'train'
    """
    return annotations.get(CONSUMES) or annotations.get(DEPRECATED_CONSUMES, "")
