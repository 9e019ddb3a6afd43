"""The pods that (anti-)affinity terms and topology spread constraints select, and their topology key.

All of them count the pods that a selector matches, by the value of one label of their nodes. Equal terms are one
:class:`TopologyTerm`, so each is matched and counted once. Source: kube-scheduler's InterPodAffinity and
PodTopologySpread plugins.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from shared.api.labels import normalize_key
from shared.api.meta import LabelSelector, LabelSelectorRequirement
from shared.api.selectors import SelectorError, matches
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.kubernetes import Namespace, Pod, PodAffinityTerm, TopologySpreadConstraint

_NAMESPACE_NAME = "kubernetes.io/metadata.name"


class TopologyTerm(Struct):
    """The pods that a selector matches in some namespaces (None: all), counted by the values of ``topology_key``."""

    topology_key: str
    namespaces: frozenset[str] | None
    labels: tuple[tuple[str, str], ...]
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...]

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the term selects a pod of this namespace with these labels."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        if any(labels.get(key) != value for key, value in self.labels):
            return False
        if not self.expressions:
            return True
        expressions = [
            LabelSelectorRequirement(key=key, operator=operator, values=list(values))
            for key, operator, values in self.expressions
        ]
        return matches(LabelSelector(match_expressions=expressions), labels)


class SpreadConstraint(Struct):
    """A topology spread constraint: its term, skew, and which nodes' domains count."""

    term: TopologyTerm
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


class Namespaces(Struct, eq=False, dict=True):
    """The namespaces and the pods in them, for terms that select namespaces by label."""

    namespaces: Sequence[Namespace]
    pods: Sequence[Pod]

    @cached_property
    def _labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels by name; a namespace that isn't known, but has pods, has its name only."""
        names_of_pods = {pod.metadata.namespace or "default" for pod in self.pods}
        return {
            **{name: {_NAMESPACE_NAME: name} for name in names_of_pods},
            **{n.metadata.name: {_NAMESPACE_NAME: n.metadata.name, **n.metadata.labels} for n in self.namespaces},
        }

    def selected(self, term: PodAffinityTerm, pod_namespace: str) -> frozenset[str] | None:
        """The namespaces that an affinity term selects; None for all."""
        if term.namespace_selector is None:
            return frozenset(term.namespaces) or frozenset({pod_namespace})
        if not term.namespace_selector.match_labels and not term.namespace_selector.match_expressions:
            return None
        names = {name for name, labels in self._labels.items() if matches(term.namespace_selector, labels)}
        return frozenset(names | set(term.namespaces))


def affinity_term(term: PodAffinityTerm, pod: Pod, namespaces: Namespaces) -> TopologyTerm:
    """The term of a pod's affinity or anti-affinity.

    Raises:
        SelectorError: the selector has an unknown operator.
    """
    labels = pod.metadata.labels
    pod_label_expressions = [
        *_pod_label_expressions(term.match_label_keys, "In", labels),
        *_pod_label_expressions(term.mismatch_label_keys, "NotIn", labels),
    ]
    selected = namespaces.selected(term, pod.metadata.namespace or "default")
    return _topology_term(term.topology_key, selected, term.label_selector, pod_label_expressions)


def all_of(terms: Sequence[TopologyTerm]) -> tuple[TopologyTerm, ...]:
    """The terms of one pod's required affinity: kube-scheduler counts only pods that all of them select.

    Source: ``podMatchesAllAffinityTerms`` in its InterPodAffinity plugin.
    """
    if len({(t.namespaces, t.labels, t.expressions) for t in terms}) <= 1:
        return tuple(terms)
    limited = [t.namespaces for t in terms if t.namespaces is not None]
    namespaces = frozenset.intersection(*limited) if limited else None
    labels = tuple(sorted({pair for t in terms for pair in t.labels}))
    expressions = tuple(sorted({e for t in terms for e in t.expressions}))
    return tuple(TopologyTerm(t.topology_key, namespaces, labels, expressions) for t in terms)


def spread_constraint(constraint: TopologySpreadConstraint, pod: Pod) -> SpreadConstraint:
    """The parsed topology spread constraint of a pod; without a selector it counts no pods, and so limits nothing.

    Raises:
        SelectorError: the selector has an unknown operator.
    """
    pod_label_expressions = _pod_label_expressions(constraint.match_label_keys, "In", pod.metadata.labels)
    namespaces = frozenset({pod.metadata.namespace or "default"})
    return SpreadConstraint(
        term=_topology_term(constraint.topology_key, namespaces, constraint.label_selector, pod_label_expressions),
        max_skew=max(1, constraint.max_skew),
        min_domains=constraint.min_domains or 0,
        honor_affinity=constraint.node_affinity_policy != "Ignore",
        honor_taints=constraint.node_taints_policy == "Honor",
    )


def _pod_label_expressions(
    keys: Iterable[str], operator: str, labels: Mapping[str, str]
) -> list[LabelSelectorRequirement]:
    """MatchLabelKeys or mismatchLabelKeys as expressions on the pod's own label values."""
    return [LabelSelectorRequirement(key=k, operator=operator, values=[labels[k]]) for k in keys if k in labels]


def _topology_term(
    topology_key: str,
    namespaces: frozenset[str] | None,
    selector: LabelSelector | None,
    pod_label_expressions: list[LabelSelectorRequirement],
) -> TopologyTerm:
    if selector is None:
        return TopologyTerm(normalize_key(topology_key), frozenset(), (), ())  # no selector selects no pods
    expressions = [*selector.match_expressions, *pod_label_expressions]
    for e in expressions:
        if e.operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            raise SelectorError(f'{e.key}: "{e.operator}" is not an operator of a label selector')
    return TopologyTerm(
        normalize_key(topology_key),
        namespaces,
        tuple(sorted(selector.match_labels.items())),
        tuple(sorted((e.key, e.operator, tuple(sorted(e.values))) for e in expressions)),
    )
