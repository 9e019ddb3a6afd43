"""Why a pod got no place, in words an operator can act on.

Each pool is asked the same questions in the same order: may it launch, are its taints tolerated, does it define the
labels, which types are left by labels, by size, by offerings, within limits. The first that leaves nothing is told,
with what was needed and the nearest miss. Where machines would suit, it is a rule about other pods that failed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shared.api.quantity import NODES, format_quantity
from shared.api.taints import EFFECTS, REPELLING, format_taint, untolerated
from shared.scheduling.decision import UnschedulableReason
from shared.scheduling.rules.requirements import expressions
from shared.scheduling.state.min_values import distinct_values
from shared.scheduling.state.offerings import allowed_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from shared.scheduling.rules.pod_affinity import TopologyTerm
    from shared.scheduling.rules.requirements import Requirements, ValueSet
    from shared.scheduling.solver.domain_assignment import PendingGroup
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_SHOWN = 8


@dataclass(frozen=True)
class Circumstances:
    """What the planner knows at the end: what limits leave by pool (resources, then nodes), and the topology.

    ``on_hosts`` says which rules about hosts speak of pods that have a place; ``located`` are the labels that the pod's
    volumes fix.
    """

    limits_left: Ints
    topology: Topology
    on_hosts: Mapping[int, bool]
    volume_labels: frozenset[str] = frozenset()


def explain(
    group: PendingGroup, requests: Ints, checker: FeasibilityChecker, known: Circumstances
) -> UnschedulableReason:
    """Why pods of this class and size have no place: a sentence, and the criterion that failed by pool."""
    launch_options = checker.launch_options
    known = replace(known, volume_labels=group.pod_group.volume_labels)
    criteria = dict(sorted(launch_options.unusable_pools.items()))
    open_pools: list[str] = []
    for number, pool in enumerate(launch_options.templates):
        tried = [_pool(number, pool, asked, group, requests, checker, known) for asked in group.pod_group.alternatives]
        failed = [t for t in tried if t is not None]
        if len(failed) == len(tried):
            criteria[pool.node_pool] = failed[0]
        else:
            open_pools.append(pool.node_pool)
    if open_pools:
        rule = _rule(group, known)
        criteria.update(dict.fromkeys(open_pools, rule))
    if not criteria:
        return UnschedulableReason(message="there is no NodePool, and no node has room for it")
    parts = _grouped(criteria)
    if len(parts) == 1:
        return UnschedulableReason(message=f"no place: {parts[0]}", criteria=criteria)
    return UnschedulableReason(
        message=f"no place in any of {len(criteria)} NodePools: {'; '.join(parts)}", criteria=criteria
    )


def _grouped(criteria: dict[str, str]) -> list[str]:
    """Pools with the same reason together; at most some, for a sentence that can be read."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in criteria.items():
        by_reason.setdefault(reason, []).append(name)
    parts = [
        f"NodePool{'s' if len(names) > 1 else ''} {', '.join(names)}: {reason}" for reason, names in by_reason.items()
    ]
    return parts if len(parts) <= _SHOWN else [*parts[:_SHOWN], f"and {len(parts) - _SHOWN} more reasons"]


def _pool(
    number: int,
    pool: NodeClaimTemplate,
    asked: Requirements,
    group: PendingGroup,
    requests: Ints,
    checker: FeasibilityChecker,
    known: Circumstances,
) -> str | None:
    """The first criterion by which the pool takes no such pod; None if it has a machine that would do."""
    launch_options = checker.launch_options
    effects = REPELLING if group.preferences.tolerate_prefer_no_schedule else EFFECTS
    taint = untolerated(group.pod_group.tolerations, pool.taints, effects=effects)
    if taint is not None:
        return f"the pod doesn't tolerate its taint {format_taint(taint)}"
    for key, allowed in sorted(asked.items()):
        if key not in launch_options.columns and not pool.catalog.knows(key) and (pool.state(key) & allowed).empty:
            wanted = _said(key, allowed)
            return (
                f"its nodes' {key} can't be {wanted}"
                if key in pool.requirements
                else f"its nodes have no label {key} ({wanted})"
            )
    return _types(number, pool, asked, requests, launch_options, known)


