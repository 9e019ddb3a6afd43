"""Pods that are alike in everything but size, so that scheduling thinks once for all of them.

A class is read from its first pod: what nodes it allows, what it tolerates, which rules it holds about other pods. What
is only preferred is kept apart, as it may have to be given up. A pod that can't be read gets a reason of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from shared.api.pods import spec_requests
from shared.api.quantity import QuantityError, Resources
from shared.api.selectors import SelectorError
from shared.scheduling.decision import UnschedulableReason
from shared.scheduling.rules.host_ports import host_ports
from shared.scheduling.rules.node_affinity import required_alternatives, term_requirements
from shared.scheduling.rules.pod_affinity import (
    Namespaces,
    SpreadConstraint,
    TopologyTerm,
    affinity_term,
    spread_constraint,
)
from shared.scheduling.rules.requirements import RequirementError, Requirements, both, contradiction
from shared.scheduling.rules.volume_topology import Storage, VolumeError, Volumes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Pod, PodAffinity, PodSpec, Toleration
    from shared.scheduling.rules.host_ports import HostPort

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True, kw_only=True, eq=False)
class PodGroup:
    """What all pods of a class ask for. Preferences are heaviest first; ``located`` are labels that volumes fix."""

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
    mounted_volumes: frozenset[tuple[str, str]] = frozenset()
    volume_labels: frozenset[str] = frozenset()
    order: tuple[bytes, ...] = ()


@dataclass
class SizedPods:
    """Pods of one class and one size; ``pods`` are their keys, in order."""

    requests: Resources
    pods: list[str]


@dataclass
class GroupedPods:
    """What was read: classes with their pods by size, and the pods that couldn't be read."""

    classes: list[tuple[PodGroup, list[SizedPods]]] = field(default_factory=list)
    refused: dict[str, UnschedulableReason] = field(default_factory=dict)


def group_pods(pods: Iterable[Pod], namespaces: Namespaces, storage: Storage) -> GroupedPods:
    """The classes of these pods, in an order that doesn't depend on that of the pods."""
    grouped: dict[tuple[bytes, bytes], list[Pod]] = {}
    for pod in pods:
        grouped.setdefault(_keys(pod), []).append(pod)
    reading = GroupedPods()
    made: dict[tuple[bytes, tuple[HostPort, ...]], tuple[PodGroup | UnschedulableReason, list[SizedPods]]] = {}
    sizes: dict[bytes, tuple[Resources, frozenset[HostPort]] | UnschedulableReason] = {}
    for (rules, size), members in sorted(grouped.items()):
        first = members[0]
        names = sorted(p.key for p in members)
        if size not in sizes:
            sizes[size] = _size(first.spec)
        sized = sizes[size]
        if isinstance(sized, UnschedulableReason):
            reading.refused.update(dict.fromkeys(names, sized))
            continue
        requests, ports = sized
        key = (rules, tuple(sorted(ports)))
        if key not in made:
            made[key] = (_read(first, ports, namespaces, storage, rules), [])
        pod_class, members_by_size = made[key]
        if isinstance(pod_class, UnschedulableReason):
            reading.refused.update(dict.fromkeys(names, pod_class))
            continue
        same = next((s for s in members_by_size if s.requests == requests), None) if len(members_by_size) < 8 else None  # noqa: PLR2004 (beyond a few, sizes that differ only in form are left apart)
        if same is not None:
            same.pods = sorted([*same.pods, *names])
        else:
            members_by_size.append(SizedPods(requests, names))
    reading.classes = [(c, sizes) for c, sizes in made.values() if isinstance(c, PodGroup)]
    return reading


def _keys(pod: Pod) -> tuple[bytes, bytes]:
    spec = pod.spec
    meta = pod.metadata
    rules: tuple[object, ...] = (
        meta.namespace or "default",
        meta.labels,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
    )
    if spec.volumes:
        mine = [v for v in spec.volumes if v.persistent_volume_claim is not None or v.ephemeral is not None]
        rules = (*rules, mine, meta.name if any(v.ephemeral is not None for v in mine) else None) if mine else rules
    return _encode(rules), _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))


