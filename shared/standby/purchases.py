"""Which standby nodes are bought: as many as NodePools' annotations ask for and are missing, once a minute at most.

They are planned as replicas of static pools are, but on-demand, of one instance type, without limits (a stopped
instance runs no pods), and in the zones that have the fewest of them. Without a type in the annotation, it is the one
that most of the NodePool's nodes have. EC2 stops no spot instances that a fleet of type instant has launched, and keeps
no instance store, so a NodePool that allows nothing else gets none, and an event says why.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import decode_annotation, is_true
from shared.api.nodeclaim import REGISTERED
from shared.api.nodeclass import EC2NodeClass
from shared.api.standby import wanted_standbys
from shared.base.struct import Struct, with_fields
from shared.cluster import lease_record
from shared.scheduling.rules.requirements import RequirementError, parse
from shared.scheduling.static_pools import plan_nodes
from shared.standby.held_nodes import held_by_pool, without_standbys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.api.standby import WantedStandbys
    from shared.cloud_provider import ResolvedNodePools
    from shared.cluster.client import Client
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.snapshot import Snapshot

RECORD = "standby-purchases"
INTERVAL = timedelta(seconds=55)
"""The least time between two purchases for one NodePool: each sweep of a minute may make one."""

MAX_BATCH = 10
"""The most standby nodes that one purchase has for one NodePool."""


class StandbyPlan(Struct, kw_only=True):
    """The NodeClaims to create by NodePool, and why NodePools can't have what they ask for."""

    by_pool: Mapping[str, tuple[PlannedNodeClaim, ...]]
    problems: Mapping[str, str]


def plan_standbys(snapshot: Snapshot, resolved_pools: ResolvedNodePools, *, enabled: bool) -> StandbyPlan:
    """What is missing now. ``snapshot`` has the standby nodes; ``enabled``: the deployment allows them. Pure."""
    held = held_by_pool(snapshot)
    visible = with_fields(without_standbys(snapshot), cluster_limits={})
    by_pool: dict[str, tuple[PlannedNodeClaim, ...]] = {}
    problems: dict[str, str] = {}
    for pool in snapshot.node_pools:
        wanted = wanted_standbys(pool)
        if not wanted.count and not wanted.error:
            continue
        problem = next(_obstacles(pool, wanted, resolved_pools, enabled=enabled), "")
        own = held.get(pool.name, [])
        missing = min(wanted.count - len(own), MAX_BATCH)
        if pool.name in resolved_pools.on_trial:
            # One machine at a time, because the last one died at boot.
            missing = min(missing, int(all(is_true(c.status.conditions, REGISTERED) for c in own)))
        if not problem and missing > 0:
            planned, problem = _plan(pool, missing, wanted, own, visible, resolved_pools)
            if planned:
                by_pool[pool.name] = planned
        if problem:
            problems[pool.name] = problem
    return StandbyPlan(by_pool=by_pool, problems=problems)


def reserve(client: Client, plan: StandbyPlan, *, cluster: str, now: datetime) -> tuple[PlannedNodeClaim, ...]:
    """The NodeClaims of the NodePools that may buy now. The time is written first, so no run buys twice.

    Raises:
        ApiError: the record can't be read or written.
    """
    if not plan.by_pool:
        return ()
    stored = lease_record.read(client, cluster=cluster, record=RECORD)
    try:
        before = decode_annotation(stored.text, dict[str, datetime]) if stored.text else {}
    except msgspec.MsgspecError:
        before = {}
    recent = {pool: at for pool, at in before.items() if timedelta() <= now - at < INTERVAL}
    due = sorted(plan.by_pool.keys() - recent.keys())
    after = {**recent, **dict.fromkeys(due, now)}
    if not due or not lease_record.write(client, stored, msgspec.json.encode(after).decode()):
        return ()
    return tuple(claim for pool in due for claim in plan.by_pool[pool])


def _obstacles(
    pool: NodePool, wanted: WantedStandbys, resolved_pools: ResolvedNodePools, *, enabled: bool
) -> Iterator[str]:
    """Why the NodePool can have no standby nodes."""
    if wanted.error:
        yield wanted.error
    if not enabled:
        yield "this deployment has no right to stop and start instances: deploy with -c standby=on"
    if pool.spec.replicas is not None:
        yield "a static NodePool (replicas) has no standby nodes"
    if not _allows_on_demand(pool):
        yield "only on-demand instances can be stopped and started again, and the NodePool's requirements allow none"
    node_class = resolved_pools.node_classes.get(pool.name)
    if node_class is None:
        yield resolved_pools.not_ready.get(pool.name) or "the NodePool can't launch now"
    elif isinstance(node_class, EC2NodeClass) and node_class.spec.instance_store_policy:
        yield (
            f"instanceStorePolicy {node_class.spec.instance_store_policy} of {node_class.ref} puts images on instance "
            "store volumes, which lose their data when the instance is stopped"
        )