def _types(
    number: int,
    pool: NodeClaimTemplate,
    asked: Requirements,
    requests: Ints,
    launch_options: LaunchOptions,
    known: Circumstances,
) -> str | None:
    options = np.arange(pool.options.start, pool.options.stop)
    if not len(options):
        return _nothing(pool)
    story, left, offerings = _by_labels(pool, asked, options, launch_options, known)
    if not len(left):
        return f"{story}, and none is left"
    held = left[(launch_options.free[left] >= requests).all(1)]
    if not len(held):
        return _too_small(story, len(left) < len(options), requests, left, launch_options)
    over = _over_limits(held, known.limits_left[number], launch_options)
    if over is not None:
        return over
    return _few_values(pool, held, offerings, launch_options)


def _few_values(pool: NodeClaimTemplate, held: Ints, offerings: Bools, launch_options: LaunchOptions) -> str | None:
    """Which minValues the machines that would hold the pod can't keep; all of them, if it is their sum."""
    if not pool.min_values:
        return None
    found = {key: len(distinct_values(launch_options, pool, held, offerings, key)) for key in pool.min_values}
    short = [key for key, n in sorted(pool.min_values.items()) if found[key] < n] or sorted(pool.min_values)
    said = "; ".join(
        f"{pool.min_values[key]} values of {key}, and the types that would do have {found[key]}" for key in short
    )
    return f"its minValues ask for {said}"


def _nothing(pool: NodeClaimTemplate) -> str:
    """Why a pool has no machine to buy at all."""
    types, offerings = allowed_in(pool.catalog, pool.requirements)
    allowed = types & pool.catalog.offered[:, offerings].any(1)
    if not allowed.any():
        return "its own requirements allow no instance type"
    if np.isfinite(pool.catalog.price[allowed][:, offerings]).any():
        return "its daemons leave no room on any of its instance types"
    return f"none of its {int(allowed.sum())} instance types can be had now"


def _by_labels(
    pool: NodeClaimTemplate, asked: Requirements, options: Ints, launch_options: LaunchOptions, known: Circumstances
) -> tuple[str, Ints, Bools]:
    """What labels leave, with the story so far: which label ruled out how many, and what only lacks capacity."""
    removed: list[str] = []
    total = len(options)
    offerings = np.ones(len(launch_options.offerings), np.bool_)
    offered = np.ones(len(pool.catalog.offerings), np.bool_)
    for key, allowed in sorted(asked.items()):
        sold = 0
        if key in launch_options.columns:
            offerings &= launch_options.offerings_allowed(key, allowed)
            if key in pool.catalog.offering_columns:
                offered &= pool.catalog.offering_columns[key].allowed(allowed)
            kept = np.isfinite(launch_options.price[options][:, offerings]).any(1)
            sold = int(pool.catalog.offered[launch_options.type_of[options[~kept]]][:, offered].any(1).sum())
        elif pool.catalog.knows(key):
            kept = pool.catalog.types_allowed(key, allowed)[launch_options.type_of[options]]
        else:
            continue
        label = f"{key} {_said(key, allowed)}{', where its volumes are,' if key in known.volume_labels else ''}"
        if (~kept).sum() > sold:
            removed.append(f"{label} rules out {int((~kept).sum()) - sold}")
        if sold:
            removed.append(f"{label} leaves {sold} that can't be had now")
        options = options[kept]
    story = f"of {total} instance types {', '.join(removed)}" if removed else f"of {total} instance types"
    return story, options, offerings


def _over_limits(held: Ints, left: Ints, launch_options: LaunchOptions) -> str | None:
    """Which limit keeps the pool from every machine that would hold the pod."""
    size = np.hstack([launch_options.capacity[held], np.ones((len(held), 1), np.int64)])
    over = size > left
    if not over.any(1).all():
        return None
    tight = int(over.sum(0).argmax())
    name = NODES if tight == len(launch_options.resources) else launch_options.resources[tight]
    have = max(0, int(left[tight]))
    if name == NODES:
        return f"its limit on {name} leaves {have}"
    rest, smallest = format_quantity(name, have), format_quantity(name, int(size[:, tight].min()))
    return f"its limit leaves {name} {rest}, and the smallest machine for the pod has {smallest}"


