"""Hashes of NodePool templates and node classes, by which drift is detected.

Fields that don't require new nodes are left out: limits, weight and budgets; also requirements and selector terms,
whose drift depends on what they select. Hashes of different versions are not comparable: with another version the
object gets a new hash, and nothing drifts. Source: docs/facts/karpenter.md, section 5.
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
    """The hash of the NodePool's template, without its requirements: 16 hexadecimal digits."""
    template = pool.spec.template
    return _digest(
        {
            "metadata": to_json(template.metadata),
            "spec": to_json(msgspec.structs.replace(template.spec, requirements=[])),
        }
    )


def hash_node_class(node_class: EC2NodeClass) -> str:
    """The hash of the class, without the selector terms: 16 hexadecimal digits."""
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
    """The same bytes for any order of maps and lists: no list of these has an order that matters for nodes."""
    return msgspec.json.encode(_sorted(value), order="deterministic")


def _sorted(value: Any) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted(
            (_sorted(item) for item in value), key=lambda item: msgspec.json.encode(item, order="deterministic")
        )
    return value