def _allows_on_demand(pool: NodePool) -> bool:
    try:
        requirements = parse(pool.spec.template.spec.requirements)
    except RequirementError:
        return False
    allowed = requirements.get(names.CAPACITY_TYPE)
    return allowed is None or allowed.has(names.ON_DEMAND)


def _plan(
    pool: NodePool,
    missing: int,
    wanted: WantedStandbys,
    held: Sequence[NodeClaim],
    visible: Snapshot,
    resolved_pools: ResolvedNodePools,
) -> tuple[tuple[PlannedNodeClaim, ...], str]:
    """The missing NodeClaims, one after the other in the zone with the fewest; and why not all."""
    instance_type, error = _instance_type(pool, wanted, held, visible)
    zones = _zones(instance_type, resolved_pools.instance_types.get(pool.name, ()))
    if error or not zones:
        return (), error or f"instance type {instance_type} isn't available on-demand for this NodePool now"
    planned: list[PlannedNodeClaim] = []
    for zone, count in sorted(_spread(missing, zones, held).items()):
        restricted = _restricted(pool, instance_type, zone)
        claims, why = plan_nodes(restricted, count, visible, resolved_pools.instance_types, resolved_pools.not_ready)
        planned += claims
        error = error or why
    return tuple(planned), error


def _instance_type(
    pool: NodePool, wanted: WantedStandbys, held: Sequence[NodeClaim], visible: Snapshot
) -> tuple[str, str]:
    """The type of the NodePool's standby nodes, or why there is none."""
    allowed = parse(pool.spec.template.spec.requirements).get(names.INSTANCE_TYPE)
    only = allowed.single if allowed is not None else None
    own = [c for c in visible.node_claims if c.metadata.labels.get(names.NODEPOOL) == pool.name]
    instance_type = wanted.instance_type or only or _usual_type(own) or _usual_type(held)
    if not instance_type:
        return "", (
            f"no node of the NodePool says yet which instance type its standby nodes should have: name it, as in "
            f'{names.STANDBY}: "{wanted.count} m7i.xlarge", or wait for the first node'
        )
    if allowed is not None and not allowed.has(instance_type):
        return "", f"the NodePool's requirements don't allow instance type {instance_type}"
    return instance_type, ""


def _zones(instance_type: str, types: Iterable[InstanceType]) -> set[str]:
    """The zones in which the type is available on-demand now."""
    return {
        offering.zone
        for t in types
        if t.name == instance_type
        for offering in t.offerings
        if offering.available and offering.capacity_type == names.ON_DEMAND
    }


def _spread(missing: int, zones: Collection[str], held: Sequence[NodeClaim]) -> Counter[str]:
    """How many each zone gets, those with the fewest standby nodes first."""
    counts = Counter(dict.fromkeys(zones, 0))
    counts.update(zone for c in held if (zone := c.metadata.labels.get(names.ZONE, "")) in zones)
    new: Counter[str] = Counter()
    for _ in range(missing):
        zone = min(counts, key=lambda z: (counts[z], z))
        counts[zone] += 1
        new[zone] += 1
    return new


def _restricted(pool: NodePool, instance_type: str, zone: str) -> NodePool:
    """The NodePool for one standby node: without limits, and with requirements on its offering."""
    fixed = {names.CAPACITY_TYPE: names.ON_DEMAND, names.INSTANCE_TYPE: instance_type, names.ZONE: zone}
    template = pool.spec.template
    requirements = [
        *template.spec.requirements,
        *(NodeSelectorRequirement(key=key, operator="In", values=[value]) for key, value in fixed.items()),
    ]
    template = with_fields(template, spec=with_fields(template.spec, requirements=requirements))
    return with_fields(pool, spec=with_fields(pool.spec, template=template, limits={}))


def _usual_type(claims: Sequence[NodeClaim]) -> str:
    """The instance type that most of these NodeClaims have; "" without any."""
    types = Counter(t for c in claims if (t := c.metadata.labels.get(names.INSTANCE_TYPE)))
    return min(types, key=lambda t: (-types[t], t), default="")