def _too_small(story: str, some_removed: bool, requests: Ints, options: Ints, launch_options: LaunchOptions) -> str:  # noqa: FBT001 (private)
    """Which resource no type has enough of, what is needed with daemons, and the nearest miss."""
    free = launch_options.free[options]
    rest = f"{story}; of the other {len(options)}" if some_removed else story
    alone = [r for r in np.flatnonzero(requests).tolist() if not (free[:, r] >= requests[r]).any()]
    for r in alone:
        name = launch_options.resources[r]
        need = format_quantity(name, int(requests[r]))
        if not free[:, r].any():
            return f"{rest}, every one lacks {name} (needs {need})"
        best = int(options[free[:, r].argmax()])
        daemons = int(launch_options.daemon_requests[best][r])
        more = f" besides {format_quantity(name, daemons)} for daemons" if daemons else ""
        return (
            f"{rest}, none has enough {name}: needs {need}{more}, the most is "
            f"{format_quantity(name, int(free[:, r].max()))} on {launch_options.instance_type_of(best)}"
        )
    missing = (free < requests).sum(1)
    nearest = int(missing.argmin())
    names = [launch_options.resources[r] for r in np.flatnonzero(free[nearest] < requests).tolist()]
    needs = ", ".join(
        f"{launch_options.resources[r]} {format_quantity(launch_options.resources[r], int(requests[r]))}"
        for r in np.flatnonzero(requests).tolist()
    )
    closest = launch_options.instance_type_of(int(options[nearest]))
    return f"{rest}, none has all at once ({needs}); nearest is {closest}, short of {', '.join(names)}"


def _said(key: str, allowed: ValueSet) -> str:
    parts = [
        f"{e.operator} {', '.join(e.values[:_SHOWN])}{', …' if len(e.values) > _SHOWN else ''}".strip()
        for e in expressions({key: allowed}, {})
    ]
    return " and ".join(parts) or "anything"


def _rule(group: PendingGroup, known: Circumstances) -> str:  # noqa: PLR0911 (one question after the other)
    """The rule about other pods that leaves no place, where machines would do."""
    pods, topology = group.pod_group, known.topology
    domains = topology.domain_counts
    for term in pods.affinity:
        number = topology.domain_terms.numbers.get((term, b""))
        host = topology.host_terms.numbers.get((term, b""))
        nowhere = number is not None and not any(domains.counts.get(number, {}).values())
        if nowhere or (host is not None and host not in group.host.match and not known.on_hosts.get(host)):
            return (
                f"machines would do, but no pod of its affinity ({_selector(term)}) has a place within any "
                f"{term.topology_key}"
            )
        if term.topology_key == "kubernetes.io/hostname":
            beside = f"the pods of its affinity ({_selector(term)})"
            return f"machines would do, but within one {term.topology_key} there is no room beside {beside}"
    for spread in pods.spread_constraints:
        counts = domains.counts.get(topology.spread_term(spread, pods.alternatives, pods.tolerations), {})
        shown = ", ".join(f"{value} {n}" for value, n in sorted(counts.items()))
        least = f", minDomains {spread.min_domains}" if spread.min_domains else ""
        return (
            f"machines would do, but its spread over {spread.term.topology_key} (maxSkew {spread.max_skew}{least}) "
            f"bears no more of {_selector(spread.term)} where there is room: now {shown or 'none'}"
        )
    for term in pods.anti_affinity:
        return (
            f"machines would do, but every {term.topology_key} has pods that its anti-affinity avoids "
            f"({_selector(term)})"
        )
    if pods.affinity:
        return f"machines would do, but not where the pods of its affinity are ({_selector(pods.affinity[0])})"
    if pods.ports:
        return "machines would do, but its host ports are taken"
    return "machines would do, but other pods want none of its like near them, or a limit was reached"


def _selector(term: TopologyTerm) -> str:
    labels = [f"{k}={v}" for k, v in term.labels]
    return ", ".join([*labels, *(f"{k} {o} {list(v)}" for k, o, v in term.expressions)]) or "no pods"