def _size(spec: PodSpec) -> tuple[Resources, frozenset[HostPort]] | UnschedulableReason:
    try:
        requests = spec_requests(spec)
    except QuantityError as error:
        return UnschedulableReason(message=f"its requests can't be read: {error}")
    negative = next((name for name, amount in sorted(requests.items()) if amount < 0), None)
    if negative is not None:
        return UnschedulableReason(message=f"it requests a negative amount of {negative}")
    return requests, host_ports(spec)


def _read(
    pod: Pod, ports: frozenset[HostPort], namespaces: Namespaces, storage: Storage, rules: bytes
) -> PodGroup | UnschedulableReason:
    try:
        required = required_alternatives(pod.spec)
        volumes = storage.volumes_of(pod)
        clash = [contradiction(r) for r in required]
        kept = [r for r, wrong in zip(required, clash, strict=True) if wrong is None]
        if not kept:
            key = next((wrong for wrong in clash if wrong is not None), None)
            return UnschedulableReason(
                message=f"its node selector and affinity contradict each other: no value is left for {key}"
                if key is not None
                else "its required node affinity has no term that any node could match"
            )
        met = [m for r in kept for v in volumes.alternatives if contradiction(m := both(r, v)) is None]
        if not met:
            return UnschedulableReason(message="its volumes are where its node selector or affinity doesn't let it run")
        return _with_rules(pod, tuple(met), ports, volumes, namespaces, rules)
    except (VolumeError, RequirementError, SelectorError) as error:
        return UnschedulableReason(message=str(error))


def _with_rules(
    pod: Pod,
    alternatives: tuple[Requirements, ...],
    ports: frozenset[HostPort],
    volumes: Volumes,
    namespaces: Namespaces,
    rules: bytes,
) -> PodGroup:
    spec = pod.spec
    affinity = spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    preferred = node.preferred_during_scheduling_ignored_during_execution if node is not None else []
    near_required, near_preferred = _affinities(affinity.pod_affinity if affinity else None, pod, namespaces)
    far_required, far_preferred = _affinities(affinity.pod_anti_affinity if affinity else None, pod, namespaces)
    hard = [c for c in spec.topology_spread_constraints if c.when_unsatisfiable != "ScheduleAnyway"]
    tolerate_prefer_no_schedule = [
        c for c in spec.topology_spread_constraints if c.when_unsatisfiable == "ScheduleAnyway"
    ]
    return PodGroup(
        namespace=pod.metadata.namespace or "default",
        labels=pod.metadata.labels,
        alternatives=alternatives,
        tolerations=tuple(spec.tolerations),
        anti_affinity=far_required,
        affinity=near_required,
        spread_constraints=tuple(spread_constraint(c, pod) for c in hard),
        preferred_node_affinity=tuple(
            term_requirements(p.preference) for p in sorted(preferred, key=lambda p: -p.weight)
        ),
        preferred_affinity=near_preferred,
        preferred_anti_affinity=far_preferred,
        preferred_spread_constraints=tuple(spread_constraint(c, pod) for c in tolerate_prefer_no_schedule),
        ports=ports,
        mounted_volumes=volumes.mounted_volumes,
        volume_labels=frozenset(key for places in volumes.alternatives for key in places),
        order=(rules,),
    )


def _affinities(
    affinity: PodAffinity | None, pod: Pod, namespaces: Namespaces
) -> tuple[tuple[TopologyTerm, ...], tuple[TopologyTerm, ...]]:
    if affinity is None:
        return (), ()
    preferred = sorted(affinity.preferred_during_scheduling_ignored_during_execution, key=lambda p: -p.weight)
    return (
        tuple(affinity_term(t, pod, namespaces) for t in affinity.required_during_scheduling_ignored_during_execution),
        tuple(affinity_term(p.pod_affinity_term, pod, namespaces) for p in preferred),
    )
