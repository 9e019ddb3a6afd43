"""The nodes that a pod's nodeSelector and node affinity allow, as requirements.

Source: kube-scheduler's NodeAffinity plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.labels import HOSTNAME
from shared.scheduling.rules.requirements import RequirementError, Requirements, both, of_labels, parse

if TYPE_CHECKING:
    from shared.api.kubernetes import NodeSelectorTerm, PodSpec


def required_alternatives(spec: PodSpec) -> tuple[Requirements, ...]:
    """The nodeSelector, with each term of the required node affinity in turn; none at all if no term can hold.

    Raises:
        RequirementError: an operator is unknown or its values don't suit it.
    """
    base = of_labels(spec.node_selector)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return (base,)
    return tuple(both(base, term_requirements(term)) for term in required.node_selector_terms if not _blank(term))


def _blank(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def term_requirements(term: NodeSelectorTerm) -> Requirements:
    """One term; ``metadata.name``, the one field there is, counts as the host's name.

    Raises:
        RequirementError: an operator is unknown or its values don't suit it.
    """
    found = parse(term.match_expressions)
    if term.match_fields:
        fields = parse(term.match_fields)
        if set(fields) != {"metadata.name"}:
            raise RequirementError(f"matchFields knows metadata.name alone, not {sorted(fields)}")
        found = both(found, {HOSTNAME: fields["metadata.name"]})
    return found
