"""NodeClaim of karpenter.sh/v1: one machine asked for, from the wish to the last finalizer."""

from __future__ import annotations

from datetime import datetime

import msgspec

from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import Condition, ObjectMeta, ObjectRef, RawQuantities, Struct
from shared.api.nodepool import NodeClassRef

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


class ResourceRequests(Struct):
    """What the pods that the claim was made for ask, daemons included."""

    requests: RawQuantities = {}


class NodeClaimSpec(Struct):
    """Immutable: what may be launched."""

    node_class_ref: NodeClassRef = NodeClassRef()
    requirements: list[NodeSelectorRequirement] = []
    resources: ResourceRequests = ResourceRequests()
    taints: list[Taint] = []
    startup_taints: list[Taint] = []
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class NodeClaimStatus(Struct):
    """What was launched."""

    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    image_id: str = msgspec.field(default="", name="imageID")
    capacity: RawQuantities = {}
    allocatable: RawQuantities = {}
    conditions: list[Condition] = []
    last_pod_event_time: datetime | None = None


class NodeClaim(Struct):
    """A claim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()
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
