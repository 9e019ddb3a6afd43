"""NodeClaim of karpenter.sh/v1: one machine asked for, from the wish to the last finalizer."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import (
    DURATION,
    DURATION_OR_NEVER,
    Condition,
    ObjectMeta,
    ObjectRef,
    RawQuantities,
    Struct,
    describe,
    is_true,
    with_condition,
)
from shared.api.nodepool import MAX_REQUIREMENTS, NodeClassRef

API_VERSION = "karpenter.sh/v1"
KIND = "NodeClaim"

# Condition types, in the order in which a claim passes them.
LAUNCHED = "Launched"
REGISTERED = "Registered"
INITIALIZED = "Initialized"
READY = "Ready"
EMPTY = "Empty"
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
DISRUPTION_REASON = "DisruptionReason"
DRAINED = "Drained"
VOLUMES_DETACHED = "VolumesDetached"
INSTANCE_TERMINATING = "InstanceTerminating"

LAUNCH_TIMEOUT = timedelta(minutes=5)
"""A NodeClaim that is not Launched within this time of its creation is deleted (Karpenter's liveness)."""
REGISTRATION_TIMEOUT = timedelta(minutes=15)
"""A NodeClaim that is not Registered within this time of its launch is deleted (Karpenter's liveness)."""


class ResourceRequests(Struct):
    """What the pods that the claim was made for ask, daemons included."""

    requests: Annotated[RawQuantities, describe("What the pods ask, by resource.")] = {}


class NodeClaimSpec(Struct):
    """Immutable: what may be launched."""

    node_class_ref: Annotated[
        NodeClassRef, describe("The node class that says what an instance is made of.", required=True)
    ] = NodeClassRef()
    requirements: Annotated[
        list[NodeSelectorRequirement],
        describe("What the node may be like; all of them must hold.", maxItems=MAX_REQUIREMENTS),
    ] = []
    resources: Annotated[ResourceRequests, describe("What the pods that the claim was made for ask.")] = (
        ResourceRequests()
    )
    taints: Annotated[list[Taint], describe("Taints of the node.")] = []
    startup_taints: Annotated[
        list[Taint], describe("Taints that the node starts with and that something in the cluster removes.")
    ] = []
    expire_after: Annotated[
        str,
        describe(
            "How old the node may become before it is replaced, or Never.", default=True, pattern=DURATION_OR_NEVER
        ),
    ] = "720h"
    termination_grace_period: Annotated[
        str | None,
        describe(
            "How long the node may drain. Then its pods are deleted, whatever budgets and do-not-disrupt say.",
            pattern=DURATION,
        ),
    ] = None


class NodeClaimStatus(Struct):
    """What was launched."""

    node_name: Annotated[str, describe("The node, once it has joined.")] = ""
    provider_id: Annotated[str, describe("The instance: aws:///<zone>/<instance id>.")] = msgspec.field(
        default="", name="providerID"
    )
    image_id: Annotated[str, describe("The image that the instance runs.")] = msgspec.field(default="", name="imageID")
    capacity: Annotated[RawQuantities, describe("The instance's whole size, by resource.")] = {}
    allocatable: Annotated[RawQuantities, describe("What pods get of it, by resource.")] = {}
    conditions: Annotated[list[Condition], describe("How far the claim has come, and what is observed about it.")] = []
    last_pod_event_time: Annotated[datetime | None, describe("When a pod last came to or left the node.")] = None


class NodeClaim(Struct):
    """One machine asked for, from the wish to the last finalizer."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        NodeClaimSpec,
        describe("What may be launched.", required=True, rules=(("self == oldSelf", "spec is immutable"),)),
    ] = NodeClaimSpec()
    status: Annotated[NodeClaimStatus, describe("What was launched.")] = NodeClaimStatus()
    kind: str = KIND
    api_version: str = API_VERSION

    @property
    def name(self) -> str:
        """The claim's name."""
        return self.metadata.name

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.name, uid=self.metadata.uid)


def with_ready(conditions: list[Condition], *, now: datetime) -> list[Condition]:
    """The conditions with Ready: true when Launched, Registered and Initialized are."""
    for type_ in (LAUNCHED, REGISTERED, INITIALIZED):
        if not is_true(conditions, type_):
            return with_condition(conditions, READY, status=False, reason=f"Not{type_}", now=now)
    return with_condition(conditions, READY, status=True, reason="Ready", now=now)
