"""One NodePool, asked about one pod: each of the pod's constraints by itself, then what depends on several of them.

The scheduling core answers, for a cluster that holds only what the question is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from cli.explain import pod_constraints
from cli.explain.explanation import Check
from cli.explain.pod_constraints import ABOUT_PODS, CAPACITY, LIMITS, OTHER_PODS, RESOURCES, TAINTS, TOGETHER, VOLUMES
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.explain.pod_constraints import Constraint
    from shared.api.kubernetes import Pod
    from shared.api.nodepool import NodePool
    from shared.instance_types.instance_type import InstanceType
    from shared.launch.resolved_node_pools import ResolvedNodePools
    from shared.scheduling.decision import Decision

_SAID_BY_ITSELF = frozenset({TAINTS, LIMITS, CAPACITY, TOGETHER, RESOURCES, OTHER_PODS}) | ABOUT_PODS
"""Criteria whose reasons name what they are about."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What one pool answered: its checks, and the criteria that failed, each with why.

    ``blocked`` is why the pool launches nothing for anyone; empty if it does.
    """

    pool: str
    checks: tuple[Check, ...]
    failed: tuple[tuple[str, str], ...] = ()
    blocked: str = ""


def interview(
    observed: ObservedCluster, resolved_pools: ResolvedNodePools, pod: Pod, pool: NodePool, wants: Sequence[Constraint]
) -> Tried:
    """What the pool answers about the pod, whose constraints are given."""
    blocked = ""
    if pool.name in resolved_pools.not_ready or not resolved_pools.instance_types.get(pool.name):
        blocked = resolved_pools.not_ready.get(pool.name) or "it has no instance types"
    asked = Asked(observed, resolved_pools, pool)
    blocked = blocked or asked.refusal(pod_constraints.bare(pod)) or ""
    if blocked:
        return Tried(pool=pool.name, checks=(Check(what="may launch", ok=False, detail=blocked),), blocked=blocked)
    found = _Interview(asked, pod, wants)
    found.one_by_one()
    found.room()
    if not found.failed:
        found.altogether()
    return Tried(pool=pool.name, checks=tuple(found.checks), failed=tuple(found.failed))


@dataclass
class _Interview:
    """The questions in their order, and what came of them."""

    asked: Asked
    pod: Pod
    wants: Sequence[Constraint]
    checks: list[Check] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def one_by_one(self) -> None:
        """Each constraint alone."""
        for want in self.wants:
            refused = self.asked.refusal(want.pod, among=want.criterion in ABOUT_PODS)
            self._note(want.criterion, want.what, refused)

    def room(self) -> None:
        """All resources at once, and within limits; not asked where one alone is too much."""
        amounts = pod_constraints.amounts(self.pod)
        if {criterion for criterion, _ in self.failed} & {RESOURCES, *amounts}:
            return
        sized = pod_constraints.asking(pod_constraints.bare(self.pod), amounts)
        if len(amounts) > 1:
            refused = self.asked.refusal(sized)
            if refused is not None:
                self._note(RESOURCES, "all of it on one machine", refused)
                return
        if self.asked.pool.spec.limits:
            self._note(LIMITS, "limits", self.asked.refusal(sized, limits=True))

    def altogether(self) -> None:
        """What depends on everything that the pod asks for; the first that fails."""
        alone = _apart(self.pod)
        if (refused := self.asked.refusal(alone)) is not None:
            self._note(TOGETHER, "all of that together", refused)
        elif self.asked.refusal(alone, available=False) is not None:
            self._note(CAPACITY, "capacity now", self.asked.without_capacity())
        elif (refused := self.asked.refusal(alone, limits=True)) is not None:
            self._note(LIMITS, "limits", refused)
        else:
            refused = self.asked.refusal(self.pod, among=True, limits=True, available=False)
            if refused is not None:
                self._note(OTHER_PODS, "other pods", refused)

    def _note(self, criterion: str, what: str, refused: str | None) -> None:
        self.checks.append(Check(what=what, ok=refused is None, detail=refused or ""))
        if refused is not None:
            self.failed.append((criterion, _worded(criterion, what, refused)))


def _worded(criterion: str, what: str, why: str) -> str:
    """The constraint and what is wrong with it; some reasons name it themselves."""
    if criterion == VOLUMES:
        return f"the pod's {what} can't be reached: {why}"
    if criterion in _SAID_BY_ITSELF or what.split("=", maxsplit=1)[0].split(" ", maxsplit=1)[0] in why:
        return why
    return f"{what}: {why}"


def _apart(pod: Pod) -> Pod:
    """The pod without what depends on other pods."""
    about = next((c for c in pod_constraints.of(pod) if c.criterion in ABOUT_PODS), None)
    return pod if about is None else _apart(about.without)


@dataclass(frozen=True)
class Asked:
    """One pool, asked about one pod: ``None`` it has a machine, else the core's reason."""

    observed: ObservedCluster
    resolved_pools: ResolvedNodePools
    pool: NodePool

    def decide(self, pod: Pod, *, among: bool = False, limits: bool = False, available: bool = True) -> Decision:
        """``among``: other pods count; ``limits``: so do the pool's; ``available``: as if EC2 had all its offerings."""
        snapshot = self.observed.snapshot
        pool = self.pool
        if not limits:
            pool = msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, limits={}))
        others = [p for p in snapshot.pods if p.key != pod.key] if among else []
        types = self.resolved_pools.instance_types[pool.name]
        return schedule(
            Problem(
                snapshot=replace(
                    snapshot,
                    pods=(*others, pod),
                    nodes=snapshot.nodes if among or limits else (),
                    node_claims=snapshot.node_claims if among or limits else (),
                    node_pools=(pool,),
                ),
                instance_types={pool.name: _available(types) if available else types},
                # nothing is placed on these: a new machine is what is asked about
                leaving=frozenset() if among else frozenset(n.metadata.name for n in snapshot.nodes),
                pods=frozenset({pod.key}),
                policies=self.observed.policies,
            )
        )

    def without_capacity(self) -> str:
        """That EC2 lacks what would do, with how much of the pool's choice is out."""
        types = self.resolved_pools.instance_types[self.pool.name]
        gone = sum(not o.available for t in types for o in t.offerings)
        return (
            "EC2 has just had no capacity for any machine that would do "
            f"({gone} offerings of {sum(len(t.offerings) for t in types)} are out); each is asked for again after "
            "3 minutes"
        )

    def most(self, resource: str) -> int:
        """The most that pods get of a resource on any machine of the pool."""
        snapshot = self.observed.snapshot
        launch_options = build_launch_options(
            [self.pool], self.resolved_pools.instance_types, daemon_set_pods(snapshot.daemon_sets), {}, {resource}
        )
        column = launch_options.resources.index(resource)
        return int(launch_options.free[:, column].max(initial=0))

    def refusal(self, pod: Pod, *, among: bool = False, limits: bool = False, available: bool = True) -> str | None:
        """The reason against it, without the pool's name."""
        found = self.decide(pod, among=among, limits=limits, available=available).pod_errors.get(pod.key)
        return None if found is None else found.criteria.get(self.pool.name) or found.message


def _available(types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    if all(o.available for t in types for o in t.offerings):
        return types
    return tuple(replace(t, offerings=tuple(replace(o, available=True) for o in t.offerings)) for t in types)
