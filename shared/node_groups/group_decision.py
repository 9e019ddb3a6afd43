"""The decision for NodePools and node groups together, in the order of the expanders."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from shared.api.zonal_shift import format_shifts
from shared.base.struct import Struct, with_fields
from shared.node_groups import expander
from shared.node_groups.group_pools import instance_types, present, scale_ups
from shared.scheduling.decision import Decision, Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.instance_type import InstanceType
    from shared.node_groups.expander import Priorities
    from shared.node_groups.group_pools import GroupPool
    from shared.node_groups.options import NodeGroupOptions
    from shared.snapshot import Snapshot


KnownTypes: TypeAlias = "dict[str, tuple[InstanceType, ...]]"
"""The instance types of groups, by the name of their pool."""


class GroupDecision(Struct, kw_only=True):
    """A decision, and the groups as it ranked them; ``weights`` are those of the expanders by group, if they did."""

    decision: Decision
    pools: tuple[GroupPool, ...]
    weights: Mapping[str, int] = {}


def decide(
    pools: tuple[GroupPool, ...],
    options: NodeGroupOptions,
    priorities: Priorities,
    snapshot: Snapshot,
    resolved_pools: ResolvedNodePools,
    leaving: frozenset[str] = frozenset(),
    *,
    known: KnownTypes | None = None,
) -> GroupDecision:
    """The decision for NodePools and groups together, in the order of the expanders where these say one.

    ``known`` are the groups' instance types of earlier decisions: arrays are built from the same tuples only once.
    """
    known = {} if known is None else known
    pools = _held_by_shifts(pools, snapshot) if snapshot.shifted_zones else pools
    decision = _schedule(pools, snapshot, resolved_pools, leaving, known)
    if not expander.is_ranking(options) or not scale_ups(decision, pools):
        return GroupDecision(decision=decision, pools=pools)
    without_own = with_fields(resolved_pools, instance_types={})
    weights = expander.weights(
        [pool for pool in pools if not pool.held],
        options,
        alone=lambda pool: _schedule((pool,), snapshot, without_own, leaving, known),
        priorities=priorities,
    )
    ranked = tuple(with_fields(pool, weight=weights.get(pool.group.name, pool.weight)) for pool in pools)
    decision = _schedule(ranked, snapshot, resolved_pools, leaving, known)
    return GroupDecision(decision=decision, pools=ranked, weights=weights)


def _held_by_shifts(pools: tuple[GroupPool, ...], snapshot: Snapshot) -> tuple[GroupPool, ...]:
    """The groups; those that launch only in zones that traffic is shifted away from are asked for nothing."""
    shifts = snapshot.shifted_zones
    why = "traffic is shifted away from all its zones: {}"
    return tuple(
        with_fields(pool, held=pool.held or why.format(format_shifts(shifts, zones)))
        if zones and shifts.keys() >= zones
        else pool
        for pool in pools
        for zones in [set(pool.group.zones)]
    )


def with_groups(
    resolved_pools: ResolvedNodePools, pools: tuple[GroupPool, ...], known: KnownTypes | None = None
) -> ResolvedNodePools:
    """What NodePools and groups can launch, and why some launch nothing now."""
    known = {} if known is None else known
    return with_fields(
        resolved_pools,
        instance_types={**resolved_pools.instance_types, **{pool.pool_name: _types(pool, known) for pool in pools}},
        not_ready={**resolved_pools.not_ready, **{pool.pool_name: pool.held for pool in pools if pool.held}},
    )


def _schedule(
    pools: tuple[GroupPool, ...],
    snapshot: Snapshot,
    resolved_pools: ResolvedNodePools,
    leaving: frozenset[str],
    known: KnownTypes,
) -> Decision:
    everything = with_groups(resolved_pools, pools, known)
    return schedule(
        Problem(
            snapshot=present(snapshot, pools),
            instance_types=everything.instance_types,
            not_ready=everything.not_ready,
            leaving=leaving,
            unused=resolved_pools.unused,
        )
    )


def _types(pool: GroupPool, known: KnownTypes) -> tuple[InstanceType, ...]:
    """The group's instance type; the same tuple for as long as it is the same, as arrays are built from it."""
    types = instance_types(pool)
    if known.get(pool.pool_name) != types:
        known[pool.pool_name] = types
    return known[pool.pool_name]
