"""Why a NodePool can or can't launch nodes: its node class, instance types, limits, and disruption budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.cluster.pricing import nodes_cost, offering_prices
from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section, explain_invalid
from cli.plan.planning import plan_launches
from shared.api import labels as names
from shared.api.cluster_limits import describe, is_reached, used_by_claims
from shared.api.hourly_limits import HourlyUse
from shared.api.nodepool import NODE_GROUP_KIND
from shared.api.pause import paused_pools
from shared.api.quantity import NODES, QuantityError, add, format_quantity, parse_resources
from shared.api.taints import format_taint
from shared.base.plurals import plural
from shared.disruption.budgets import allowed_disruptions, budget_problems, hold
from shared.disruption.command import DRIFTED, EMPTY, UNDERUTILIZED
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options

if TYPE_CHECKING:
    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import ResolvedNodePools


def explain(observed: ObservedCluster, name: str) -> Explanation:
    """What the NodePool would launch now, or why it can't launch nodes.

    Raises:
        UsageError: the NodePool doesn't exist.
    """
    snapshot = observed.snapshot
    pools = [p for p in snapshot.node_pools if p.kind != NODE_GROUP_KIND]
    pool = next((p for p in pools if p.name == name), None)
    if pool is not None:
        return _explain_valid(observed, pool)
    invalid = next(
        (i for i in snapshot.invalid if i.ref.name == name and i.ref.kind in {"NodePool", "Provisioner"}), None
    )
    if invalid is not None:
        return explain_invalid(invalid, observed.history.events(invalid.ref))
    if runner := snapshot.foreign_pools.get(name):
        return Explanation(
            subject=f"NodePool {name}", state="isn't Tenon's", reason=runner, criterion="nodeClassRef.group"
        )
    pool_names = ", ".join(sorted(p.name for p in pools)) or "none"
    raise UsageError(f'there is no NodePool "{name}" (there: {pool_names})')


def _explain_valid(observed: ObservedCluster, pool: NodePool) -> Explanation:
    resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
    launch_checks = _launching(observed, resolved_pools, pool)
    failed = next((c for c in launch_checks if c.ok is False), None)
    if failed is not None:
        state, reason, criterion = "can't launch nodes", f"{failed.name}: {failed.detail}", failed.name
    else:
        state, reason, criterion = "can launch nodes", next_launch(observed, resolved_pools, pool), "ready"
    return Explanation(
        subject=str(pool.ref),
        state=state,
        reason=reason,
        criterion=criterion,
        sections=(
            Section(title="Launching", checks=launch_checks),
            Section(title="Nodes", checks=_nodes(observed, resolved_pools, pool)),
            Section(title="Allowed disruptions", checks=_budgets(observed, pool)),
        ),
    ).with_history(observed.history.events(pool.ref))


def next_launch(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pool: NodePool) -> str:
    """What the next decision launches of the NodePool, or why it launches nothing."""
    decision = plan_launches(observed, resolved_pools)
    claims = [c for c in decision.new_node_claims if c.node_pool == pool.name]
    if claims:
        pods = sum(len(c.pods) for c in claims)
        return f"the next decision launches {plural(len(claims), 'node')} for {plural(pods, 'pod')}"
    errors = [e for e in decision.pod_errors.values() if pool.name in e.criteria]
    if errors:
        return f"{plural(len(errors), 'pod')} can't be scheduled on its nodes: {errors[0].criteria[pool.name]}"
    return "no pending pod needs a node of it"


def _launching(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pool: NodePool) -> tuple[Check, ...]:
    if pool.metadata.deletion_timestamp is not None:
        return (Check(name="being deleted", ok=False, detail="its nodes are drained, and it launches no more"),)
    pauses = paused_pools((pool,), observed.snapshot.pause, now=observed.now)
    if pauses:
        return (Check(name="paused", ok=False, detail=pauses[pool.name].message),)
    not_ready = resolved_pools.not_ready.get(pool.name)
    template = pool.spec.template.spec
    node_class = f"{template.node_class_ref.kind} {template.node_class_ref.name} is ready"
    checks = [Check(name="node class", ok=not_ready is None, detail=not_ready or node_class)]
    if not_ready is not None:
        return tuple(checks)
    if pool.spec.replicas is not None:
        detail = f"static: {plural(pool.spec.replicas, 'node')}, independent of pods"
        checks.append(Check(name="replicas", ok=None, detail=detail))
    else:
        checks += _types(observed, resolved_pools, pool)
    volumes = resolved_pools.volume_prices.get(pool.name)
    if volumes:
        detail = f"{terminal.usd(volumes)}/h a node, which decisions count in addition to the price of the instance"
        checks.append(Check(name="volumes", ok=None, detail=detail))
    short = resolved_pools.short_zones.get(pool.name)
    if short:
        detail = f"{', '.join(short)}: nodes are launched in other zones"
        checks.append(Check(name="free addresses", ok=None, detail=detail))
    checks += _limits(observed, pool)
    if observed.snapshot.cluster_limits:
        checks += _cluster_limits(observed)
    checks.append(_last_hour(observed, pool))
    taints = ", ".join(format_taint(t) for t in template.taints)
    checks.append(Check(name="taints", ok=None, detail=f"{taints}: pods must tolerate them" if taints else "none"))
    highest = max(p.spec.weight for p in observed.snapshot.node_pools)
    checks.append(Check(name="weight", ok=None, detail=f"{pool.spec.weight} (highest of all NodePools: {highest})"))
    return tuple(checks)


def _types(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pool: NodePool) -> list[Check]:
    all_types = resolved_pools.instance_types.get(pool.name, ())
    launch_options = build_launch_options(
        [pool],
        resolved_pools.instance_types,
        daemon_set_pods(observed.snapshot),
        {},
        {"cpu", "memory", "pods"},
    )
    if pool.name in launch_options.unusable_pools:
        return [Check(name="instance types", ok=False, detail=launch_options.unusable_pools[pool.name])]
    if not len(launch_options.price):
        unavailable = sum(not o.available for t in all_types for o in t.offerings)
        detail = f"none of {len(all_types)} meets its requirements and has capacity"
        if unavailable:
            detail += f"; {plural(unavailable, 'offering')} without capacity"
        return [Check(name="instance types", ok=False, detail=detail)]
    prices = launch_options.price.min(1)
    row = int(prices.argmin())
    offering = dict(launch_options.offerings[int(launch_options.price[row].argmin())])
    cheapest = ", ".join(
        [
            launch_options.instance_type_of(row),
            offering.get(names.CAPACITY_TYPE, ""),
            offering.get(names.ZONE, ""),
            f"{terminal.usd(float(prices[row]))}/h",
        ]
    )
    detail = f"{len(launch_options.price)} of {len(all_types)} meet its requirements and have capacity"
    return [
        Check(name="instance types", ok=True, detail=detail),
        Check(name="cheapest", ok=None, detail=cheapest),
    ]


def _limits(observed: ObservedCluster, pool: NodePool) -> list[Check]:
    try:
        limits = parse_resources(pool.spec.limits)
        claims = [c for c in observed.snapshot.node_claims if c.metadata.labels.get(names.NODEPOOL) == pool.name]
        used = add(*(parse_resources(c.status.capacity) for c in claims)) if claims else {}
    except QuantityError as error:
        return [Check(name="limits", ok=False, detail=str(error))]
    used = {**used, NODES: len(claims)}
    if not limits:
        return [Check(name="limits", ok=None, detail="none")]
    return [
        Check(
            name=f"limit on {name}",
            ok=used.get(name, 0) < limit,
            detail=f"{_amount(name, used.get(name, 0))} of {_amount(name, limit)} in use",
        )
        for name, limit in sorted(limits.items())
    ]


def _cluster_limits(observed: ObservedCluster) -> list[Check]:
    """What the nodes of all NodePools have of annotation tenon.sh/cluster-limits."""
    limits, used = observed.snapshot.cluster_limits, used_by_claims(observed.snapshot.node_claims)
    return [
        Check(
            name=f"limit on {name} of all NodePools",
            ok=not is_reached(name, limits, used),
            detail=f"{describe(name, limits, used)} in use",
        )
        for name in sorted(limits)
    ]


def _last_hour(observed: ObservedCluster, pool: NodePool) -> Check:
    """What the last hour had of the hourly limits."""
    snapshot = observed.snapshot
    hour = HourlyUse(snapshot.last_hour, snapshot.node_pools, snapshot.node_claims, now=observed.now)
    problem = hour.reached(pool.name)
    return Check(name="last hour", ok=False if problem else None, detail=problem or hour.describe(pool.name))


def _amount(name: str, amount: int) -> str:
    return str(amount) if name == NODES else format_quantity(name, amount)


def _nodes(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pool: NodePool) -> tuple[Check, ...]:
    nodes = [n for n in observed.snapshot.nodes if n.metadata.labels.get(names.NODEPOOL) == pool.name]
    price, _ = nodes_cost(nodes, offering_prices(resolved_pools))
    launching = [
        c for c in observed.snapshot.node_claims
        if c.metadata.labels.get(names.NODEPOOL) == pool.name and not c.status.node_name
    ]  # fmt: skip
    detail = f"{len(nodes)}, {terminal.usd(price)}/h" + (f", {len(launching)} launching" if launching else "")
    return (Check(name="nodes", ok=None, detail=detail),)


def _budgets(observed: ObservedCluster, pool: NodePool) -> tuple[Check, ...]:
    if problems := budget_problems(pool):
        detail = f"no node is disrupted until this is mended: {'; '.join(problems)}"
        return (Check(name="disruption budgets", ok=False, detail=detail),)
    return tuple(
        Check(name=reason, ok=None, detail=_allowed(observed, pool, reason))
        for reason in (EMPTY, DRIFTED, UNDERUTILIZED)
    )


def _allowed(observed: ObservedCluster, pool: NodePool, reason: str) -> str:
    """How many nodes may be disrupted now, or what holds them."""
    snapshot, now = observed.snapshot, observed.now
    allowed = allowed_disruptions(pool, snapshot, reason=reason, now=now)
    held = "" if allowed else hold(pool, snapshot, reason=reason, now=now)
    return held or plural(allowed, "node")
