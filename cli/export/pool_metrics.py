"""Metrics of NodePools and node classes: usage, limits, budgets, conditions and pauses. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cli.export import families
from cli.export.exposition import sample
from cli.export.node_metrics import value
from functions.lifecycle.statuses.nodepool_status import BREAKER_REASON, PAUSED
from shared.api.meta import condition
from shared.api.nodepool import REASONS
from shared.api.pause import paused_pools
from shared.api.quantity import QuantityError, parse_resources
from shared.disruption.budgets import allowed_disruptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cli.export.cluster_reader import ClusterState
    from cli.export.exposition import Sample
    from cli.export.families import Family
    from shared.api.meta import Condition
    from shared.api.nodepool import NodePool

_READ_KINDS = ("EC2NodeClass", "Node", "NodeClaim", "NodePool", "Pod")


def samples(state: ClusterState) -> Iterator[Sample]:
    """All metrics of NodePools and node classes."""
    snapshot = state.snapshot
    for pool in snapshot.node_pools:
        yield from _amounts(families.POOL_USAGE, pool.status.resources, pool)
        yield from _amounts(families.POOL_LIMIT, pool.spec.limits, pool)
        yield from _conditions(families.POOL_CONDITIONS, pool.name, pool.status.conditions)
        for reason in REASONS:
            allowed = allowed_disruptions(pool, snapshot, reason=reason, now=snapshot.taken_at)
            yield sample(families.POOL_ALLOWED, allowed, nodepool=pool.name, reason=reason.lower())
        paused = condition(pool.status.conditions, PAUSED)
        is_open = paused is not None and paused.status == "True" and paused.reason == BREAKER_REASON
        yield sample(families.POOL_BREAKER, is_open, nodepool=pool.name)
    if state.is_pause_known:
        pauses = paused_pools(snapshot.node_pools, snapshot.pause, now=snapshot.taken_at)
        yield sample(families.CLUSTER_PAUSED, snapshot.pause is not None)
        for pool in snapshot.node_pools:
            yield sample(families.POOL_PAUSED, pool.name in pauses, nodepool=pool.name)
    for node_class in snapshot.node_classes:
        yield from _conditions(families.CLASS_CONDITIONS, node_class.name, node_class.status.conditions)
    counts = Counter(dict.fromkeys(_READ_KINDS, 0))
    counts.update(invalid.ref.kind for invalid in snapshot.invalid)
    for kind, count in sorted(counts.items()):
        yield sample(families.INVALID, count, kind=kind)


def _amounts(family: Family, raw: Mapping[str, str | int | float], pool: NodePool) -> Iterator[Sample]:
    try:
        amounts = parse_resources(raw)
    except QuantityError:
        return
    for name, amount in amounts.items():
        yield sample(family, value(name, amount), nodepool=pool.name, resource_type=families.resource_type(name))


def _conditions(family: Family, name: str, conditions: Iterable[Condition]) -> Iterator[Sample]:
    for each in {c.type: c for c in conditions}.values():
        yield sample(family, 1, name=name, type=each.type, status=each.status, reason=each.reason)
