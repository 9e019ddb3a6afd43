"""Validation of single values and of fields that several kinds share: labels, requirements, taints, class references.

Each function yields at most one sentence a value. The syntax of labels is Kubernetes'
(``apimachinery/pkg/util/validation``). Labels that Tenon or Kubernetes sets are restricted, because a user's value
would be wrong on the node. Source: Karpenter's restricted domains and well-known labels (docs/facts/karpenter.md,
section 2).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.duration import DurationError, parse_duration
from shared.api.kubernetes import EFFECTS, MAX_MIN_VALUES, OPERATORS, NodeSelectorRequirement
from shared.api.labels import integer
from shared.api.nodepool import MAX_REQUIREMENTS
from shared.api.quantity import QuantityError, parse_quantity
from shared.api.selectors import COMPARISONS, IN, NOT_IN
from shared.base.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from shared.api.kubernetes import LabelRequirement, Taint
    from shared.api.nodepool import NodeClassRef

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DOMAIN = 253
MAX_NAME = 63
"""Longest value of a label, so longest name of what a label refers to."""

_RESTRICTED_DOMAINS = ("kubernetes.io", "k8s.io", labels.GROUP, labels.AWS_GROUP)
_OPEN_DOMAINS = ("node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io")
_OPEN_KEYS = labels.WELL_KNOWN | labels.ALIASES.keys() | {"karpenter.sh/capacity-spread"}
_NODE_CLAIM_KEYS = frozenset({labels.NODEPOOL, labels.NODECLASS})
_KNOWN_VALUES = {
    labels.CAPACITY_TYPE: (labels.SPOT, labels.ON_DEMAND, labels.RESERVED),
    labels.ARCH: ("amd64", "arm64"),
    labels.OS: ("linux", "windows"),
}


def quoted(value: object) -> str:
    """A value as it is shown in a sentence."""
    return f'"{value}"' if isinstance(value, str) else str(value)


def listed(values: Collection[str]) -> str:
    """Allowed values, in order."""
    return ", ".join(values)


def choice(path: str, value: str, allowed: Collection[str]) -> Iterator[str]:
    """One of a few words."""
    if value not in allowed:
        yield f"{path}: {quoted(value)} is not allowed; allowed are {listed(allowed)}"


def within(path: str, value: int | None, low: int, high: int | None = None) -> Iterator[str]:
    """An integer in a range, both ends included; None is not set."""
    if value is None or (value >= low and (high is None or value <= high)):
        return
    allowed = f"{low} or more" if high is None else f"{low} to {high}"
    yield f"{path}: {value} is not allowed; allowed is {allowed}"


def at_most(path: str, count: int, most: int) -> Iterator[str]:
    """The length of a list."""
    if count > most:
        yield f"{path}: has {plural(count, 'entry')}; allowed are at most {most}"


def duration(path: str, value: str | None, *, never: bool = False) -> Iterator[str]:
    """A duration; "Never" only where that means something. None is not set."""
    if value is None:
        return
    try:
        parsed = parse_duration(value)
    except DurationError as error:
        yield f"{path}: {error}"
        return
    if parsed is None and not never:
        yield f'{path}: "{value}" is not allowed; allowed is a duration such as 30s, 10m or 1h30m'


def quantity(path: str, name: str, value: str | float) -> Iterator[str]:
    """A quantity that is not negative."""
    try:
        amount = parse_quantity(name, value)
    except QuantityError as error:
        yield f"{path}: {error}"
        return
    if amount < 0:
        yield f"{path}: {quoted(value)} is negative; allowed is 0 or more"


def quantities(path: str, raw: Mapping[str, str | int | float]) -> Iterator[str]:
    """Quantities by resource name."""
    for name, value in raw.items():
        yield from quantity(f"{path}.{name}", name, value)


def label_key(path: str, key: str) -> Iterator[str]:
    """``name`` or ``domain/name``."""
    domain, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not is_domain(domain)):
        yield (
            f"{path}: {quoted(key)} is not a label key; allowed is a name of at most 63 letters, digits, -, _ and . "
            f"that starts and ends with a letter or digit, with an optional domain and / before it"
        )


def is_domain(text: str) -> bool:
    """Whether the text is a DNS-1123 subdomain."""
    return len(text) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(text) is not None


def label_value(path: str, value: str) -> Iterator[str]:
    """Empty, or as a name."""
    if value and not _NAME.fullmatch(value):
        yield (
            f"{path}: {quoted(value)} is not a label value; allowed are at most 63 letters, digits, -, _ and ., "
            f"starting and ending with a letter or digit"
        )


def _in_domain(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


def restricted(path: str, key: str, *, of_node_claim: bool = False) -> Iterator[str]:
    """A label key that users can't set; a NodeClaim has the labels of its NodePool and node class."""
    normalized = labels.normalize_key(key)
    if of_node_claim and normalized in _NODE_CLAIM_KEYS:
        return
    if normalized in {labels.HOSTNAME, labels.NODEPOOL}:
        yield f"{path}: {quoted(key)} is restricted: its value is set for each node; allowed are other labels"
        return
    if key in _OPEN_KEYS:
        return
    domain = key.rpartition("/")[0]
    if any(_in_domain(domain, parent) for parent in _OPEN_DOMAINS):
        return
    for parent in _RESTRICTED_DOMAINS:
        if _in_domain(domain, parent):
            yield (
                f"{path}: {quoted(key)} is restricted; allowed are well-known labels of the domain {parent} "
                f"(such as {labels.ZONE}) and labels of your own domain"
            )
            return


