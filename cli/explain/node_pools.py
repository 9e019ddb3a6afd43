"""Why a NodePool launches or doesn't: its class, its types, its limits, and how many of its nodes may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.cluster.pricing import nodes_cost, offering_prices
from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section
from cli.plan.planning import plan_launches
from shared.api import labels as names
from shared.api.quantity import NODES, QuantityError, add, format_quantity, parse_resources
from shared.api.taints import format_taint
from shared.disruption.budgets import allowed_disruptions
from shared.disruption.command import DRIFTED, EMPTY, UNDERUTILIZED
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options

if TYPE_CHECKING:
    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.nodepool import NodePool
    from shared.launch.resolved_node_pools import ResolvedNodePools


def explain(observed: ObservedCluster, name: str) -> Explanation:
    """Why the pool launches nothing, or what it could launch.

    Raises:
        UsageError: there is no such pool.
    """
    invalid = next(
        (i for i in observed.snapshot.invalid if i.ref.name == name and i.ref.kind in {"NodePool", "Provisioner"}), None
    )
    pool = next((p for p in observed.snapshot.node_pools if p.name == name), None)
    if pool is None and invalid is not None:
        return Explanation(
            subject=str(invalid.ref),
            state="can't be used",
            reason=invalid.problems[0],
            criterion="invalid",
            sections=(
                Section(
                    title="What is wrong with it",
                    checks=tuple(
                        Check(what=p.partition(":")[0], ok=False, detail=p.partition(": ")[2]) for p in invalid.problems
                    ),
                ),
            ),
        ).with_words(observed.history.events(invalid.ref))
    if pool is None:
        there = ", ".join(sorted(p.name for p in observed.snapshot.node_pools)) or "none"
        raise UsageError(f'there is no NodePool "{name}" (there: {there})')
    resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
    sections = (
        Section(title="Launching", checks=_launching(observed, resolved_pools, pool)),
        Section(title="Nodes", checks=_nodes(observed, resolved_pools, pool)),
        Section(title="May go now", checks=_budgets(observed, pool)),
    )
    first = next((c for c in sections[0].checks if c.ok is False), None)
    if first is not None:
        state, reason, criterion = "launches nothing", f"{first.what}: {first.detail}", first.what
    else:
        state, reason, criterion = "can launch", _waiting(observed, resolved_pools, pool), "ready"
    return Explanation(
        subject=str(pool.ref), state=state, reason=reason, criterion=criterion, sections=sections
    ).with_words(observed.history.events(pool.ref))


def _waiting(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pool: NodePool) -> str:
    decision = plan_launches(observed, resolved_pools)
    own = [c for c in decision.new_node_claims if c.node_pool == pool.name]
    if own:
        pods = sum(len(c.pods) for c in own)
        return f"the next decision asks it for {terminal.plural(len(own), 'node')} for {terminal.plural(pods, 'pod')}"
    refused = [r for r in decision.pod_errors.values() if pool.name in r.criteria]
    if refused:
        waiting, why = terminal.plural(len(refused), "pod"), refused[0].criteria[pool.name]
        return f"{waiting} can't be placed, and it isn't the one for them: {why}"
    return "no pod waits for a node of it"


def _launching(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pool: NodePool) -> tuple[Check, ...]:
    if pool.metadata.deletion_timestamp is not None:
        return (Check(what="being deleted", ok=False, detail="its nodes are drained, and nothing new comes"),)
    obstacle = resolved_pools.not_ready.get(pool.name)
    wanted = pool.spec.template.spec.node_class_ref
    checks = [Check(what="node class", ok=obstacle is None, detail=obstacle or f"{wanted.kind} {wanted.name} is ready")]
    if obstacle is not None:
        return tuple(checks)
    if pool.spec.replicas is not None:
        checks.append(Check(what="replicas", ok=None, detail=f"static: {pool.spec.replicas} nodes, whatever pods ask"))
    else:
        checks += _types(observed, resolved_pools, pool)
    checks += _limits(observed, pool)
    taints = ", ".join(format_taint(t) for t in pool.spec.template.spec.taints)
    checks.append(
        Check(what="taints", ok=None, detail=f"{taints}: only pods that tolerate them come" if taints else "none")
    )
    checks.append(
        Check(
            what="weight",
            ok=None,
            detail=f"{pool.spec.weight} of {max(p.spec.weight for p in observed.snapshot.node_pools)} at most",
        )
    )
    return tuple(checks)


def _types(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pool: NodePool) -> list[Check]:
    all_types = resolved_pools.instance_types.get(pool.name, ())
    launch_options = build_launch_options(
        [pool],
        resolved_pools.instance_types,
        daemon_set_pods(observed.snapshot.daemon_sets),
        {},
        {"cpu", "memory", "pods"},
    )
    if pool.name in launch_options.unusable_pools:
        return [Check(what="instance types", ok=False, detail=launch_options.unusable_pools[pool.name])]
    if not len(launch_options.price):
        possible = [t for t in all_types if t.offerings]
        out = sum(not o.available for t in possible for o in t.offerings)
        why = f"none of {len(all_types)} is allowed by its requirements and can be had now"
        return [
            Check(
                what="instance types", ok=False, detail=why + (f"; {out} offerings have no capacity now" if out else "")
            )
        ]
    least = launch_options.price.min(1)
    row = int(least.argmin())
    at = dict(launch_options.offerings[int(launch_options.price[row].argmin())])
    place = f"{at.get(names.CAPACITY_TYPE, '')}, {at.get(names.ZONE, '')}"
    cheapest = f"{launch_options.instance_type_of(row)}, {place}, {terminal.usd(float(least[row]))}/h"
    return [
        Check(
            what="instance types",
            ok=True,
            detail=f"{len(launch_options.price)} of {len(all_types)} are allowed and can be had",
        ),
        Check(what="the cheapest", ok=None, detail=cheapest),
    ]


def _limits(observed: ObservedCluster, pool: NodePool) -> list[Check]:
    try:
        limits = parse_resources(pool.spec.limits)
        claims = [c for c in observed.snapshot.node_claims if c.metadata.labels.get(names.NODEPOOL) == pool.name]
        used = add(*(parse_resources(c.status.capacity) for c in claims)) if claims else {}
    except QuantityError as error:
        return [Check(what="limits", ok=False, detail=str(error))]
    used = {**used, NODES: len(claims)}
    if not limits:
        return [Check(what="limits", ok=None, detail="none")]
    return [
        Check(
            what=f"limit on {name}",
            ok=used.get(name, 0) < limit,
            detail=f"{_amount(name, used.get(name, 0))} of {_amount(name, limit)} are taken",
        )
        for name, limit in sorted(limits.items())
    ]


def _amount(name: str, amount: int) -> str:
    return str(amount) if name == NODES else format_quantity(name, amount)


def _nodes(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pool: NodePool) -> tuple[Check, ...]:
    own = [n for n in observed.snapshot.nodes if n.metadata.labels.get(names.NODEPOOL) == pool.name]
    price, _ = nodes_cost(own, offering_prices(resolved_pools))
    coming = [
        c for c in observed.snapshot.node_claims
        if c.metadata.labels.get(names.NODEPOOL) == pool.name and not c.status.node_name
    ]  # fmt: skip
    detail = f"{len(own)}, {terminal.usd(price)}/h" + (f", {len(coming)} on their way" if coming else "")
    return (Check(what="nodes", ok=None, detail=detail),)


def _budgets(observed: ObservedCluster, pool: NodePool) -> tuple[Check, ...]:
    return tuple(
        Check(
            what=reason,
            ok=None,
            detail=terminal.plural(
                allowed_disruptions(pool, observed.snapshot, reason=reason, now=observed.now), "node"
            ),
        )
        for reason in (EMPTY, DRIFTED, UNDERUTILIZED)
    )
