"""NodePool of karpenter.sh/v1: what nodes may look like, how many, and when they may go."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import (
    DURATION,
    DURATION_OR_NEVER,
    LABEL_VALUE,
    Condition,
    ObjectMeta,
    ObjectRef,
    RawQuantities,
    Struct,
    describe,
)
from shared.api.nodeclass import EC2NodeClass, Kubelet

API_VERSION = "karpenter.sh/v1"
KIND = "NodePool"

POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
REASONS = ("Underutilized", "Empty", "Drifted")
MAX_REQUIREMENTS = 100
MAX_BUDGETS = 50
MAX_WEIGHT = 100
BUDGET_NODES = r"^((100|[0-9]{1,2})%|[0-9]+)$"
"""A percentage or a count."""


class NodeClassRef(Struct, omit_defaults=False):
    """The node class that says what an instance is made of.

    Written whole: Karpenter's own definitions require fields that ours fill in.
    """

    group: Annotated[str, describe("The API group of the class.", default=True, minLength=1, pattern="^[^/]*$")] = (
        "karpenter.k8s.aws"
    )
    kind: Annotated[str, describe("The kind of the class.", default=True, minLength=1)] = "EC2NodeClass"
    name: Annotated[str, describe("The name of the class.", required=True, minLength=1)] = ""


class TemplateMetadata(Struct):
    """Labels and annotations of the nodes."""

    labels: Annotated[dict[str, str], describe("Labels of the nodes.", maxProperties=100, each=LABEL_VALUE)] = {}
    annotations: Annotated[dict[str, str], describe("Annotations of the nodes.")] = {}


class TemplateSpec(Struct):
    """What every node of the pool is like. Durations are text: "720h", "Never".

    ``kubelet`` is no field of v1: it holds a Provisioner's ``kubeletConfiguration``, which belonged to the pool.
    """

    node_class_ref: Annotated[
        NodeClassRef, describe("The node class that says what an instance is made of.", required=True)
    ] = NodeClassRef()
    requirements: Annotated[
        list[NodeSelectorRequirement],
        describe("What the nodes may be like; all of them must hold.", maxItems=MAX_REQUIREMENTS),
    ] = []
    taints: Annotated[list[Taint], describe("Taints of the nodes; only pods that tolerate them get nodes here.")] = []
    startup_taints: Annotated[
        list[Taint],
        describe("Taints that nodes start with and that something removes; pods need not tolerate them."),
    ] = []
    expire_after: Annotated[
        str,
        describe("How old a node may become before it is replaced, or Never.", default=True, pattern=DURATION_OR_NEVER),
    ] = "720h"
    termination_grace_period: Annotated[
        str | None,
        describe(
            "How long a node may drain. Then its pods are deleted, whatever budgets and do-not-disrupt say.",
            pattern=DURATION,
        ),
    ] = None
    kubelet: Annotated[Kubelet | None, describe("A Provisioner's kubelet settings.", internal=True)] = None


class NodeClaimTemplate(Struct):
    """The claim that the pool makes for each node."""

    metadata: Annotated[TemplateMetadata, describe("Labels and annotations of the nodes.")] = TemplateMetadata()
    spec: Annotated[TemplateSpec, describe("What every node of the pool is like.", required=True)] = TemplateSpec()


class Budget(Struct):
    """How many nodes may be disrupted at once ("10%" or "3"), when (cron, UTC, and how long) and for which reasons."""

    nodes: Annotated[
        str,
        describe(
            "How many nodes may be disrupted at once: a count, or a percentage of the pool's nodes, rounded up.",
            default=True,
            required=True,
            pattern=BUDGET_NODES,
        ),
    ] = "10%"
    schedule: Annotated[
        str | None,
        describe(
            "When the budget begins to hold: cron with five fields or a macro such as @daily, in UTC. It always holds "
            "without.",
            pattern=r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|(.+)\s(.+)\s(.+)\s(.+)\s(.+))$",
        ),
    ] = None
    duration: Annotated[
        str | None,
        describe("How long it holds from then on, in hours and minutes.", pattern="^(([0-9]+(h|m))+(0s)?)$"),
    ] = None
    reasons: Annotated[
        list[str],
        describe("Which disruption it limits; all without.", maxItems=MAX_BUDGETS, each={"enum": REASONS}),
    ] = []


class Disruption(Struct):
    """When and how fast nodes may be taken away."""

    consolidate_after: Annotated[
        str,
        describe(
            "How long a node must be left alone by pods before consolidation considers it, or Never.",
            default=True,
            pattern=DURATION_OR_NEVER,
        ),
    ] = "0s"
    consolidation_policy: Annotated[
        str, describe("Which nodes consolidation considers.", default=True, enum=POLICIES)
    ] = "WhenEmptyOrUnderutilized"
    budgets: Annotated[
        list[Budget],
        describe(
            "How many nodes may be disrupted at once; the strictest of those that hold counts.",
            default=True,
            maxItems=MAX_BUDGETS,
            rules=(("self.all(x, has(x.schedule) == has(x.duration))", "schedule and duration belong together"),),
        ),
    ] = msgspec.field(default_factory=lambda: [Budget()])


class NodePoolSpec(Struct):
    """What the user asks of the pool."""

    template: Annotated[NodeClaimTemplate, describe("The claim that the pool makes for each node.", required=True)] = (
        NodeClaimTemplate()
    )
    disruption: Annotated[Disruption, describe("When and how fast nodes may be taken away.", default=True)] = (
        Disruption()
    )
    limits: Annotated[
        RawQuantities, describe("How much the pool's nodes may add up to, by resource; nodes is their count.")
    ] = {}
    weight: Annotated[int, describe("Pools of higher weight are tried first.", minimum=1, maximum=MAX_WEIGHT)] = 1
    replicas: Annotated[int | None, describe("A fixed number of nodes, whether or not pods need them.", minimum=0)] = (
        None
    )


class NodePoolStatus(Struct):
    """What the pool has."""

    resources: Annotated[RawQuantities, describe("What the pool's nodes add up to.")] = {}
    nodes: Annotated[int, describe("How many nodes the pool has.", minimum=0)] = 0
    conditions: Annotated[list[Condition], describe("What is observed about the pool.")] = []


class NodePool(Struct):
    """A pool of nodes of one kind, which grows with the pods that need it and shrinks when they are gone.

    One converted from a Provisioner keeps that object's apiVersion and kind, to be referred to by.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NodePoolSpec, describe("What the user asks of the pool.", required=True)] = NodePoolSpec()
    status: Annotated[NodePoolStatus, describe("What the pool has.")] = NodePoolStatus()
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
