"""Fingerprints of what nodes are made from, by which drift of a template or a class is known.

What may change without replacing nodes is left out: limits, weight, budgets; requirements and selector terms too, whose
drift is judged by what they select. A fingerprint says nothing across versions of how it is taken: with another version
the object is stamped anew, and nothing drifts. Source: docs/facts/karpenter.md, section 5.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from shared.api.meta import to_json

if TYPE_CHECKING:
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool

NODEPOOL_HASH_VERSION = "tenon-v1"
NODECLASS_HASH_VERSION = "tenon-v1"

_DIGITS = 16


def hash_node_pool(pool: NodePool) -> str:
    """The fingerprint of the pool's template, without its requirements: 16 hexadecimal digits."""
    template = pool.spec.template
    return _digest(
        {
            "metadata": to_json(template.metadata),
            "spec": to_json(msgspec.structs.replace(template.spec, requirements=[])),
        }
    )


def hash_node_class(node_class: EC2NodeClass) -> str:
    """The fingerprint of the class, without what selects subnets, groups, images and reservations: 16 digits."""
    fixed = msgspec.structs.replace(
        node_class.spec,
        subnet_selector_terms=[],
        security_group_selector_terms=[],
        ami_selector_terms=[],
        capacity_reservation_selector_terms=[],
    )
    return _digest(to_json(fixed))


def _digest(value: Any) -> str:  # noqa: ANN401 (any JSON)
    return hashlib.sha256(_canonical(value)).hexdigest()[:_DIGITS]


def _canonical(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    """The same bytes whatever the order of maps and lists: none of these lists has an order that nodes can tell."""
    return msgspec.json.encode(_sorted(value), order="deterministic")


def _sorted(value: Any) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted(
            (_sorted(item) for item in value), key=lambda item: msgspec.json.encode(item, order="deterministic")
        )
    return value
