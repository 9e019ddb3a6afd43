"""Groups of pods that are equal in everything but size, so that each rule is evaluated once for all of them.

A group is read from its first pod: the nodes it allows, its tolerations, its rules about other pods. Preferences are
kept apart from requirements, as they may have to be relaxed. A pod that can't be read is unschedulable, with a reason.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from shared.api.labels import CAPACITY_TYPE, EKS_CAPACITY_TYPE, HOSTNAME, SPOT, ZONE, normalize_key
from shared.api.pods import mounts_claims, spec_requests, unsupported_fields
from shared.api.quantity import QuantityError, Resources
from shared.api.selectors import SelectorError
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.scheduling.decision import UnschedulableReason
from shared.scheduling.rules.attached_volumes import ATTACHED_VOLUMES
from shared.scheduling.rules.host_ports import host_ports
from shared.scheduling.rules.node_affinity import preferred_alternatives, required_alternatives
from shared.scheduling.rules.pod_affinity import affinity_term, all_of, spread_constraint
from shared.scheduling.rules.requirements import (
    EXISTS,
    RequirementError,
    Requirements,
    anything_but,
    conflicting_key,
    intersect,
)
from shared.scheduling.rules.unsupported_fields import unsupported
from shared.scheduling.rules.volume_topology import EBS_DRIVER, VolumeError, Volumes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shared.api.kubernetes import NodeAffinity, Pod, PodAffinity, PodSpec, Toleration, TopologySpreadConstraint
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.rules.pod_affinity import Namespaces, SpreadConstraint, TopologyTerm
    from shared.scheduling.rules.volume_topology import MountedVolume, Storage

_encode = msgspec.msgpack.Encoder(order="deterministic").encode

_NOT_ON_SPOT = b"not on spot"
_OF_EVERY_NODE = frozenset({ZONE, HOSTNAME})
_MAX_COMPARED_SIZES = 8
"""Sizes of one group that are compared with each other; beyond, equal sizes in different notation stay apart."""


class PodGroup(Struct, kw_only=True, eq=False):
    """The rules of all pods of a group.

    ``alternatives`` are the node requirements of which one must hold. Preferences are ordered by weight, heaviest
    first. ``volume_labels`` are the labels that volumes restrict. ``own_alternatives`` are the alternatives without
    what only Tenon requires, if it does.
    """

    namespace: str
    labels: dict[str, str]
    alternatives: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...]
    anti_affinity: tuple[TopologyTerm, ...] = ()
    affinity: tuple[TopologyTerm, ...] = ()
    spread_constraints: tuple[SpreadConstraint, ...] = ()
    preferred_node_affinity: tuple[Requirements, ...] = ()
    preferred_affinity: tuple[TopologyTerm, ...] = ()
    preferred_anti_affinity: tuple[TopologyTerm, ...] = ()
    preferred_spread_constraints: tuple[SpreadConstraint, ...] = ()
    ports: frozenset[HostPort] = frozenset()
    mounted_volumes: frozenset[MountedVolume] = frozenset()
    volume_labels: frozenset[str] = frozenset()
    own_alternatives: tuple[Requirements, ...] = ()

    @property
    def counted_alternatives(self) -> tuple[Requirements, ...]:
        """The node requirements that kube-scheduler knows: on such nodes, pods count for topology spread."""
        return self.own_alternatives or self.alternatives

    @property
    def has_preferences(self) -> bool:
        """Whether its pods prefer some nodes to others, taints apart."""
        return bool(
            self.preferred_node_affinity
            or self.preferred_affinity
            or self.preferred_anti_affinity
            or self.preferred_spread_constraints
        )


class SizedPods(MutableStruct):
    """Pods of one group with equal requests, by key (namespace/name), in order."""

    requests: Resources
    pods: list[str]


class GroupedPods(Struct, eq=False):
    """The groups with their pods by size, and why other pods can't be scheduled at all."""

    groups: list[tuple[PodGroup, list[SizedPods]]]
    errors: dict[str, UnschedulableReason]


