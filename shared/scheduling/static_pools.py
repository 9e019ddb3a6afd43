"""Static NodePools (``replicas``): which nodes count as replicas, which are missing, and the NodeClaims for them.

Their nodes exist whether or not pods need them. They are planned as if each needed one pod with a node of its own, so
requirements, taints, DaemonSets, minValues and limits hold for them as for all others, and the cheapest is chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.kubernetes import Affinity, Pod, PodAffinity, PodAffinityTerm, PodSpec, PodStatus, Toleration
from shared.api.meta import Condition, LabelSelector, ObjectMeta
from shared.api.pods import is_daemon
from shared.base.plurals import plural
from shared.base.struct import with_fields
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.scheduling.state.cluster_usage import less_planned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.snapshot import Snapshot

_LABEL = {"tenon.sh/place": "static"}


def static_pools(snapshot: Snapshot) -> Iterator[NodePool]:
    """The static pools that aren't being deleted."""
    return (p for p in snapshot.node_pools if p.spec.replicas is not None and p.metadata.deletion_timestamp is None)


def active_claims(pool: NodePool, snapshot: Snapshot, replaced: Collection[str]) -> tuple[NodeClaim, ...]:
    """The claims that count as the pool's replicas: neither deleted nor ``replaced`` (names) by an existing claim."""
    return tuple(
        c
        for c in snapshot.node_claims
        if c.metadata.labels.get(names.NODEPOOL) == pool.name
        and c.metadata.deletion_timestamp is None
        and c.name not in replaced
    )


def missing_replicas(
    snapshot: Snapshot,
    instance_types: Mapping[str, tuple[InstanceType, ...]],
    not_ready: Mapping[str, str],
    replaced: Collection[str],
) -> tuple[tuple[PlannedNodeClaim, ...], Mapping[str, str]]:
    """The NodeClaims that static pools lack, and by pool why not all of them can be launched."""
    planned: list[PlannedNodeClaim] = []
    errors: dict[str, str] = {}
    for pool in static_pools(snapshot):
        missing = (pool.spec.replicas or 0) - len(active_claims(pool, snapshot, replaced))
        claims, error = plan_nodes(pool, missing, snapshot, instance_types, not_ready)
        planned += claims
        if error:
            errors[pool.name] = (
                f"{missing - len(claims)} of {plural(pool.spec.replicas or 0, 'replica')} can't be launched: {error}"
            )
        if claims and snapshot.cluster_limits:
            snapshot = _after(claims, snapshot, instance_types)
    return tuple(planned), errors


def _after(
    planned: Iterable[PlannedNodeClaim], snapshot: Snapshot, instance_types: Mapping[str, tuple[InstanceType, ...]]
) -> Snapshot:
    """The snapshot with what these NodeClaims leave of the limits over all NodePools."""
    return with_fields(snapshot, cluster_limits=less_planned(snapshot.cluster_limits, planned, instance_types))


def plan_nodes(
    pool: NodePool,
    count: int,
    snapshot: Snapshot,
    instance_types: Mapping[str, tuple[InstanceType, ...]],
    not_ready: Mapping[str, str],
) -> tuple[tuple[PlannedNodeClaim, ...], str]:
    """``count`` more nodes of the pool or as many as can be launched, and why not all (empty: they all can).

    Existing nodes of the snapshot aren't used for them, but count against the pool's limits.
    """
    if count < 1:
        return (), ""
    placeholders = tuple(_placeholder_pod(i) for i in range(count))
    daemons = (pod for pod in snapshot.pods if is_daemon(pod))
    dynamic_pool = with_fields(pool, spec=with_fields(pool.spec, replicas=None))
    decision = schedule(
        Problem(
            snapshot=with_fields(
                snapshot, pods=(*daemons, *placeholders), node_pools=(dynamic_pool,), capacity_buffers=()
            ),
            instance_types=instance_types,
            not_ready=not_ready,
            leaving=frozenset(n.metadata.name for n in snapshot.nodes) | {c.name for c in snapshot.node_claims},
            pods=frozenset(p.key for p in placeholders),
        )
    )
    claims = tuple(with_fields(c, pods=()) for c in decision.new_node_claims)
    return claims, next((error.message for _, error in sorted(decision.pod_errors.items())), "")


def _placeholder_pod(index: int) -> Pod:
    """A pod that requests nothing, needs a node of its own and tolerates every taint."""
    anti_affinity = PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=LabelSelector(match_labels=_LABEL))
    name = f"static-{index:05d}"
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name, labels=_LABEL),
        spec=PodSpec(
            tolerations=[Toleration(operator="Exists")],
            affinity=Affinity(
                pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=[anti_affinity])
            ),
        ),
        status=PodStatus(
            phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]
        ),
    )
