"""Runs ``tenon plan``: reads a cluster, computes the plan and prints it. It writes nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cli import json_output, terminal
from cli.cluster import offerings
from cli.cluster.observed_cluster import as_decided
from cli.cluster.pricing import cluster_cost
from cli.cluster.reader import open_cluster
from cli.errors import UsageError
from cli.plan import additions, json_plan, output, planned_pods, planning, what_if
from cli.printable import echo
from cli.progress import progress
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.cluster.cluster_reference import ClusterReference
    from cli.cluster.observed_cluster import ObservedCluster
    from cli.plan.planning import Plan
    from shared.cloud_provider import ResolvedNodePools


class Assumptions(Struct):
    """What the plan assumes, as the options say it. ``namespace`` is that of names and objects without one."""

    changes: Sequence[str]
    without: Sequence[str]
    added: Sequence[Path]
    namespace: str

    def __str__(self) -> str:
        added = (f"with {path.name}" for path in self.added)
        return ", ".join([*added, *self.changes, *(f"without {word}" for word in self.without)])


def run(
    files: Sequence[Path] | None,
    reference: ClusterReference,
    assumptions: Assumptions,
    *,
    search: float,
    aws: bool,
    as_json: bool,
) -> None:
    """Print the plan. ``search`` is the time limit of the consolidation search, in seconds."""
    with open_cluster(files, reference, aws=aws) as observed:
        with progress("Planning"):
            current = as_decided(observed)
            changes = [what_if.parse(text, namespace=assumptions.namespace) for text in assumptions.changes]
            changed = what_if.apply(additions.add(current, assumptions.added, namespace=assumptions.namespace), changes)
            computed = _compute(current, changed, assumptions.without, search)
        if as_json:
            echo(json_output.text("plan", json_plan.output(changed, computed)))
        else:
            output.show(terminal.console(), changed, computed, assumptions=str(assumptions))


def _compute(before: ObservedCluster, changed: ObservedCluster, without: Sequence[str], search: float) -> Plan:

    resolved_pools = changed.offerings.resolve_pools(changed.snapshot)
    lost = what_if.nodes_of(changed.snapshot, without)
    if without:
        _validate(changed, resolved_pools, without)
        resolved_pools = offerings.without(resolved_pools, without)
    end = time.monotonic() + search
    computed = planning.make_plan(changed, resolved_pools, lost=lost, should_stop=lambda: time.monotonic() >= end)
    cost, unpriced = cluster_cost(before.snapshot, resolved_pools)
    traffic = planned_pods.planned_traffic(before.services(), before.snapshot, computed)
    return with_fields(computed, cost_before=cost, unpriced=unpriced, traffic=traffic)


def _validate(observed: ObservedCluster, resolved_pools: ResolvedNodePools, without: Sequence[str]) -> None:
    """Refuse words that name no offering: the plan would silently ignore them."""
    words = {
        word
        for types in resolved_pools.instance_types.values()
        for t in types
        for o in t.offerings
        for word in (t.name, t.name.partition(".")[0], o.zone, o.capacity_type)
    }
    unknown = [w for w in without if w not in words]
    if unknown and observed.snapshot.node_pools:
        raise UsageError(
            f'--without "{unknown[0]}" is no capacity type, zone, instance type or family that a NodePool of this '
            "cluster can launch"
        )