def group_pods(
    pods: Iterable[Pod], namespaces: Namespaces, storage: Storage, not_on_spot: Collection[str] = frozenset()
) -> GroupedPods:
    """The groups of these pods, in an order that doesn't depend on the order of the pods.

    Pods ``not_on_spot`` (namespace/name) are apart from others, and suit nodes only that aren't spot.
    """
    equal_pods: dict[tuple[bytes, bytes], list[Pod]] = {}
    errors: dict[str, UnschedulableReason] = {}
    for pod in pods:
        waits_for = storage.user_of_exclusive_claim(pod) if pod.spec.volumes else None
        if waits_for is not None:
            errors[pod.key] = UnschedulableReason(message=waits_for)
        else:
            mark = _NOT_ON_SPOT if not_on_spot and pod.key in not_on_spot else b""
            equal_pods.setdefault((_rules_key(pod) + mark, _size_key(pod)), []).append(pod)
    groups: dict[tuple[bytes, tuple[HostPort, ...]], tuple[PodGroup | UnschedulableReason, list[SizedPods]]] = {}
    sizes: dict[bytes, tuple[Resources, frozenset[HostPort]] | UnschedulableReason] = {}
    for (rules_key, size_key), members in sorted(equal_pods.items()):
        names = sorted(pod.key for pod in members)
        if size_key not in sizes:
            sizes[size_key] = _size(members[0].spec)
        size = sizes[size_key]
        if isinstance(size, UnschedulableReason):
            errors.update(dict.fromkeys(names, size))
            continue
        requests, ports = size
        group_key = (rules_key, tuple(sorted(ports)))
        if group_key not in groups:
            read = _read_group(members[0], ports, namespaces, storage)
            groups[group_key] = (_without_spot(read) if rules_key.endswith(_NOT_ON_SPOT) else read, [])
        group, sized_pods = groups[group_key]
        if isinstance(group, UnschedulableReason):
            errors.update(dict.fromkeys(names, group))
        else:
            _add_size(sized_pods, requests, names)
    return GroupedPods([(g, sized) for g, sized in groups.values() if isinstance(g, PodGroup)], errors)


def _without_spot(group: PodGroup | UnschedulableReason) -> PodGroup | UnschedulableReason:
    """The group on nodes that aren't spot: neither NodePools' nor those of EKS managed node groups."""
    if isinstance(group, UnschedulableReason):
        return group
    rest = {CAPACITY_TYPE: anything_but(SPOT), EKS_CAPACITY_TYPE: anything_but(SPOT.upper())}
    restricted = [intersect(alternative, rest) for alternative in group.alternatives]
    possible = tuple(alternative for alternative in restricted if conflicting_key(alternative) is None)
    if not possible:
        return group  # the pods themselves require spot
    return with_fields(group, alternatives=possible, own_alternatives=group.alternatives)


def count_volumes(grouped: GroupedPods) -> None:
    """Adds the volumes of each pod to its requests, in place."""
    if not any(group.mounted_volumes for group, _ in grouped.groups):
        return
    users: Counter[MountedVolume] = Counter()
    for group, sizes in grouped.groups:
        pods = sum(len(sized.pods) for sized in sizes)
        for volume in group.mounted_volumes:
            users[volume] += pods
    for group, sizes in grouped.groups:
        own = sum(driver == EBS_DRIVER and users[driver, name] == 1 for driver, name in group.mounted_volumes)
        for sized in sizes if own else ():
            sized.requests = {**sized.requests, ATTACHED_VOLUMES: own}


def _limits_nothing(constraint: TopologySpreadConstraint) -> bool:
    """Whether a spread constraint selects no pods, over domains that every new node has."""
    return constraint.label_selector is None and normalize_key(constraint.topology_key) in _OF_EVERY_NODE


def _spread_without_pods(constraints: Iterable[TopologySpreadConstraint]) -> Requirements:
    """What constraints that select no pods require of a node: the label of their domain."""
    keys = {normalize_key(c.topology_key) for c in constraints if c.when_unsatisfiable != "ScheduleAnyway"}
    return dict.fromkeys(sorted(keys - {HOSTNAME}), EXISTS)


def _add_size(sized_pods: list[SizedPods], requests: Resources, names: list[str]) -> None:
    if len(sized_pods) < _MAX_COMPARED_SIZES:
        for sized in sized_pods:
            if sized.requests == requests:
                sized.pods = sorted([*sized.pods, *names])
                return
    sized_pods.append(SizedPods(requests, names))


def _rules_key(pod: Pod) -> bytes:
    """Equal for pods with equal rules about nodes and other pods."""
    spec, meta = pod.spec, pod.metadata
    rules: tuple[object, ...] = (
        meta.namespace or "default",
        meta.labels,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
    )
    if not spec.volumes:
        return _encode(rules)
    volumes = [v for v in spec.volumes if v.persistent_volume_claim is not None or v.ephemeral is not None]
    if volumes:
        # the claim of an ephemeral volume is named after its pod
        rules = (*rules, volumes, meta.name if any(v.ephemeral is not None for v in volumes) else None)
    return _encode(rules)


def _size_key(pod: Pod) -> bytes:
    """Equal for pods with equal requests and ports, and equal fields that aren't supported."""
    spec = pod.spec
    not_supported = (spec.resource_claims, spec.scheduling_group, spec.workload_ref)
    return _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources, not_supported))


