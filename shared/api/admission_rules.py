"""The CEL rules by which the API server refuses invalid labels and requirements of NodePools and NodeClaims.

They refuse what Karpenter's v1 definitions refuse and nothing else, except that ``karpenter.sh/capacity-spread`` is
allowed. What else makes an object unusable is reported by a condition (``shared.api.validation``), so that objects that
were stored before stay editable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.meta import Rule

_KARPENTER_KEYS = (labels.CAPACITY_TYPE, "karpenter.sh/capacity-spread")
_AWS_KEYS = (
    *labels.INSTANCE_LABELS,
    *labels.RESERVATION_LABELS,
    labels.NODECLASS,
    "karpenter.k8s.aws/placement-group-id",
    "karpenter.k8s.aws/placement-group-partition",
)
_IN = "r.operator == 'In'"
_COMPARISON = "r.operator in ['Gt', 'Lt', 'Gte', 'Lte']"


def _key_rules(key: str, allowed: Iterable[str], each: str = "{}") -> tuple[Rule, ...]:
    """The rules on the label that the expression ``key`` yields; ``each`` wraps them for all keys of a map."""
    rules = [
        *(
            (_outside(key, domain, keys), f'label domain "{domain}" is restricted')
            for domain, keys in ((labels.GROUP, allowed), (labels.AWS_GROUP, _AWS_KEYS))
        ),
        (f"{key} != '{labels.HOSTNAME}'", f'label "{labels.HOSTNAME}" is restricted'),
    ]
    return tuple((each.format(rule), message) for rule, message in rules)


def _outside(key: str, domain: str, allowed: Iterable[str]) -> str:
    keys = ", ".join(f"'{name}'" for name in sorted(allowed))
    return f"{key} in [{keys}] || !{key}.find('^[^/]+').endsWith('{domain}')"


REQUIREMENT_KEY: tuple[Rule, ...] = _key_rules("self", (*_KARPENTER_KEYS, labels.NODEPOOL))
"""On the key of a requirement; a NodeClaim may require its NodePool."""

TEMPLATE_LABELS: tuple[Rule, ...] = _key_rules("k", _KARPENTER_KEYS, "self.all(k, {})")
"""On the labels of a NodePool's template."""

_VALUES: tuple[Rule, ...] = (
    (
        f"self.all(r, !({_IN}) || (has(r.values) && r.values.size() != 0))",
        "requirements with operator In must have a value",
    ),
    (
        f"self.all(r, !({_COMPARISON}) || (has(r.values) && r.values.size() == 1 && int(r.values[0]) >= 0))",
        "requirements with operator Gt, Lt, Gte or Lte must have one value, an integer of 0 or more",
    ),
)

REQUIREMENTS: tuple[Rule, ...] = (
    *_VALUES,
    (
        f"self.all(r, !({_IN} && has(r.minValues)) || (has(r.values) && r.values.size() >= r.minValues))",
        "requirements with operator In must have at least as many values as minValues says",
    ),
)
"""On the requirements of a NodePool's template and of a NodeClaim."""

POOL_REQUIREMENTS: tuple[Rule, ...] = (
    *REQUIREMENTS,
    (f"self.all(r, r.key != '{labels.NODEPOOL}')", f'label "{labels.NODEPOOL}" is restricted'),
)
"""On the requirements of a NodePool's template."""

OVERLAY_REQUIREMENTS: tuple[Rule, ...] = (
    *_VALUES,
    (
        "self.all(r, r.operator != 'NotIn' || (has(r.values) && r.values.size() != 0))",
        "requirements with operator NotIn must have a value",
    ),
)
"""On the requirements of a NodeOverlay."""

OVERLAY_CAPACITY: tuple[Rule, ...] = (
    (
        "self.all(name, !(name in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
        "cpu, memory, ephemeral-storage and pods can't be changed",
    ),
)
"""On the capacity of a NodeOverlay."""

NODE_CLASS_REF: tuple[Rule, ...] = (
    ("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
    ("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
)
"""On the reference of a NodePool to its node class."""

NODE_POOL_SPEC: tuple[Rule, ...] = (
    ("has(self.replicas) == has(oldSelf.replicas)", "a NodePool can't get or lose replicas once it exists"),
    (
        "!has(self.replicas) || !has(self.limits) || self.limits.all(name, name == 'nodes')",
        "a NodePool with replicas can only have the limit nodes",
    ),
    ("!has(self.replicas) || !has(self.weight)", "a NodePool with replicas can't have a weight"),
)
"""On a NodePool's spec: static and dynamic NodePools differ."""
