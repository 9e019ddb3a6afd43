"""The scheduling constraints of a pod, one at a time: a pod with only that constraint, and the pod without it.

The scheduler decides about these pods as about any other, so an explanation can't differ from the decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.containers import Container, ResourceRequirements
from shared.api.kubernetes import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodSpec,
    Toleration,
)
from shared.api.pods import requests
from shared.api.quantity import PODS, QuantityError, format_quantity, format_resources
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from shared.api.quantity import Resources

ANY_TAINT = Toleration(operator="Exists")
TAINTS, AFFINITY, ANTI_AFFINITY, SPREAD, VOLUMES, PORTS = (
    "taints", "affinity", "anti-affinity", "spread", "volumes", "ports",
)  # fmt: skip
RESOURCES, LIMITS, CAPACITY, TOGETHER, OTHER_PODS = (
    "resources", "limits", "capacity", "together", "other pods",
)  # fmt: skip
NODE_AFFINITY, ARCH = "node affinity", "arch"
INTER_POD = frozenset({AFFINITY, ANTI_AFFINITY, SPREAD})
"""Constraints that depend on other pods."""
_CRITERIA_BY_LABEL = {
    names.ARCH: ARCH,
    names.ZONE: "zone",
    names.INSTANCE_TYPE: "instance type",
    names.CAPACITY_TYPE: "capacity type",
}


class Constraint(Struct, kw_only=True):
    """``criterion`` is the kind of constraint. ``alone`` is the pod with only it, ``without`` the pod without it.

    ``label`` and ``values`` are those of a constraint on nodes' labels that lists the values it allows.
    """

    criterion: str
    name: str
    alone: Pod
    without: Pod
    label: str = ""
    values: tuple[str, ...] = ()

    @property
    def relief(self) -> str:
        """The change to the pod that makes it ``without``."""
        if self.criterion == TAINTS:
            return "with a toleration"
        if self.criterion in {AFFINITY, ANTI_AFFINITY, SPREAD, VOLUMES}:
            return f"without its {self.name}"
        return f"without {self.name}"


def constraints_of(pod: Pod) -> tuple[Constraint, ...]:
    """The pod's constraints in the order in which they are checked, resources last.

    Raises:
        QuantityError: a request is not a quantity.
    """
    return (*_volumes(pod), *_labels(pod), *_tolerations(pod), *_inter_pod(pod), *_ports(pod), *_resources(pod))


def unconstrained(pod: Pod) -> Pod:
    """The pod without constraints and requests; it tolerates all taints."""
    return with_fields(
        pod, spec=PodSpec(containers=[Container(name="main")], tolerations=[ANY_TAINT]), status=pod.status
    )


def _with(pod: Pod, **fields: object) -> Pod:
    return with_fields(pod, spec=with_fields(pod.spec, **fields))


def _volumes(pod: Pod) -> list[Constraint]:
    claimed = [v for v in pod.spec.volumes if v.persistent_volume_claim is not None or v.ephemeral is not None]
    if not claimed:
        return []
    claim_names = [
        v.persistent_volume_claim.claim_name if v.persistent_volume_claim is not None else v.name for v in claimed
    ]
    return [
        Constraint(
            criterion=VOLUMES,
            name=f"volume{'s' if len(claimed) > 1 else ''} {', '.join(claim_names)}",
            alone=_with(unconstrained(pod), volumes=claimed),
            without=_with(pod, volumes=[v for v in pod.spec.volumes if v not in claimed]),
        )
    ]


def _labels(pod: Pod) -> list[Constraint]:
    """Each label of the nodeSelector and each expression of the node affinity; several terms are one constraint."""
    selector = pod.spec.node_selector
    constraints = [
        Constraint(
            criterion=_criterion(key),
            name=f"{key}={value}",
            alone=_with(unconstrained(pod), node_selector={key: value}),
            without=_with(pod, node_selector={k: v for k, v in selector.items() if k != key}),
            label=names.normalize_key(key),
            values=(value,),
        )
        for key, value in sorted(selector.items())
    ]
    node_affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity is not None else None
    return constraints if required is None else [*constraints, *_node_affinity(pod, required.node_selector_terms)]


def _node_affinity(pod: Pod, terms: list[NodeSelectorTerm]) -> list[Constraint]:
    if len(terms) != 1 or terms[0].match_fields:
        name = f"node affinity (any of {len(terms)} terms)" if len(terms) != 1 else "node affinity"
        alone = _with(unconstrained(pod), affinity=_affinity_to(terms))
        return [Constraint(criterion=NODE_AFFINITY, name=name, alone=alone, without=_with_terms(pod, []))]
    constraints = []
    expressions = terms[0].match_expressions
    for i, expression in enumerate(expressions):
        rest = [*expressions[:i], *expressions[i + 1 :]]
        constraints.append(
            Constraint(
                criterion=_criterion(expression.key),
                name=f"{expression.key} {expression.operator} {', '.join(expression.values)}".strip(),
                alone=_with(
                    unconstrained(pod), affinity=_affinity_to([NodeSelectorTerm(match_expressions=[expression])])
                ),
                without=_with_terms(pod, [NodeSelectorTerm(match_expressions=rest)] if rest else []),
                label=names.normalize_key(expression.key) if expression.operator == "In" else "",
                values=tuple(expression.values),
            )
        )
    return constraints


def _criterion(key: str) -> str:
    return _CRITERIA_BY_LABEL.get(names.normalize_key(key), "label")


def _affinity_to(terms: list[NodeSelectorTerm]) -> Affinity:
    selector = NodeSelector(node_selector_terms=terms)
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


def _with_terms(pod: Pod, terms: list[NodeSelectorTerm]) -> Pod:
    affinity = pod.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    node_affinity = with_fields(
        affinity.node_affinity,
        required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=terms) if terms else None,
    )
    return _with(pod, affinity=with_fields(affinity, node_affinity=node_affinity))


def _tolerations(pod: Pod) -> list[Constraint]:
    return [
        Constraint(
            criterion=TAINTS,
            name="taints",
            alone=_with(unconstrained(pod), tolerations=pod.spec.tolerations),
            without=_with(pod, tolerations=[ANY_TAINT]),
        )
    ]


def _inter_pod(pod: Pod) -> list[Constraint]:
    return [
        *_pod_affinity(pod, AFFINITY, "pod_affinity"),
        *_pod_affinity(pod, ANTI_AFFINITY, "pod_anti_affinity"),
        *_topology_spread(pod),
    ]


def _pod_affinity(pod: Pod, criterion: str, field: str) -> list[Constraint]:
    """The required terms of podAffinity or podAntiAffinity, whose name is the criterion."""
    affinity = pod.spec.affinity
    rules: PodAffinity | None = getattr(affinity, field, None)
    if affinity is None or rules is None or not rules.required_during_scheduling_ignored_during_execution:
        return []
    terms = rules.required_during_scheduling_ignored_during_execution
    alone = PodAffinity(required_during_scheduling_ignored_during_execution=terms)
    without = with_fields(rules, required_during_scheduling_ignored_during_execution=[])
    return [
        Constraint(
            criterion=criterion,
            name=f"{criterion} to pods within {', '.join(sorted({t.topology_key for t in terms}))}",
            alone=_with(unconstrained(pod), affinity=with_fields(Affinity(), **{field: alone})),
            without=_with(pod, affinity=with_fields(affinity, **{field: without})),
        )
    ]


def _topology_spread(pod: Pod) -> list[Constraint]:
    constraints = pod.spec.topology_spread_constraints
    required = [c for c in constraints if c.when_unsatisfiable != "ScheduleAnyway"]
    if not required:
        return []
    return [
        Constraint(
            criterion=SPREAD,
            name=f"topology spread over {', '.join(sorted({c.topology_key for c in required}))}",
            alone=_with(unconstrained(pod), topology_spread_constraints=required),
            without=_with(pod, topology_spread_constraints=[c for c in constraints if c not in required]),
        )
    ]


def _ports(pod: Pod) -> list[Constraint]:
    ports = [port for c in pod.spec.containers for port in c.ports if port.host_port]
    if not ports:
        return []
    without_ports = [with_fields(c, ports=[]) for c in pod.spec.containers]
    return [
        Constraint(
            criterion=PORTS,
            name=f"host port{'s' if len(ports) > 1 else ''} {', '.join(str(p.host_port) for p in ports)}",
            alone=_with(unconstrained(pod), containers=[Container(name="main", ports=ports)]),
            without=_with(pod, containers=without_ports),
        )
    ]


def _resources(pod: Pod) -> list[Constraint]:
    """Each requested resource, extended resources first."""
    amounts = _requested(pod)
    return [
        Constraint(
            criterion=name if "/" in name else RESOURCES,
            name=f"{name} {format_quantity(name, amount)}",
            alone=with_requests(unconstrained(pod), {name: amount}),
            without=with_requests(pod, {k: v for k, v in amounts.items() if k != name}),
        )
        for name, amount in sorted(amounts.items(), key=lambda item: ("/" not in item[0], item[0]))
    ]


def with_requests(pod: Pod, amounts: Resources) -> Pod:
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


def requested(pod: Pod) -> Resources:
    """The pod's requests; empty if one is not a quantity."""
    try:
        return _requested(pod)
    except QuantityError:
        return {}


def _requested(pod: Pod) -> Resources:
    return {name: amount for name, amount in requests(pod).items() if amount and name != PODS}
