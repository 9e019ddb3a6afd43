"""NodeClaim of karpenter.sh/v1: the request for a node and its lifecycle."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec

from shared.api import admission_rules
from shared.api import labels as names
from shared.api.duration import DurationError, parse_duration
from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import (
    DURATION,
    DURATION_OR_NEVER,
    ApiStruct,
    Condition,
    EventReason,
    NamedObject,
    ObjectRef,
    RawQuantities,
    condition,
    describe,
    is_true,
    with_condition,
)
from shared.api.nodepool import MAX_REQUIREMENTS, NodeClassRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Node

API_VERSION = "karpenter.sh/v1"
KIND = "NodeClaim"

# Condition types, in the order in which they become true.
LAUNCHED = "Launched"
REGISTERED = "Registered"
INITIALIZED = "Initialized"
READY = "Ready"
EMPTY = "Empty"
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
DISRUPTION_REASON = "DisruptionReason"
REBOOTING = "Rebooting"
"""The node reboots in place; the reasons are those of :mod:`shared.api.reboot`."""
DRAINED = "Drained"
VOLUMES_DETACHED = "VolumesDetached"
INSTANCE_TERMINATING = "InstanceTerminating"
GARBAGE_COLLECTABLE = "GarbageCollectable"
"""The NodeClaim's instance or node is missing; garbage collection deletes it once that is confirmed."""

LAUNCH_UNCONFIRMED = EventReason("LaunchUnconfirmed")
"""Reason of condition Launched "Unknown": an instance may have been launched that EC2 doesn't show yet."""

LAUNCH_TIMEOUT = timedelta(minutes=5)
"""A NodeClaim that is not Launched within this time of its creation is deleted (Karpenter's liveness)."""
REGISTRATION_TIMEOUT = timedelta(minutes=15)
"""A NodeClaim that is not Registered within this time of its launch is deleted (Karpenter's liveness)."""


class ResourceRequests(ApiStruct):
    """The resource requests of the pods that the NodeClaim was created for, DaemonSets included."""

    requests: Annotated[RawQuantities, describe("The sum of the requests, by resource.")] = {}


class NodeClaimSpec(ApiStruct):
    """The desired state of a NodeClaim; immutable."""

    node_class_ref: Annotated[NodeClassRef, describe("The node class that configures the instance.", required=True)] = (
        NodeClassRef()
    )
    requirements: Annotated[
        list[NodeSelectorRequirement],
        describe(
            "Requirements on the node's labels; all must be met.",
            maxItems=MAX_REQUIREMENTS,
            rules=admission_rules.REQUIREMENTS,
        ),
    ] = []
    resources: Annotated[
        ResourceRequests, describe("The resource requests of the pods that the NodeClaim was created for.")
    ] = ResourceRequests()
    taints: Annotated[list[Taint], describe("Taints of the node.")] = []
    startup_taints: Annotated[
        list[Taint], describe("Taints of the new node that something in the cluster removes.")
    ] = []
    expire_after: Annotated[
        str,
        describe("The age at which the node is replaced, or Never.", default=True, pattern=DURATION_OR_NEVER),
    ] = "720h"
    termination_grace_period: Annotated[
        str | None,
        describe(
            "How long the node may drain. Its pods are then deleted, whatever budgets and do-not-disrupt say.",
            pattern=DURATION,
        ),
    ] = None


class NodeClaimStatus(ApiStruct):
    """The observed state of a NodeClaim."""

    node_name: Annotated[str, describe("The name of the node, once it is registered.")] = ""
    provider_id: Annotated[str, describe("The instance: aws:///<zone>/<instance id>.")] = msgspec.field(
        default="", name="providerID"
    )
    image_id: Annotated[str, describe("The AMI of the instance.")] = msgspec.field(default="", name="imageID")
    capacity: Annotated[RawQuantities, describe("The capacity of the node, by resource.")] = {}
    allocatable: Annotated[RawQuantities, describe("The allocatable resources of the node.")] = {}
    conditions: Annotated[list[Condition], describe("The conditions of the NodeClaim.")] = []
    last_pod_event_time: Annotated[
        datetime | None, describe("When a pod was last scheduled to the node or left it.")
    ] = None


