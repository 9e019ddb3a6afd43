"""The nodes that a pod's nodeSelector and node affinity allow, as requirements.

Source: kube-scheduler's NodeAffinity plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.labels import HOSTNAME
from shared.scheduling.rules.requirements import RequirementError, Requirements, intersect, label_requirements, parse

if TYPE_CHECKING:
    from shared.api.kubernetes import NodeSelectorTerm, PodSpec


def required_alternatives(spec: PodSpec) -> tuple[Requirements, ...]:
    """The nodeSelector, combined with each term of the required node affinity; one of the alternatives must hold.

    Empty if no term can match a node.

    Raises:
        RequirementError: an operator is unknown or its values are invalid.
    """
    node_selector = label_requirements(spec.node_selector)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return (node_selector,)
    terms = [term for term in required.node_selector_terms if term.match_expressions or term.match_fields]
    return tuple(intersect(node_selector, term_requirements(term)) for term in terms)


def term_requirements(term: NodeSelectorTerm) -> Requirements:
    """The requirements of one term; ``metadata.name``, the only field, is matched by the hostname label.

    Raises:
        RequirementError: an operator or a field is unknown, or its values are invalid.
    """
    requirements = parse(term.match_expressions)
    if term.match_fields:
        fields = parse(term.match_fields)
        if set(fields) != {"metadata.name"}:
            raise RequirementError(f"matchFields supports only metadata.name, not {sorted(fields)}")
        requirements = intersect(requirements, {HOSTNAME: fields["metadata.name"]})
    return requirements
