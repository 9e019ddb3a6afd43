"""A pod's constraints, one at a time: the same pod asking for nothing else, so that each can be judged by itself.

The scheduling core is asked about such pods as about any other, so what is said here is what decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api.kubernetes import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodSpec,
    ResourceRequirements,
    Toleration,
)
from shared.api.pods import requests
from shared.api.quantity import PODS, QuantityError, format_quantity, format_resources

if TYPE_CHECKING:
    from shared.api.quantity import Resources

ANY_TAINT = Toleration(operator="Exists")
TAINTS, AFFINITY, ANTI_AFFINITY, SPREAD, VOLUMES, PORTS = (
    "taints", "affinity", "anti-affinity", "spread", "volumes", "ports",
)  # fmt: skip
RESOURCES, LIMITS, CAPACITY, TOGETHER, OTHER_PODS = (
    "resources", "limits", "capacity", "together", "other pods",
)  # fmt: skip
NODE_AFFINITY = "node affinity"
ABOUT_PODS = frozenset({AFFINITY, ANTI_AFFINITY, SPREAD})
"""Constraints that depend on where other pods are."""
_KINDS = {
    names.ARCH: "arch",
    names.ZONE: "zone",
    names.INSTANCE_TYPE: "instance type",
    names.CAPACITY_TYPE: "capacity type",
}


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """One thing that a pod asks for. ``criterion`` is what kind of thing; ``pod`` is the pod that asks only for it."""

    criterion: str
    what: str
    pod: Pod
    without: Pod

    @property
    def relief(self) -> str:
        """How the pod would have to change to be ``without``, at the head of a sentence."""
        if self.criterion == TAINTS:
            return "if it tolerated that"
        return (
            f"without its {self.what}"
            if self.criterion in {AFFINITY, ANTI_AFFINITY, SPREAD, VOLUMES}
            else f"without {self.what}"
        )


def of(pod: Pod) -> tuple[Constraint, ...]:
    """What the pod asks for, in the order in which it is told: place first, then room.

    Raises:
        QuantityError: a request is no quantity.
    """
    return (*_volumes(pod), *_labels(pod), *_tolerations(pod), *_about_pods(pod), *_ports(pod), *_resources(pod))


def bare(pod: Pod) -> Pod:
    """The pod, asking for nothing and tolerating everything."""
    return msgspec.structs.replace(
        pod, spec=PodSpec(containers=[Container(name="main")], tolerations=[ANY_TAINT]), status=pod.status
    )


def _with(pod: Pod, **fields: object) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))


def _volumes(pod: Pod) -> list[Constraint]:
    mine = [v for v in pod.spec.volumes if v.persistent_volume_claim is not None or v.ephemeral is not None]
    if not mine:
        return []
    named = [v.persistent_volume_claim.claim_name if v.persistent_volume_claim is not None else v.name for v in mine]
    return [
        Constraint(
            criterion=VOLUMES,
            what=f"volume{'s' if len(mine) > 1 else ''} {', '.join(named)}",
            pod=_with(bare(pod), volumes=mine),
            without=_with(pod, volumes=[v for v in pod.spec.volumes if v not in mine]),
        )
    ]


def _labels(pod: Pod) -> list[Constraint]:
    """Each label of the nodeSelector, and of a node affinity with one term; with more terms it counts as one."""
    spec = pod.spec
    found = [
        Constraint(
            criterion=_kind(key),
            what=f"{key}={value}",
            pod=_with(bare(pod), node_selector={key: value}),
            without=_with(pod, node_selector={k: v for k, v in spec.node_selector.items() if k != key}),
        )
        for key, value in sorted(spec.node_selector.items())
    ]
    node_affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity is not None else None
    if required is None:
        return found
    terms = required.node_selector_terms
    if len(terms) != 1 or terms[0].match_fields:
        return [
            *found,
            Constraint(
                criterion=NODE_AFFINITY,
                what=f"node affinity (any of {len(terms)} terms)" if len(terms) != 1 else "node affinity",
                pod=_with(bare(pod), affinity=_node_affinity(terms)),
                without=_required(pod, []),
            ),
        ]
    for i, expression in enumerate(terms[0].match_expressions):
        alone = [NodeSelectorTerm(match_expressions=[expression])]
        rest = [e for j, e in enumerate(terms[0].match_expressions) if j != i]
        found.append(
            Constraint(
                criterion=_kind(expression.key),
                what=f"{expression.key} {expression.operator} {', '.join(expression.values)}".strip(),
                pod=_with(bare(pod), affinity=_node_affinity(alone)),
                without=_required(pod, [NodeSelectorTerm(match_expressions=rest)] if rest else []),
            )
        )
    return found


def _kind(key: str) -> str:
    return _KINDS.get(names.normalize_key(key), "label")


def _node_affinity(terms: list[NodeSelectorTerm]) -> Affinity:
    selector = NodeSelector(node_selector_terms=terms)
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


def _required(pod: Pod, terms: list[NodeSelectorTerm]) -> Pod:
    affinity = pod.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    node_affinity = msgspec.structs.replace(
        affinity.node_affinity,
        required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=terms) if terms else None,
    )
    return _with(pod, affinity=msgspec.structs.replace(affinity, node_affinity=node_affinity))


def _tolerations(pod: Pod) -> list[Constraint]:
    return [
        Constraint(
            criterion=TAINTS,
            what="taints",
            pod=_with(bare(pod), tolerations=pod.spec.tolerations),
            without=_with(pod, tolerations=[ANY_TAINT]),
        )
    ]


def _about_pods(pod: Pod) -> list[Constraint]:
    affinity = pod.spec.affinity
    found = []
    for criterion, what, field in (
        (AFFINITY, "affinity", "pod_affinity"),
        (ANTI_AFFINITY, "anti-affinity", "pod_anti_affinity"),
    ):
        rules: PodAffinity | None = getattr(affinity, field, None)
        if affinity is None or rules is None or not rules.required_during_scheduling_ignored_during_execution:
            continue
        terms = rules.required_during_scheduling_ignored_during_execution
        alone = PodAffinity(required_during_scheduling_ignored_during_execution=terms)
        freed = msgspec.structs.replace(rules, required_during_scheduling_ignored_during_execution=[])
        found.append(
            Constraint(
                criterion=criterion,
                what=f"{what} to pods within {', '.join(sorted({t.topology_key for t in terms}))}",
                pod=_with(bare(pod), affinity=msgspec.structs.replace(Affinity(), **{field: alone})),
                without=_with(pod, affinity=msgspec.structs.replace(affinity, **{field: freed})),
            )
        )
    spread = [s for s in pod.spec.topology_spread_constraints if s.when_unsatisfiable != "ScheduleAnyway"]
    if spread:
        rest = [s for s in pod.spec.topology_spread_constraints if s not in spread]
        found.append(
            Constraint(
                criterion=SPREAD,
                what=f"spread over {', '.join(sorted({s.topology_key for s in spread}))}",
                pod=_with(bare(pod), topology_spread_constraints=spread),
                without=_with(pod, topology_spread_constraints=rest),
            )
        )
    return found


def _ports(pod: Pod) -> list[Constraint]:
    ports = [port for c in pod.spec.containers for port in c.ports if port.host_port]
    if not ports:
        return []
    freed = [msgspec.structs.replace(c, ports=[]) for c in pod.spec.containers]
    return [
        Constraint(
            criterion=PORTS,
            what=f"host port{'s' if len(ports) > 1 else ''} {', '.join(str(p.host_port) for p in ports)}",
            pod=_with(bare(pod), containers=[Container(name="main", ports=ports)]),
            without=_with(pod, containers=freed),
        )
    ]


def _resources(pod: Pod) -> list[Constraint]:
    asked = {name: amount for name, amount in requests(pod).items() if amount and name != PODS}
    return [
        Constraint(
            criterion=name if "/" in name else RESOURCES,
            what=f"{name} {format_quantity(name, amount)}",
            pod=asking(bare(pod), {name: amount}),
            without=asking(pod, {k: v for k, v in asked.items() if k != name}),
        )
        for name, amount in sorted(asked.items(), key=lambda a: ("/" not in a[0], a[0]))
    ]


def asking(pod: Pod, amounts: Resources) -> Pod:
    """The pod with exactly these requests."""
    requirements = ResourceRequirements(requests={**format_resources(amounts)})
    ports = [port for c in pod.spec.containers for port in c.ports]
    return _with(
        pod,
        containers=[Container(name="main", resources=requirements, ports=ports)],
        init_containers=[],
        overhead={},
        resources=None,
    )


def amounts(pod: Pod) -> Resources:
    """What the pod asks for; empty if that can't be read."""
    try:
        return {name: amount for name, amount in requests(pod).items() if amount and name != PODS}
    except QuantityError:
        return {}
