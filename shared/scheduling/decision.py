"""The input and the output of scheduling: ``scheduler.schedule`` turns a :class:`Problem` into a :class:`Decision`.

Both are plain values, so the functions, disruption and the command line use scheduling in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.kubernetes import NodeSelectorRequirement, Taint
    from shared.api.quantity import Resources
    from shared.commitments.balance import Balance
    from shared.instance_types.instance_type import InstanceType
    from shared.snapshot import Snapshot

MAX_INSTANCE_TYPES = 60
"""Instance types that a NodeClaim lists at most: as many as a CreateFleet request takes."""


class SchedulingPolicies(Struct, kw_only=True):
    """``preference_policy`` Respect | Ignore; ``min_values_policy`` Strict | BestEffort. As Karpenter's settings."""

    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"


class Problem(Struct, kw_only=True, eq=False):
    """The cluster, and the instance types of each NodePool.

    Instance types differ between NodePools, as node classes (kubelet settings, block devices) change what is
    allocatable. ``not_ready`` maps NodePools that can't launch now to the reason, for pods that only they could take.
    ``leaving`` are nodes that are being removed: no pod is scheduled on them, and their pods are scheduled elsewhere.
    ``pods`` limits the decision to these (namespace/name); None: all provisionable pods, and those of leaving nodes.
    ``unused`` is what is left of commitments, which nodes may use without further cost.
    """

    snapshot: Snapshot
    instance_types: Mapping[str, tuple[InstanceType, ...]]
    not_ready: Mapping[str, str] = {}
    leaving: frozenset[str] = frozenset()
    pods: frozenset[str] | None = None
    policies: SchedulingPolicies = SchedulingPolicies()
    unused: Balance | None = None


class CheapestOffering(Struct, kw_only=True):
    """The cheapest available offering of a NodeClaim, by effective price; prices in USD per hour, as an offering's."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float
    adjusted_price: float | None = None
    volume_price: float = 0.0

    @property
    def effective_price(self) -> float:
        """USD per hour that decisions compare."""
        return (self.price if self.adjusted_price is None else self.adjusted_price) + self.volume_price


class PlannedNodeClaim(Struct, kw_only=True):
    """A NodeClaim to create.

    ``instance_types`` are cheapest first, at most :data:`MAX_INSTANCE_TYPES`. ``requirements`` are complete: the
    NodePool's, the pods', and the chosen domains. ``requests`` are those of the pods, the chunks of CapacityBuffers and
    DaemonSets. ``labels`` are the node's labels besides those of its instance type and offering. ``is_committed``: a
    commitment pays the node, at least in part. ``min_types`` is the least number of instance types that its NodePool
    wants listed. ``saved_resources`` are limited ones of which cheaper instance types would take more. ``expected`` is
    for how many pods that don't exist yet it has room besides.
    """

    node_pool: str
    pods: tuple[str, ...]
    instance_types: tuple[str, ...]
    requirements: tuple[NodeSelectorRequirement, ...]
    requests: Resources
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    cheapest: CheapestOffering
    min_values_relaxed: bool = False
    chunks: tuple[str, ...] = ()
    is_committed: bool = False
    min_types: int = 0
    saved_resources: tuple[str, ...] = ()
    expected: int = 0


class UnschedulableReason(Struct, kw_only=True):
    """Why a pod is unschedulable: one sentence, and the criterion that failed by NodePool."""

    message: str
    criteria: Mapping[str, str] = {}


class Decision(Struct, kw_only=True):
    """The new or existing node of each pod (namespace/name), or why it has none.

    ``existing_nodes`` are by name of the node, or of the NodeClaim while it has none. ``deferred`` pods wait for nodes
    that an earlier decision launched; nothing is launched for them now. ``stats`` are figures for logs and metrics.
    The chunks of CapacityBuffers are apart from pods: by node in ``chunks``, and in ``chunk_errors``.
    """

    new_node_claims: tuple[PlannedNodeClaim, ...] = ()
    existing_nodes: Mapping[str, tuple[str, ...]] = {}
    pod_errors: Mapping[str, UnschedulableReason] = {}
    deferred: frozenset[str] = frozenset()
    chunks: Mapping[str, tuple[str, ...]] = {}
    chunk_errors: Mapping[str, UnschedulableReason] = {}
    stats: Mapping[str, float] = {}


class Placement(Struct, kw_only=True, eq=False):
    """Where one plan puts pods: new NodeClaims, existing nodes, or why they are unscheduled."""

    node_claims: tuple[PlannedNodeClaim, ...] = ()
    existing_nodes: Mapping[str, tuple[str, ...]] = {}
    errors: Mapping[str, UnschedulableReason] = {}
