"""NodePool of karpenter.sh/v1: the template and limits of nodes, and how they are disrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from shared.api import admission_rules, labels
from shared.api.kubelet import Kubelet
from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import (
    DURATION,
    DURATION_OR_NEVER,
    LABEL_VALUE,
    ApiStruct,
    Condition,
    NamedObject,
    ObjectRef,
    RawQuantities,
    describe,
    to_json,
)
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from shared.api.nodeclass import EC2NodeClass

API_VERSION = "karpenter.sh/v1"
KIND = "NodePool"
NODE_GROUP_KIND = "NodeGroup"
"""The kind of the NodePools that stand for node groups in decisions (:mod:`shared.node_groups.group_pools`). No object
has it."""
NODE_GROUP_PREFIX = "node-group/"
"""What their names begin with; names of NodePools can't contain it."""

POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
REASONS = ("Underutilized", "Empty", "Drifted", "Unhealthy")
MAX_REQUIREMENTS = 100
MAX_BUDGETS = 50
MAX_WEIGHT = 100
BUDGET_NODES = r"^((100|[0-9]{1,2})%|[0-9]+)$"
"""A percentage or a count."""
BUDGET_DURATION = r"^(([0-9]+(h|m))+(0s)?)$"
"""Hours and minutes."""


class NodeClassRef(ApiStruct, omit_defaults=False):
    """The reference to the node class that configures the instances.

    Always written with all fields: Karpenter's own CRDs require fields that have defaults here.
    """

    group: Annotated[str, describe("The API group of the class.", default=True, minLength=1, pattern="^[^/]*$")] = (
        "karpenter.k8s.aws"
    )
    kind: Annotated[str, describe("The kind of the class.", default=True, minLength=1)] = "EC2NodeClass"
    name: Annotated[str, describe("The name of the class.", required=True, minLength=1)] = ""


class TemplateMetadata(ApiStruct):
    """Labels and annotations of the nodes."""

    labels: Annotated[
        dict[str, str],
        describe("Labels of the nodes.", maxProperties=100, each=LABEL_VALUE, rules=admission_rules.TEMPLATE_LABELS),
    ] = {}
    annotations: Annotated[dict[str, str], describe("Annotations of the nodes.")] = {}


class TemplateSpec(ApiStruct):
    """The template of the NodePool's NodeClaims. Durations are strings: "720h", "Never".

    ``kubelet`` is not a field of v1: it holds a Provisioner's ``kubeletConfiguration``.
    """

    node_class_ref: Annotated[
        NodeClassRef,
        describe("The node class that configures the instances.", required=True, rules=admission_rules.NODE_CLASS_REF),
    ] = NodeClassRef()
    requirements: Annotated[
        list[NodeSelectorRequirement],
        describe(
            "Requirements on the nodes' labels; all must be met.",
            maxItems=MAX_REQUIREMENTS,
            rules=admission_rules.POOL_REQUIREMENTS,
        ),
    ] = []
    taints: Annotated[
        list[Taint], describe("Taints of the nodes; only pods that tolerate them are scheduled to the NodePool.")
    ] = []
    startup_taints: Annotated[
        list[Taint],
        describe("Taints of new nodes that something in the cluster removes; pods need not tolerate them."),
    ] = []
    expire_after: Annotated[
        str,
        describe("The age at which a node is replaced, or Never.", default=True, pattern=DURATION_OR_NEVER),
    ] = "720h"
    termination_grace_period: Annotated[
        str | None,
        describe(
            "How long a node may drain. Its pods are then deleted, whatever budgets and do-not-disrupt say.",
            pattern=DURATION,
        ),
    ] = None
    kubelet: Annotated[Kubelet | None, describe("The kubelet settings of a Provisioner.", internal=True)] = None


class NodeClaimTemplate(ApiStruct):
    """The template of the NodePool's NodeClaims."""

    metadata: Annotated[TemplateMetadata, describe("Labels and annotations of the nodes.")] = TemplateMetadata()
    spec: Annotated[TemplateSpec, describe("The template of the NodeClaims' spec.", required=True)] = TemplateSpec()


class Budget(ApiStruct):
    """The number of nodes ("10%" or "3") that may be disrupted at once, when (cron, UTC), and for which reasons."""

    nodes: Annotated[
        str,
        describe(
            "How many nodes may be disrupted at once: a number, or a percentage of the NodePool's nodes, rounded up.",
            default=True,
            required=True,
            pattern=BUDGET_NODES,
        ),
    ] = "10%"
    schedule: Annotated[
        str | None,
        describe(
            "When the budget becomes active: cron with five fields or a macro such as @daily, in UTC. Without a "
            "schedule it is always active.",
            pattern=r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|(.+)\s(.+)\s(.+)\s(.+)\s(.+))$",
        ),
    ] = None
    duration: Annotated[
        str | None,
        describe("How long the budget stays active, in hours and minutes.", pattern=BUDGET_DURATION),
    ] = None
    reasons: Annotated[
        list[str],
        describe(
            "The disruption reasons that the budget limits; without them all.",
            maxItems=MAX_BUDGETS,
            each={"enum": REASONS},
        ),
    ] = []


