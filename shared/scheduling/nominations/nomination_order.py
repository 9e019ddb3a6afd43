"""Which planned pods can be nominated for their nodes now, so that each is bound there in kube-scheduler's own order.

kube-scheduler tries a nominated pod's node first and withholds its resources from pods of no higher priority. It clears
a nomination when the node doesn't suit the pod at that moment, so a rule about other pods (a topology spread, pod
affinity) has to hold when the pod is tried, not only when all pods are bound. Pods are therefore assigned in the order
of kube-scheduler's queue, with the rules evaluated at each step. Pods of one group and size are interchangeable: which
of them goes to which of the nodes planned for them depends on the order only.

Pure: the state of the nodes and the pods in, the node of each pod out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME
from shared.base.struct import Struct, with_fields
from shared.scheduling.decision import SchedulingPolicies
from shared.scheduling.nominations.planned_pods import tried_version
from shared.scheduling.rules.pod_affinity import Namespaces
from shared.scheduling.rules.volume_topology import Storage
from shared.scheduling.solver.fit import Item
from shared.scheduling.solver.plan import Plan
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options
from shared.scheduling.state.state_nodes import build_state_nodes, mounted_volumes
from shared.scheduling.topology.feasibility import Feasibility, FeasibilityChecker
from shared.scheduling.topology.pod_groups import group_pods

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shared.api.kubernetes import Pod
    from shared.scheduling.solver.fit import Ints
    from shared.scheduling.solver.pending_groups import PendingGroup
    from shared.scheduling.topology.pod_groups import PodGroup
    from shared.snapshot import Snapshot


class NominationOrder(Struct, eq=False):
    """The node by pod (namespace/name) that can be nominated now.

    ``waiting`` are planned pods whose topology spread doesn't allow them yet, each with the nodes in other domains that
    are planned for pods of its group and aren't open; and pods that prefer to be apart, each with the other nodes that
    are planned for its group and aren't open: kube-scheduler would bind their pods to the node that is. ``linked`` are
    groups of nodes whose pods have rules about each other, so that the order holds only if all of them take pods at the
    same time. ``interchangeable`` are groups of nodes that may take pods at the same time: their pods are of one group,
    size and priority, so it doesn't matter which of them kube-scheduler puts on which node.
    """

    nodes: Mapping[str, str]
    waiting: Mapping[str, frozenset[str]]
    linked: tuple[frozenset[str], ...] = ()
    interchangeable: tuple[frozenset[str], ...] = ()


def order_nominations(
    snapshot: Snapshot, planned: Mapping[str, str], pods: Mapping[str, Pod], open_nodes: Collection[str]
) -> NominationOrder:
    """The nominations for ``open_nodes`` (by name) of pods (by namespace/name) that are ``planned`` for nodes by name.

    Nodes that don't exist yet have the name of their NodeClaim.
    """
    return _Assignment(snapshot, planned, pods, frozenset(open_nodes)).run()


class _Candidate(Struct, eq=False):
    """A pod with its rules and size."""

    pod: Pod
    group: PendingGroup
    requests: Ints


class _Assignment:
    """The state while pods are assigned one by one."""

    def __init__(
        self, snapshot: Snapshot, planned: Mapping[str, str], pods: Mapping[str, Pod], open_nodes: frozenset[str]
    ) -> None:
        self._planned = planned
        self._pods = pods
        daemons = daemon_set_pods(snapshot)
        namespaces, storage = Namespaces(snapshot.namespaces, snapshot.pods), Storage(snapshot)
        grouped = group_pods(pods.values(), namespaces, storage)
        if not any(_depends_on_other_nodes(group) for group, _ in grouped.groups):
            snapshot = _with_nodes(
                snapshot, {*planned.values(), *(p.status.nominated_node_name for p in pods.values())}
            )
        state_nodes = build_state_nodes(snapshot, {}, frozenset())
        state_nodes = with_fields(state_nodes, mounted_volumes=mounted_volumes(state_nodes.nodes, storage))
        resources = {name for _, sizes in grouped.groups for sized in sizes for name in sized.requests} | {"pods"}
        launch_options = build_launch_options((), {}, daemons, {}, resources)
        self._checker = FeasibilityChecker(launch_options, state_nodes)
        policies = SchedulingPolicies(preference_policy="Ignore")
        self._plan = Plan(self._checker, namespaces, grouped.groups, policies)
        groups = self._plan.pending_groups.initial()
        self._plan.count_rules_of(groups)
        self._candidates = [
            _Candidate(pods[key], group, requests) for group in groups for requests, keys in group.sizes for key in keys
        ]
        self._index = {node.name: i for i, node in enumerate(state_nodes.nodes)}
        self._open = frozenset(self._index[name] for name in open_nodes if name in self._index)
        self._feasibilities: dict[int, list[Feasibility]] = {}
        self._slots: dict[tuple[int, bytes], Counter[int]] = {}
        self._missing: dict[int, frozenset[str]] = {}

    def run(self) -> NominationOrder:
        """Keeps the nominations of other pods, and assigns planned pods in the order of kube-scheduler's queue."""
        self._candidates.sort(key=lambda c: _queue_position(c.pod))
        planned: list[_Candidate] = []
        for candidate in self._candidates:
            node = self._index.get(self._planned.get(candidate.pod.key, ""))
            if node is None:
                self._keep(candidate)
            elif node in self._open:
                planned.append(candidate)
        dropped = self._dropped(planned)
        for candidate in planned:
            if candidate.pod.key not in dropped:
                node = self._index[self._planned[candidate.pod.key]]
                self._slots.setdefault(_size_of(candidate), Counter())[node] += 1
        nodes: dict[str, str] = {}
        waiting: dict[str, frozenset[str]] = {}
        nodes_by_term: dict[int, set[str]] = {}
        kinds: dict[str, set[tuple[object, ...]]] = {}
        for candidate in (c for c in planned if c.pod.key not in dropped):
            assigned = self._assign(candidate)
            if assigned is not None:
                name = nodes[candidate.pod.key] = self._name(assigned)
                kinds.setdefault(name, set()).add((*_size_of(candidate), candidate.pod.spec.priority or 0))
                for term in self._terms(candidate):
                    nodes_by_term.setdefault(term, set()).add(name)
            waiting[candidate.pod.key] = self._awaited(candidate, is_assigned=assigned is not None)
        return NominationOrder(nodes, waiting, _unions(nodes_by_term.values()), _of_one_kind(kinds))

    def _terms(self, candidate: _Candidate) -> set[int]:
        """The terms about pods on other nodes that the pod has or matches."""
        rules = candidate.group.rules
        terms = {*rules.topology_spread, *rules.anti_affinity, *rules.affinity, *rules.match}
        return {term for term in terms if self._plan.topology.keys[term] != HOSTNAME}

    def _dropped(self, planned: Iterable[_Candidate]) -> set[str]:
        """The pods that don't fit on their node if it is smaller than planned: the smallest ones."""
        by_node: dict[int, list[_Candidate]] = {}
        for candidate in planned:
            by_node.setdefault(self._index[self._planned[candidate.pod.key]], []).append(candidate)
        dropped: set[str] = set()
        for node, candidates in by_node.items():
            left = self._plan.existing_capacity.available(node)
            shares = [float((c.requests / np.maximum(left, 1)).max(initial=0)) for c in candidates]
            for _, candidate in sorted(zip(shares, candidates, strict=True), key=lambda entry: -entry[0]):
                if (candidate.requests <= left).all():
                    left -= candidate.requests
                else:
                    dropped.add(candidate.pod.key)
        return dropped

    def _keep(self, candidate: _Candidate) -> None:
        """Counts a pod that is nominated for a node without being planned there."""
        node = self._index.get(candidate.pod.status.nominated_node_name)
        feasibilities = self._feasibilities_of(candidate.group)
        if node is not None and feasibilities:
            self._place(candidate, node, feasibilities[0])

    def _assign(self, candidate: _Candidate) -> int | None:
        """The node that the pod is nominated for, None if none takes it now.

        Of the nodes planned for pods like it: the one that it is nominated for already, then the one with the fewest of
        them in its domain, then the pod's own.
        """
        slots = self._slots[_size_of(candidate)]
        own = self._index[self._planned[candidate.pod.key]]
        rules = candidate.group.rules
        is_interchangeable = bool(rules.topology_spread or rules.anti_affinity or rules.affinity)
        nodes = [node for node, count in slots.items() if count] if is_interchangeable else [own]
        kept = self._index.get(candidate.pod.status.nominated_node_name)
        for node in sorted(nodes, key=lambda n: (n != kept, self._domain_count(candidate, n), n != own, n)):
            feasibility = self._feasible(candidate, node)
            if feasibility is not None:
                self._place(candidate, node, feasibility)
                slots[node] -= 1
                return node
        return None

    def _feasible(self, candidate: _Candidate, node: int) -> Feasibility | None:
        """The feasibility by which the node takes the pod as things are; None if it doesn't."""
        group = candidate.group
        where = self._domains(candidate, node)
        if where is None or not self._plan.topology.domain_counts.room(group.rules, where):
            return None
        for feasibility in self._feasibilities_of(group):
            hosts = group.host_affinity if self._is_present(group.host_affinity) else ()
            if self._plan.existing_capacity.capacity(feasibility, candidate.requests, hosts)[node]:
                return feasibility
        return None

    def _is_present(self, terms: tuple[int, ...]) -> bool:
        """Whether any host has a pod of the terms; the first pod with affinity to its own group needs none."""
        present = self._plan.existing_capacity.host_counts.present
        return any(term in present and bool(np.any(present[term] > 0)) for term in terms)

    def _domains(self, candidate: _Candidate, node: int) -> dict[str, str] | None:
        """The node's values of all topology keys of the pod's rules; None if it lacks one that is required."""
        rules, keys = candidate.group.rules, self._plan.topology.keys
        labels = self._checker.state_nodes.nodes[node].labels
        required = {keys[term] for term in (*rules.topology_spread, *rules.anti_affinity, *rules.affinity)}
        if not required <= labels.keys():
            return None
        return {key: labels[key] for key in required | {keys[term] for term in rules.match} if key in labels}

    def _domain_count(self, candidate: _Candidate, node: int) -> int:
        """How many pods of the group's spreads the node's domains have."""
        where = self._domains(candidate, node) or {}
        counts, keys = self._plan.topology.domain_counts, self._plan.topology.keys
        spreads = candidate.group.rules.topology_spread
        return sum(counts.count(term, where[keys[term]]) for term in spreads if keys[term] in where)

    def _place(self, candidate: _Candidate, node: int, feasibility: Feasibility) -> None:
        where = self._domains(candidate, node)
        if where is not None:
            self._plan.topology.domain_counts.take(candidate.group.rules, where, 1)
        self._plan.existing_capacity.place_on(node, Item(feasibility, candidate.requests, [candidate.pod.key]))

    def _feasibilities_of(self, group: PendingGroup) -> list[Feasibility]:
        """The feasibility of each alternative of the group's node requirements."""
        known = self._feasibilities.get(id(group))
        if known is None:
            evaluated = (
                self._checker.feasibility(
                    requirements,
                    group.pod_group.tolerations,
                    group.host,
                    tolerate_prefer_no_schedule=True,
                    ports=group.pod_group.ports,
                    mounted_volumes=group.pod_group.mounted_volumes,
                )
                for _, requirements in group.alternatives
            )
            known = self._feasibilities[id(group)] = [f for f in evaluated if f is not None]
        return known

    def _awaited(self, candidate: _Candidate, *, is_assigned: bool) -> frozenset[str]:
        """The nodes that the pod should wait for, as in :class:`NominationOrder`."""
        if is_assigned:
            apart = _prefers_to_be_apart(candidate.group.pod_group)
            return self._missing_nodes(candidate.group) if apart else frozenset()
        return self._missing_domains(candidate) if candidate.group.rules.topology_spread else frozenset()

    def _missing_domains(self, candidate: _Candidate) -> frozenset[str]:
        """Nodes that aren't open, planned for pods of the group, in other domains than the pod's own node."""
        own = self._domains(candidate, self._index[self._planned[candidate.pod.key]])
        index = self._index
        return frozenset(
            name for name in self._missing_nodes(candidate.group) if self._domains(candidate, index[name]) != own
        )

    def _missing_nodes(self, group: PendingGroup) -> frozenset[str]:
        """Nodes that aren't open, planned for pods of the group."""
        known = self._missing.get(id(group))
        if known is None:
            planned = (self._index.get(self._planned.get(key, "")) for _, keys in group.sizes for key in keys)
            missing = frozenset(self._name(node) for node in planned if node is not None and node not in self._open)
            known = self._missing[id(group)] = missing
        return known

    def _name(self, node: int) -> str:
        return self._checker.state_nodes.nodes[node].name


