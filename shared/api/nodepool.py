"""NodePool of karpenter.sh/v1: what nodes may look like, how many, and when they may go."""

from __future__ import annotations

import msgspec

from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import Condition, ObjectMeta, ObjectRef, RawQuantities, Struct
from shared.api.nodeclass import EC2NodeClass, Kubelet

API_VERSION = "karpenter.sh/v1"
KIND = "NodePool"

POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
REASONS = ("Underutilized", "Empty", "Drifted")
MAX_BUDGETS = 50
MAX_WEIGHT = 100
BUDGET_NODES = r"^((100|[0-9]{1,2})%|[0-9]+)$"
"""A percentage or a count."""


class NodeClassRef(Struct):
    """The node class that says what an instance is made of."""

    group: str = "karpenter.k8s.aws"
    kind: str = "EC2NodeClass"
    name: str = ""


class TemplateMetadata(Struct):
    """Labels and annotations of the nodes."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class TemplateSpec(Struct):
    """What every node of the pool is like. Durations are text: "720h", "Never".

    ``kubelet`` is no field of v1: it holds a Provisioner's ``kubeletConfiguration``, which belonged to the pool.
    """

    node_class_ref: NodeClassRef = NodeClassRef()
    requirements: list[NodeSelectorRequirement] = []
    taints: list[Taint] = []
    startup_taints: list[Taint] = []
    expire_after: str = "720h"
    termination_grace_period: str | None = None
    kubelet: Kubelet | None = None


class NodeClaimTemplate(Struct):
    """The claim that the pool makes for each node."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: TemplateSpec = TemplateSpec()


class Budget(Struct):
    """How many nodes may be disrupted at once ("10%" or "3"), when (cron, UTC, and how long) and for which reasons."""

    nodes: str = "10%"
    schedule: str | None = None
    duration: str | None = None
    reasons: list[str] = []


class Disruption(Struct):
    """When and how fast nodes may be taken away."""

    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: list[Budget] = msgspec.field(default_factory=lambda: [Budget()])


class NodePoolSpec(Struct):
    """What the user asks of the pool."""

    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: Disruption = Disruption()
    limits: RawQuantities = {}
    weight: int = 1
    replicas: int | None = None


class NodePoolStatus(Struct):
    """What the pool has."""

    resources: RawQuantities = {}
    nodes: int = 0
    conditions: list[Condition] = []


class NodePool(Struct):
    """A pool. One converted from a Provisioner keeps that object's apiVersion and kind, to be referred to by."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
    kind: str = KIND
    api_version: str = API_VERSION

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.metadata.name

    @property
    def ref(self) -> ObjectRef:
        """The object as the user wrote it."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.name, uid=self.metadata.uid)


def node_class_for(pool: NodePool, node_class: EC2NodeClass) -> EC2NodeClass:
    """The class as the pool's nodes get it: a Provisioner's own kubelet settings stand before the class's."""
    kubelet = pool.spec.template.spec.kubelet
    if kubelet is None:
        return node_class
    return msgspec.structs.replace(node_class, spec=msgspec.structs.replace(node_class.spec, kubelet=kubelet))