class Disruption(ApiStruct):
    """When and how fast nodes are disrupted."""

    consolidate_after: Annotated[
        str,
        describe(
            "How long no pod may have come to or left a node before it is consolidated, or Never.",
            default=True,
            pattern=DURATION_OR_NEVER,
        ),
    ] = "0s"
    consolidation_policy: Annotated[str, describe("Which nodes may be consolidated.", default=True, enum=POLICIES)] = (
        "WhenEmptyOrUnderutilized"
    )
    budgets: Annotated[
        list[Budget],
        describe(
            "How many nodes may be disrupted at once; the strictest active budget applies.",
            default=True,
            maxItems=MAX_BUDGETS,
            rules=(("self.all(x, has(x.schedule) == has(x.duration))", "schedule and duration belong together"),),
        ),
    ] = msgspec.field(default_factory=lambda: [Budget()])


class NodePoolSpec(ApiStruct):
    """The desired state of a NodePool."""

    template: Annotated[NodeClaimTemplate, describe("The template of the NodePool's NodeClaims.", required=True)] = (
        NodeClaimTemplate()
    )
    disruption: Annotated[Disruption, describe("When and how fast nodes are disrupted.", default=True)] = Disruption()
    limits: Annotated[
        RawQuantities, describe("The maximum sum of the nodes' capacity, by resource; nodes is their number.")
    ] = {}
    weight: Annotated[
        int, describe("NodePools with a higher weight are tried first.", minimum=1, maximum=MAX_WEIGHT)
    ] = 1
    replicas: Annotated[int | None, describe("A fixed number of nodes, whether pods need them or not.", minimum=0)] = (
        None
    )


class NodePoolStatus(ApiStruct):
    """The observed state of a NodePool."""

    resources: Annotated[RawQuantities, describe("The sum of the nodes' capacity.")] = {}
    nodes: Annotated[int, describe("The number of nodes.", minimum=0)] = 0
    conditions: Annotated[list[Condition], describe("The conditions of the NodePool.")] = []


class NodePool(NamedObject):
    """Nodes of one template: launched for pending pods, and disrupted when they are not needed.

    A NodePool converted from a Provisioner keeps that object's apiVersion and kind, for references.
    """

    spec: Annotated[
        NodePoolSpec,
        describe("The desired state of the NodePool.", required=True, rules=admission_rules.NODE_POOL_SPEC),
    ] = NodePoolSpec()
    status: Annotated[NodePoolStatus, describe("The observed state of the NodePool.")] = NodePoolStatus()
    kind: str = KIND
    api_version: str = API_VERSION

    @property
    def ref(self) -> ObjectRef:
        """The object as the user wrote it."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.name, uid=self.metadata.uid)

    @property
    def has_node_repair(self) -> bool:
        """Whether its owner wants its unhealthy nodes repaired."""
        return self.metadata.annotations.get(labels.NODE_REPAIR) in {"true", "reboot"}

    @property
    def repairs_by_reboot(self) -> bool:
        """Whether its unhealthy nodes are rebooted in place where their repair policy says so."""
        return self.metadata.annotations.get(labels.NODE_REPAIR) == "reboot"

    @property
    def has_own_annotations(self) -> bool:
        """Whether it has annotations of Tenon's, such as those about spot."""
        return any(key.startswith(labels.OWN_PREFIX) for key in self.metadata.annotations)


def node_group_of(pool_name: str) -> str:
    """The node group that a NodePool of this name stands for in decisions; "" if it is a NodePool."""
    return pool_name.removeprefix(NODE_GROUP_PREFIX) if pool_name.startswith(NODE_GROUP_PREFIX) else ""


def pool_title(*pool_names: str) -> str:
    """What users call them: ``NodePool a``, ``NodePools a, b``, ``node group c``, in that order."""
    pools = [name for name in pool_names if not node_group_of(name)]
    groups = [group for name in pool_names if (group := node_group_of(name))]
    titles = (("NodePool", pools), ("node group", groups))
    return " and ".join(f"{kind}{'s' if len(own) > 1 else ''} {', '.join(own)}" for kind, own in titles if own)


def node_class_for(pool: NodePool, node_class: EC2NodeClass) -> EC2NodeClass:
    """The node class for the NodePool: a Provisioner's kubelet settings take precedence over the class's."""
    kubelet = pool.spec.template.spec.kubelet
    if kubelet is None:
        return node_class
    return with_fields(node_class, spec=with_fields(node_class.spec, kubelet=to_json(kubelet)))