class NodeClaim(NamedObject):
    """The request for a node and its lifecycle, from creation to the last finalizer."""

    spec: Annotated[
        NodeClaimSpec,
        describe(
            "The desired state of the NodeClaim.", required=True, rules=(("self == oldSelf", "spec is immutable"),)
        ),
    ] = NodeClaimSpec()
    status: Annotated[NodeClaimStatus, describe("The observed state of the NodeClaim.")] = NodeClaimStatus()
    kind: str = KIND
    api_version: str = API_VERSION

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.name, uid=self.metadata.uid)

    @property
    def node_or_own_name(self) -> str:
        """The name of its node, or its own while it has none: by it, the decision log knows the node."""
        return self.status.node_name or self.name


def is_rebooting(claim: NodeClaim) -> bool:
    """Whether a reboot in place was requested and hasn't ended."""
    return is_true(claim.status.conditions, REBOOTING)


def rebooting_message(claim: NodeClaim) -> str:
    """Why the NodeClaim's node reboots, and how the reboot has ended; "" if it never was."""
    rebooting = condition(claim.status.conditions, REBOOTING)
    return rebooting.message if rebooting is not None else ""


def rebooting_nodes(claims: Iterable[NodeClaim]) -> frozenset[str]:
    """The names of the nodes that reboot."""
    return frozenset(c.status.node_name for c in claims if is_rebooting(c) and c.status.node_name)


def name_on(node: Node) -> str:
    """The name of the node's NodeClaim, as it stands on the node since its registration; "" if it doesn't.

    Karpenter's nodes have an owner reference instead of the annotation.
    """
    owner = next((o.name for o in node.metadata.owner_references if o.kind == KIND), "")
    return node.metadata.annotations.get(names.NODECLAIM, owner)


def expiration_time(claim: NodeClaim) -> datetime | None:
    """When the claim is older than its expireAfter; None: never, or that is no duration."""
    try:
        expire_after = parse_duration(claim.spec.expire_after)
    except DurationError:
        return None
    created = claim.metadata.creation_timestamp
    return None if expire_after is None or created is None else created + expire_after


def forced_expiration_time(claim: NodeClaim) -> datetime | None:
    """When the expired claim is deleted regardless of blockers; None: never."""
    expires = expiration_time(claim)
    try:
        grace = parse_duration(claim.spec.termination_grace_period or "Never")
    except DurationError:
        return None
    return None if expires is None or grace is None else expires + grace


def planned_price(claim: NodeClaim) -> float:
    """USD per hour of the cheapest offering that it was planned with; 0 if its annotation doesn't say."""
    try:
        price = float(claim.metadata.annotations.get(names.PLANNED_PRICE, ""))
    except ValueError:  # anyone who may write NodeClaims may change it
        return 0.0
    return price if math.isfinite(price) and price > 0 else 0.0


def with_ready(conditions: list[Condition], *, now: datetime, generation: int) -> list[Condition]:
    """The conditions with Ready: True when Launched, Registered and Initialized are, False when one of them is.

    Otherwise it is Unknown, as in Karpenter (operatorpkg's ConditionSet): nothing has failed yet, and Argo CD takes
    False for Degraded.
    """
    unmet = [type_ for type_ in (LAUNCHED, REGISTERED, INITIALIZED) if not is_true(conditions, type_)]
    blockers = [c for type_ in unmet if (c := condition(conditions, type_)) is not None]
    failed = next((c for c in blockers if c.status == "False"), None)
    return with_condition(
        conditions,
        READY,
        status=not unmet or (None if failed is None else False),
        reason=f"Not{unmet[0] if failed is None else failed.type}" if unmet else "Ready",
        message=failed.message if failed is not None else next((c.message for c in blockers), ""),
        now=now,
        generation=generation,
    )
