"""What scheduling is asked and what it answers.

``schedule(problem)`` in ``shared.scheduling.scheduler`` turns a :class:`Problem` into a :class:`Decision`; both are
plain values, so the functions, disruption and the command line all ask in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.kubernetes import NodeSelectorRequirement, Taint
    from shared.api.quantity import Resources
    from shared.instance_types.instance_type import InstanceType
    from shared.snapshot import Snapshot

MAX_INSTANCE_TYPES = 60
"""A claim lists at most so many types: as many as a CreateFleet request takes."""


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicies:
    """``preference_policy`` Respect | Ignore; ``min_values_policy`` Strict | BestEffort."""

    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The cluster, and for each NodePool the instance types its nodes may be.

    Types differ between pools because the node class (kubelet settings, block devices) changes what fits.
    ``not_ready`` maps a pool that can't launch now to the reason; pods that only it could take are told that reason.
    ``leaving`` names nodes that are being removed: nothing is placed there, and their pods are placed elsewhere.
    ``pods`` limits the answer to those pod keys (None: every provisionable pod, and those of leaving nodes).
    """

    snapshot: Snapshot
    instance_types: Mapping[str, tuple[InstanceType, ...]]
    not_ready: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    pods: frozenset[str] | None = None
    policies: SchedulingPolicies = SchedulingPolicies()


@dataclass(frozen=True, kw_only=True)
class CheapestOffering:
    """The cheapest available offering of a claim; price in USD per hour."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float


@dataclass(frozen=True, kw_only=True)
class PlannedNodeClaim:
    """A machine to ask for.

    ``instance_types`` are cheapest first, at most :data:`MAX_INSTANCE_TYPES`; ``requirements`` are complete (the
    pool's, the pods', and what topology pinned), ``requests`` are the pods' plus those of the daemons there, ``labels``
    those that the node gets besides what its instance type and offering say.
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


@dataclass(frozen=True, kw_only=True)
class UnschedulableReason:
    """Why a pod got no place: one sentence for a person, and the criterion that failed, per pool."""

    message: str
    criteria: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Where each pod goes: a new claim, an existing node or in-flight claim (by name), or nowhere with a reason.

    ``deferred`` are pods that wait for machines which an earlier decision bought; nothing is bought for them now.
    Pod keys are ``namespace/name``. ``stats`` are figures for logs and metrics, never part of the decision.
    """

    new_node_claims: tuple[PlannedNodeClaim, ...] = ()
    existing_nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pod_errors: Mapping[str, UnschedulableReason] = field(default_factory=dict)
    deferred: frozenset[str] = frozenset()
    stats: Mapping[str, float] = field(default_factory=dict)
