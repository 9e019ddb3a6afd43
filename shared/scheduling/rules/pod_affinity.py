"""Which pods a topology rule speaks of, and within what.

Spread constraints, affinities and anti-affinities all count the pods that a selector matches, by the values of one
label of their nodes. Equal rules are one term, so each is matched and counted once. Source: kube-scheduler's
PodTopologySpread and InterPodAffinity plugins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api.labels import normalize_key
from shared.api.meta import LabelSelector, LabelSelectorRequirement
from shared.api.selectors import SelectorError, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.kubernetes import Namespace, Pod, PodAffinityTerm, TopologySpreadConstraint

_NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True)
class TopologyTerm:
    """The pods of some namespaces (None: all) that a selector matches, within the domains of a label."""

    topology_key: str
    namespaces: frozenset[str] | None
    labels: tuple[tuple[str, str], ...]
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...]

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it speaks of a pod with these labels."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        if any(labels.get(k) != v for k, v in self.labels):
            return False
        return not self.expressions or matches(
            LabelSelector(
                match_expressions=[
                    LabelSelectorRequirement(key=k, operator=o, values=list(v)) for k, o, v in self.expressions
                ]
            ),
            labels,
        )


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """How evenly a term's pods must stand, and which nodes count."""

    term: TopologyTerm
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


class Namespaces:
    """The namespaces there are, for rules that select them by label."""

    def __init__(self, namespaces: Iterable[Namespace], mentioned: Iterable[str]) -> None:
        self._labels: dict[str, Mapping[str, str]] = {name: {_NAMESPACE_NAME: name} for name in mentioned}
        for n in namespaces:
            self._labels[n.metadata.name] = {_NAMESPACE_NAME: n.metadata.name, **n.metadata.labels}

    def selected(self, term: PodAffinityTerm, own: str) -> frozenset[str] | None:
        """The namespaces that an affinity term speaks of; None for all."""
        if term.namespace_selector is None:
            return frozenset(term.namespaces) or frozenset({own})
        if not term.namespace_selector.match_labels and not term.namespace_selector.match_expressions:
            return None
        found = {name for name, labels in self._labels.items() if matches(term.namespace_selector, labels)}
        return frozenset(found | set(term.namespaces))


def _topology_term(
    topology_key: str,
    namespaces: frozenset[str] | None,
    selector: LabelSelector | None,
    extra: list[LabelSelectorRequirement],
) -> TopologyTerm:
    if selector is None:
        # No selector selects nothing: an expression that nothing fulfils.
        return TopologyTerm(normalize_key(topology_key), frozenset(), (), ())
    expressions = [*selector.match_expressions, *extra]
    for e in expressions:
        if e.operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            raise SelectorError(f'{e.key}: "{e.operator}" is not an operator of a label selector')
    return TopologyTerm(
        normalize_key(topology_key),
        namespaces,
        tuple(sorted(selector.match_labels.items())),
        tuple(sorted((e.key, e.operator, tuple(sorted(e.values))) for e in expressions)),
    )


def affinity_term(term: PodAffinityTerm, pod: Pod, namespaces: Namespaces) -> TopologyTerm:
    """The term of an affinity or anti-affinity of the pod.

    Raises:
        SelectorError: the selector has an unknown operator.
    """
    own = pod.metadata.labels
    extra = [LabelSelectorRequirement(key=k, operator="In", values=[own[k]]) for k in term.match_label_keys if k in own]
    extra += [
        LabelSelectorRequirement(key=k, operator="NotIn", values=[own[k]]) for k in term.mismatch_label_keys if k in own
    ]
    where = namespaces.selected(term, pod.metadata.namespace or "default")
    return _topology_term(term.topology_key, where, term.label_selector, extra)


def spread_constraint(constraint: TopologySpreadConstraint, pod: Pod) -> SpreadConstraint:
    """The rule of a spread constraint of the pod.

    Raises:
        SelectorError: the selector is missing or has an unknown operator.
    """
    if constraint.label_selector is None:
        raise SelectorError(f"its spread over {constraint.topology_key} has no labelSelector, so it says of no pods")
    own = pod.metadata.labels
    extra = [
        LabelSelectorRequirement(key=k, operator="In", values=[own[k]]) for k in constraint.match_label_keys if k in own
    ]
    term = _topology_term(
        constraint.topology_key, frozenset({pod.metadata.namespace or "default"}), constraint.label_selector, extra
    )
    return SpreadConstraint(
        term,
        max(1, constraint.max_skew),
        constraint.min_domains or 0,
        constraint.node_affinity_policy != "Ignore",
        constraint.node_taints_policy == "Honor",
    )