def _size(spec: PodSpec) -> tuple[Resources, frozenset[HostPort]] | UnschedulableReason:
    if fields := unsupported_fields(spec):
        return unsupported(fields)
    try:
        requests = spec_requests(spec)
    except QuantityError as error:
        return UnschedulableReason(message=f"invalid resource requests: {error}")
    negative = next((name for name, amount in sorted(requests.items()) if amount < 0), None)
    if negative is not None:
        return UnschedulableReason(message=f"invalid resource requests: negative amount of {negative}")
    has_ports = any(container.ports for container in (*spec.containers, *spec.init_containers))
    return requests, host_ports(spec) if has_ports else frozenset()


def _read_group(
    pod: Pod, ports: frozenset[HostPort], namespaces: Namespaces, storage: Storage
) -> PodGroup | UnschedulableReason:
    try:
        spec = pod.spec
        required = _required_nodes(spec)
        volumes = storage.volumes_of(pod) if mounts_claims(spec) else Volumes()
        conflicts = [conflicting_key(r) for r in required]
        satisfiable = [r for r, conflict in zip(required, conflicts, strict=True) if conflict is None]
        if not satisfiable:
            key = next((conflict for conflict in conflicts if conflict is not None), None)
            return UnschedulableReason(
                message=f"nodeSelector and node affinity conflict: no value is allowed for {key}"
                if key is not None
                else "required node affinity has no term that can match a node"
            )
        needed = _spread_without_pods(filter(_limits_nothing, spec.topology_spread_constraints))
        alternatives = [intersect(intersect(r, v), needed) for r in satisfiable for v in volumes.alternatives]
        alternatives = [a for a in alternatives if conflicting_key(a) is None]
        if not alternatives:
            return UnschedulableReason(
                message="volume node affinity conflict: nodeSelector or node affinity excludes the volumes' topology"
            )
        return _pod_group(pod, tuple(alternatives), ports, volumes, namespaces)
    except (VolumeError, RequirementError, SelectorError) as error:
        return UnschedulableReason(message=str(error))


def _pod_group(
    pod: Pod,
    alternatives: tuple[Requirements, ...],
    ports: frozenset[HostPort],
    volumes: Volumes,
    namespaces: Namespaces,
) -> PodGroup:
    spec = pod.spec
    affinity = spec.affinity
    required_affinity, preferred_affinity = _affinity_terms(
        affinity.pod_affinity if affinity else None, pod, namespaces
    )
    required_anti_affinity, preferred_anti_affinity = _affinity_terms(
        affinity.pod_anti_affinity if affinity else None, pod, namespaces
    )
    constraints = [c for c in spec.topology_spread_constraints if not _limits_nothing(c)]
    return PodGroup(
        namespace=pod.metadata.namespace or "default",
        labels=pod.metadata.labels,
        alternatives=alternatives,
        tolerations=tuple(spec.tolerations),
        anti_affinity=required_anti_affinity,
        affinity=all_of(required_affinity) if required_affinity else (),
        spread_constraints=tuple(
            spread_constraint(c, pod) for c in constraints if c.when_unsatisfiable != "ScheduleAnyway"
        ),
        preferred_node_affinity=_preferred_nodes(affinity.node_affinity) if affinity else (),
        preferred_affinity=preferred_affinity,
        preferred_anti_affinity=preferred_anti_affinity,
        preferred_spread_constraints=tuple(
            spread_constraint(c, pod) for c in constraints if c.when_unsatisfiable == "ScheduleAnyway"
        ),
        ports=ports,
        mounted_volumes=volumes.mounted_volumes,
        volume_labels=frozenset(key for topology in volumes.alternatives for key in topology),
    )


def _required_nodes(spec: PodSpec) -> tuple[Requirements, ...]:
    return required_alternatives(spec) if spec.node_selector or spec.affinity else ({},)


def _preferred_nodes(affinity: NodeAffinity | None) -> tuple[Requirements, ...]:
    if affinity is None:
        return ()
    return preferred_alternatives(affinity.preferred_during_scheduling_ignored_during_execution)


def _affinity_terms(
    affinity: PodAffinity | None, pod: Pod, namespaces: Namespaces
) -> tuple[tuple[TopologyTerm, ...], tuple[TopologyTerm, ...]]:
    """The required terms, and the preferred ones, heaviest first."""
    if affinity is None:
        return (), ()
    preferred = sorted(affinity.preferred_during_scheduling_ignored_during_execution, key=lambda p: -p.weight)
    return (
        tuple(affinity_term(t, pod, namespaces) for t in affinity.required_during_scheduling_ignored_during_execution),
        tuple(affinity_term(p.pod_affinity_term, pod, namespaces) for p in preferred),
    )
