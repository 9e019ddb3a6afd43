"""Machines of static pools (``replicas``), which are there whether or not pods need them.

They are asked for as if that many pods each needed a machine of its own: so requirements, taints, daemons, minValues
and limits hold for them as for all others, and the cheapest is chosen in the same way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from shared.api import labels as names
from shared.api.kubernetes import Affinity, Pod, PodAffinity, PodAffinityTerm, PodSpec, PodStatus, Toleration
from shared.api.meta import Condition, LabelSelector, ObjectMeta
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.nodepool import NodePool
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.snapshot import Snapshot

_LABEL = {"tenon.sh/place": "static"}


def plan_nodes(
    pool: NodePool,
    count: int,
    snapshot: Snapshot,
    instance_types: Mapping[str, tuple[InstanceType, ...]],
    not_ready: Mapping[str, str],
) -> tuple[tuple[PlannedNodeClaim, ...], str]:
    """So many more machines of the pool, or as many as can be had, and why not more (empty: they are all there).

    Nothing of the snapshot is room for them, but everything counts against the pool's limits.
    """
    if count < 1:
        return (), ""
    places = tuple(_place(i) for i in range(count))
    decision = schedule(
        Problem(
            snapshot=replace(
                snapshot, pods=places, node_pools=(with_fields(pool, spec=with_fields(pool.spec, replicas=None)),)
            ),
            instance_types=instance_types,
            not_ready=not_ready,
            leaving=frozenset(n.metadata.name for n in snapshot.nodes) | {c.name for c in snapshot.node_claims},
            pods=frozenset(p.key for p in places),
        )
    )
    claims = tuple(replace(c, pods=()) for c in decision.new_node_claims)
    return claims, next((r.message for _, r in sorted(decision.pod_errors.items())), "")


def _place(index: int) -> Pod:
    """A pod that wants nothing but a node of its own and bears everything there."""
    apart = PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=LabelSelector(match_labels=_LABEL))
    return Pod(
        metadata=ObjectMeta(name=f"static-{index:05d}", namespace="default", uid=f"static-{index:05d}", labels=_LABEL),
        spec=PodSpec(
            tolerations=[Toleration(operator="Exists")],
            affinity=Affinity(
                pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=[apart])
            ),
        ),
        status=PodStatus(
            phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]
        ),
    )
