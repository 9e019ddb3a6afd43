"""How many pods of which group stand where: the counts of spread and pod affinity, kept as pods come and go.

kube-scheduler counts anew for each pod; kept counts give the same figures and let a world have thousands of pods.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import LabelSelector, LabelSelectorRequirement
from shared.api.selectors import SelectorError, matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from local.kubernetes.scheduler.node_info import Place, Tenant
    from local.kubernetes.scheduler.pod_signature import Shape
    from shared.api.kubernetes import PodAffinityTerm


@dataclass(frozen=True, eq=False)
class Pick:
    """Pods of some namespaces (None: of all) that a selector selects."""

    namespaces: frozenset[str] | None
    selector: LabelSelector | None

    @property
    def key(self) -> bytes:
        """Equal for equal picks."""
        names = None if self.namespaces is None else sorted(self.namespaces)
        return msgspec.json.encode((names, self.selector))

    def takes(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod is picked; a selector nobody can read picks none."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        try:
            return matches(self.selector, labels)
        except SelectorError:
            return False


def pick_of(term: PodAffinityTerm, shape: Shape, namespaces: Mapping[str, Mapping[str, str]]) -> Pick:
    """Which pods an affinity term of a pod of this shape means; ``namespaces`` maps each name to its labels.

    Listed namespaces and selected ones are joined; with neither, it is the pod's own. Match and mismatch label keys
    become expressions about the pod's own values.
    """
    chosen: frozenset[str] | None = frozenset(term.namespaces)
    if term.namespace_selector is not None:
        picked = Pick(None, term.namespace_selector)
        chosen = frozenset([*term.namespaces, *(n for n, labels in namespaces.items() if picked.takes(n, labels))])
        if term.namespace_selector == LabelSelector():
            chosen = None
    elif not term.namespaces:
        chosen = frozenset([shape.namespace])
    selector = with_own_labels(term.label_selector, shape, term.match_label_keys, "In")
    return Pick(chosen, with_own_labels(selector, shape, term.mismatch_label_keys, "NotIn"))


def with_own_labels(
    selector: LabelSelector | None, shape: Shape, keys: Sequence[str], operator: str
) -> LabelSelector | None:
    """The selector narrowed by the pod's own values of those keys; keys it doesn't have are passed over."""
    own = [
        LabelSelectorRequirement(key=key, operator=operator, values=[shape.labels[key]])
        for key in keys
        if key in shape.labels
    ]
    if selector is None or not own:
        return selector
    return msgspec.structs.replace(selector, match_expressions=[*selector.match_expressions, *own])


@dataclass(eq=False)
class Group:
    """Pods that every one of the picks takes, counted by node; ``living`` leaves out terminating ones."""

    picks: tuple[Pick, ...]
    living: bool
    on: Counter[str] = field(default_factory=Counter)
    _known: dict[bytes, bool] = field(default_factory=dict)

    def takes(self, shape: Shape) -> bool:
        """Whether pods of this shape belong to the group."""
        known = self._known.get(shape.key)
        if known is None:
            known = self._known[shape.key] = all(p.takes(shape.namespace, shape.labels) for p in self.picks)
        return known

    def count(self, node: str, tenant: Tenant, by: int) -> None:
        """A pod comes (+1) or goes (-1)."""
        if not (self.living and tenant.terminating) and self.takes(tenant.shape):
            self.on[node] += by


@dataclass(eq=False)
class Guard:
    """One required anti-affinity term that pods on some nodes hold against others, wherever those others come from."""

    pick: Pick
    topology_key: str
    on: Counter[str] = field(default_factory=Counter)


class Census:
    """All groups and guards anyone asked about."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._namespaces = namespaces
        self._groups: dict[tuple[tuple[bytes, ...], bool], Group] = {}
        self._guards: dict[tuple[bytes, str], Guard] = {}
        self._held: dict[bytes, list[Guard]] = {}
        self.guards: list[Guard] = []
        """In order of appearance; none is ever taken away."""

    def group(self, picks: tuple[Pick, ...], *, living: bool, places: Iterable[Place]) -> Group:
        """The group, counted over the places if it is new."""
        key = (tuple(pick.key for pick in picks), living)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(picks, living)
            for place in places:
                for tenant in place.tenants.values():
                    group.count(place.name, tenant, 1)
        return group

    def count(self, node: str, tenant: Tenant, by: int) -> None:
        """A pod comes to a node (+1) or leaves it (-1)."""
        for group in self._groups.values():
            group.count(node, tenant, by)
        if tenant.shape.apart:
            for guard in self._guards_of(tenant.shape):
                guard.on[node] += by

    def _guards_of(self, shape: Shape) -> list[Guard]:
        held = self._held.get(shape.key)
        if held is None:
            held = self._held[shape.key] = [self._guard(term, shape) for term in shape.apart]
        return held

    def _guard(self, term: PodAffinityTerm, shape: Shape) -> Guard:
        pick = pick_of(term, shape, self._namespaces)
        key = (pick.key, term.topology_key)
        guard = self._guards.get(key)
        if guard is None:
            guard = self._guards[key] = Guard(pick, term.topology_key)
            self.guards.append(guard)
        return guard


class Tally:
    """Counts by node, summed over the domains of a topology key, over the nodes that count."""

    def __init__(self, topology_key: str, on: Mapping[str, int], counts: Callable[[Place], bool]) -> None:
        self._key = topology_key
        self._on = on
        self._counts = counts
        self._held: dict[str, tuple[str, int]] = {}
        self._nodes: Counter[str] = Counter()
        self.domains: dict[str, int] = {}
        """Every domain that has a node that counts, and how many pods stand there."""

    def refresh(self, name: str, place: Place | None) -> None:
        """Count a node anew; None: it is gone."""
        before = self._held.pop(name, None)
        if before is not None:
            domain, count = before
            self.domains[domain] -= count
            self._nodes[domain] -= 1
            if not self._nodes[domain]:
                del self._nodes[domain], self.domains[domain]
        if place is None or self._key not in place.labels or not self._counts(place):
            return
        domain, count = place.labels[self._key], self._on[name]
        self._held[name] = (domain, count)
        self._nodes[domain] += 1
        self.domains[domain] = self.domains.get(domain, 0) + count

    def around(self, place: Place) -> int:
        """How many stand in the node's domain; 0 for a node without one."""
        value = place.labels.get(self._key)
        return 0 if value is None else self.domains.get(value, 0)
