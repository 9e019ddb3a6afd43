"""The nodes that a pod's nodeSelector and node affinity allow, as requirements.

Source: kube-scheduler's NodeAffinity plugin.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shared.api.labels import HOSTNAME
from shared.scheduling.rules.requirements import RequirementError, Requirements, intersect, label_requirements, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import NodeSelectorTerm, PodSpec, PreferredSchedulingTerm


def required_alternatives(spec: PodSpec) -> tuple[Requirements, ...]:
    """The nodeSelector, combined with each term of the required node affinity; one of the alternatives must hold.

    Empty if no term can match a node. A term that can't be read matches none, and the others stand.

    >>> from shared.api.kubernetes import PodSpec
    >>> [alternative["disk"].single for alternative in required_alternatives(PodSpec(node_selector={"disk": "ssd"}))]
    ['ssd']

    Raises:
        RequirementError: no term can be read: an operator is unknown or its values are invalid.
    """
    node_selector = label_requirements(spec.node_selector)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return (node_selector,)
    return tuple(intersect(node_selector, terms) for terms in readable_terms(required.node_selector_terms))


def readable_terms(terms: Iterable[NodeSelectorTerm]) -> list[Requirements]:
    """The terms that can match a node: not empty ones, nor those that can't be read.

    Raises:
        RequirementError: no term can be read.
    """
    alternatives: list[Requirements] = []
    unreadable: list[RequirementError] = []
    for term in terms:
        if not term.match_expressions and not term.match_fields:
            continue
        try:
            alternatives.append(term_requirements(term))
        except RequirementError as error:
            unreadable.append(error)
    if unreadable and not alternatives:
        raise unreadable[0]
    return alternatives


def preferred_alternatives(terms: Iterable[PreferredSchedulingTerm]) -> tuple[Requirements, ...]:
    """The preferred terms, heaviest first. A term that can't be read is no preference."""
    preferred: list[Requirements] = []
    for term in sorted(terms, key=lambda t: -t.weight):
        with contextlib.suppress(RequirementError):
            preferred.append(term_requirements(term.preference))
    return tuple(preferred)


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