def _prefers_to_be_apart(group: PodGroup) -> bool:
    """Whether the group's pods prefer other nodes, or other domains, than one another."""
    return bool(group.preferred_spread_constraints or group.preferred_anti_affinity)


def _depends_on_other_nodes(group: PodGroup) -> bool:
    """Whether pods on other nodes matter to the group's required rules."""
    terms = (*group.anti_affinity, *(s.term for s in group.spread_constraints))
    return bool(group.affinity) or any(term.topology_key != HOSTNAME for term in terms)


def _unions(sets: Iterable[set[str]]) -> tuple[frozenset[str], ...]:
    """The unions of sets that overlap, directly or by others."""
    unions: list[frozenset[str]] = []
    for names in sets:
        overlapping = [union for union in unions if not union.isdisjoint(names)]
        unions = [union for union in unions if union not in overlapping]
        unions.append(frozenset(names).union(*overlapping))
    return tuple(unions)


def _of_one_kind(kinds: Mapping[str, set[tuple[object, ...]]]) -> tuple[frozenset[str], ...]:
    """The nodes whose pods are all of one kind, by that kind. ``kinds`` are those of each node's pods."""
    alike: dict[tuple[object, ...], set[str]] = {}
    for node, of_pods in kinds.items():
        if len(of_pods) == 1:
            alike.setdefault(next(iter(of_pods)), set()).add(node)
    return tuple(frozenset(nodes) for nodes in alike.values())


def _with_nodes(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The snapshot with these nodes, and NodeClaims by their own or their node's name, only."""
    nodes = tuple(node for node in snapshot.nodes if node.metadata.name in names)
    provider_ids = {node.spec.provider_id for node in nodes} - {""}
    claims = tuple(c for c in snapshot.node_claims if c.name in names or c.status.provider_id in provider_ids)
    return with_fields(snapshot, node_claims=claims, nodes=nodes)


def _size_of(candidate: _Candidate) -> tuple[int, bytes]:
    return id(candidate.group), candidate.requests.tobytes()


def _queue_position(pod: Pod) -> tuple[int, int, str]:
    """The order in which kube-scheduler takes pods: the highest priority, then the one that was tried first.

    A failed try is written to the pod's status, so the resourceVersion that it had before it was nominated tells their
    order, as far as it is a number.
    """
    version = tried_version(pod)
    number = int(version) if version.isdigit() else 0
    return -(pod.spec.priority or 0), number, pod.key