def template_labels(path: str, given: Mapping[str, str]) -> Iterator[str]:
    """The labels of a pool's nodes."""
    for key, value in given.items():
        yield from label_key(f"{path}.{key}", key)
        yield from restricted(f"{path}.{key}", key)
        yield from label_value(f"{path}.{key}", value)


def template_annotations(path: str, given: Mapping[str, str]) -> Iterator[str]:
    """The annotations of a pool's nodes; only their keys are restricted."""
    for key in given:
        yield from label_key(f"{path}.{key}", key)


def requirements(path: str, given: Sequence[LabelRequirement], *, of_node_claim: bool = False) -> Iterator[str]:
    """Requirements on the nodes' labels."""
    yield from at_most(path, len(given), MAX_REQUIREMENTS)
    for i, req in enumerate(given):
        at = f"{path}[{i}]"
        yield from label_key(f"{at}.key", req.key)
        yield from restricted(f"{at}.key", req.key, of_node_claim=of_node_claim)
        yield from _values(at, req)
        if isinstance(req, NodeSelectorRequirement):
            yield from _min_values(at, req)


def _values(at: str, req: LabelRequirement) -> Iterator[str]:
    if req.operator not in OPERATORS:
        yield f"{at}.operator: {quoted(req.operator)} is not allowed; allowed are {listed(OPERATORS)}"
        return
    if req.operator in COMPARISONS:
        bound = integer(req.values[0]) if len(req.values) == 1 else None
        if bound is None or bound < 0:
            yield f"{at}.values: {_shown(req)} is not allowed; {req.operator} needs exactly one integer of 0 or more"
        return
    if req.operator not in {IN, NOT_IN}:
        if req.values:
            yield f"{at}.values: {_shown(req)} is not allowed; {req.operator} takes no values"
        return
    if not req.values:
        yield f"{at}.values: is empty; {req.operator} needs at least one value"
        return
    for i, value in enumerate(req.values):
        yield from label_value(f"{at}.values[{i}]", value)
    known = _KNOWN_VALUES.get(labels.normalize_key(req.key))
    if known and req.operator == IN and not set(known) & set(req.values):
        yield f"{at}.values: {_shown(req)} matches no node; known values of {req.key} are {listed(known)}"


def _shown(req: LabelRequirement) -> str:
    return f"[{', '.join(quoted(value) for value in req.values)}]"


def _min_values(at: str, req: NodeSelectorRequirement) -> Iterator[str]:
    if req.min_values is None:
        return
    yield from within(f"{at}.minValues", req.min_values, 1, MAX_MIN_VALUES)
    distinct = len(set(req.values))
    if req.operator == IN and distinct and req.min_values > distinct:
        given = plural(distinct, "value")
        yield f"{at}.minValues: {req.min_values} is more than the {given} given; allowed is 1 to {distinct}"


def taints(path: str, given: Sequence[Taint]) -> Iterator[str]:
    """Taints of a node."""
    for i, taint in enumerate(given):
        at = f"{path}[{i}]"
        yield from label_key(f"{at}.key", taint.key)
        yield from label_value(f"{at}.value", taint.value)
        yield from choice(f"{at}.effect", taint.effect, EFFECTS)


def both_taints(parent: str, given: Sequence[Taint], startup: Sequence[Taint]) -> Iterator[str]:
    """Taints and startup taints under one parent; a node can't carry the same key and effect twice."""
    seen: dict[tuple[str, str], str] = {}
    for path, path_taints in ((f"{parent}.taints", given), (f"{parent}.startupTaints", startup)):
        yield from taints(path, path_taints)
        for i, taint in enumerate(path_taints):
            first = seen.setdefault((taint.key, taint.effect), f"{path}[{i}]")
            if first != f"{path}[{i}]":
                yield (
                    f'{path}[{i}]: "{taint.key}:{taint.effect}" is there already at {first}; allowed is one taint '
                    f"of a key and effect"
                )


def node_class_ref(path: str, ref: NodeClassRef, kinds: Sequence[str]) -> Iterator[str]:
    """The reference to the node class."""
    yield from choice(f"{path}.group", ref.group, (labels.AWS_GROUP,))
    yield from choice(f"{path}.kind", ref.kind, kinds)
    if not ref.name:
        yield f"{path}.name: is empty; the name of an {kinds[0]} is needed"
