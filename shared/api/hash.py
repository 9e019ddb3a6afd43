"""Hashes of NodePool templates and node classes, by which drift is detected.

Fields that don't require new nodes are left out: limits, weight and budgets; also requirements and selector terms,
whose drift depends on what they select. Hashes of different versions are not comparable: with another version the
object gets a new hash, and nothing drifts. Source: docs/facts/karpenter.md, section 5.

A NodePool's hash is Karpenter's own, so that a cluster can be handed over to Karpenter and back without drift: that of
the library hashstructure (format 2, zero values ignored, slices as sets) over the Go struct NodeClaimTemplate.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api.duration import DurationError, parse_duration
from shared.api.kubelet import without_nulls
from shared.api.meta import to_json
from shared.api.nodeclass import ENCLAVES
from shared.api.nodepool import KIND, NodeClaimTemplate
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.json_types import Json
    from shared.api.kubernetes import Taint
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool

OWN_VERSION = "tenon-v1"
NODECLASS_HASH_VERSION = OWN_VERSION
NODEPOOL_HASH_VERSION = "v3"
"""Karpenter's NodePoolHashVersion."""

_DIGITS = 16
_FNV_OFFSET, _FNV_PRIME, _MAX_UINT64 = 0xCBF29CE484222325, 0x100000001B3, 0xFFFFFFFFFFFFFFFF
_EMPTY_FIELDS = 4
"""Labels, annotations, taints and startup taints: each may be empty instead of missing."""


def node_pool_hash_version(pool: NodePool) -> str:
    """The version of the NodePool's hash; Karpenter's has no Provisioners."""
    return NODEPOOL_HASH_VERSION if pool.kind == KIND else OWN_VERSION


def hash_node_pool(pool: NodePool) -> str:
    """The hash of the NodePool's template, without its requirements.

    Karpenter hashes an empty map or list otherwise than a missing one. Tenon doesn't keep that difference, so the hash
    in the NodePool's annotation stays if it is that of the same template with either.
    """
    stored = pool.metadata.annotations.get(names.NODEPOOL_HASH, "")
    hashes = _node_pool_hashes(pool)
    return stored if stored in hashes else hashes[0]


def is_node_pool_hash(text: str, pool: NodePool) -> bool:
    """Whether the text is a hash of the NodePool's template as it is now."""
    return text in _node_pool_hashes(pool)


def hash_node_class(node_class: EC2NodeClass) -> str:
    """The hash of the class, without the selector terms and the count of IP prefixes: 16 hexadecimal digits.

    Enclaves that aren't enabled hash as none, and empty maps and lists of kubelet settings as missing.
    """
    spec = node_class.spec
    fixed = with_fields(
        spec,
        subnet_selector_terms=[],
        security_group_selector_terms=[],
        ami_selector_terms=[],
        capacity_reservation_selector_terms=[],
        ip_prefix_count=None,
        enclave_options=ENCLAVES if spec.enclave_options == ENCLAVES else None,
        kubelet=None if spec.kubelet is None else _without_empty(without_nulls(spec.kubelet)),
    )
    return _digest(to_json(fixed))


def hash_of_nodes(pool: NodePool, node_class: EC2NodeClass) -> str:
    """The hash of all that new nodes of the NodePool have: it changes whenever older ones may drift.

    That is the template with its requirements, the class, and the AMIs, subnets and security groups that it selects.
    """
    status = node_class.status
    return _digest(
        {
            "pool": hash_node_pool(pool),
            "requirements": to_json(pool.spec.template.spec.requirements),
            "class": [node_class.name, hash_node_class(node_class)],
            "selected": [
                *(ami.id for ami in status.amis),
                *(subnet.id for subnet in status.subnets),
                *(group.id for group in status.security_groups),
            ],
        }
    )


# --- NodePools ---


def _node_pool_hashes(pool: NodePool) -> tuple[str, ...]:
    """The possible hashes, first that of a template whose empty fields are missing."""
    template = with_fields(pool.spec.template, spec=with_fields(pool.spec.template.spec, requirements=[]))
    if pool.kind != KIND:
        return (_digest({"metadata": to_json(template.metadata), "spec": to_json(template.spec)}),)
    return _karpenter_hashes(msgspec.json.encode(template))


@functools.lru_cache(maxsize=256)
def _karpenter_hashes(encoded: bytes) -> tuple[str, ...]:
    template = msgspec.json.decode(encoded, type=NodeClaimTemplate)
    choices = itertools.product((False, True), repeat=_EMPTY_FIELDS)
    hashes = (str(_template_hash(template, choice)) for choice in choices)
    return tuple(dict.fromkeys(hashes))


def _template_hash(template: NodeClaimTemplate, present: Sequence[bool]) -> int:
    """The hash of the template.

    ``present`` says whether labels, annotations, taints and startup taints are there although they are empty.
    """
    has_labels, has_annotations, has_taints, has_startup_taints = present
    spec, metadata = template.spec, template.metadata
    fields = [
        ("Labels", _map_hash(metadata.labels) if metadata.labels or has_labels else None),
        ("Annotations", _map_hash(metadata.annotations) if metadata.annotations or has_annotations else None),
    ]
    metadata_hash = None if all(value is None for _, value in fields) else _struct_hash("ObjectMeta", fields)
    expire_after, grace_period = _nanoseconds(spec.expire_after), _nanoseconds(spec.termination_grace_period or "Never")
    reference = spec.node_class_ref
    reference_fields = (("Kind", reference.kind), ("Name", reference.name), ("Group", reference.group))
    spec_fields = [
        ("Taints", _taints_hash(spec.taints) if spec.taints or has_taints else None),
        ("StartupTaints", _taints_hash(spec.startup_taints) if spec.startup_taints or has_startup_taints else None),
        ("NodeClassRef", _texts_hash("NodeClassReference", reference_fields)),
        ("TerminationGracePeriod", None if grace_period is None else _duration_hash("Duration", grace_period)),
        ("ExpireAfter", None if expire_after is None else _duration_hash("NillableDuration", expire_after)),
    ]
    return _struct_hash(
        "NodeClaimTemplate",
        [("ObjectMeta", metadata_hash), ("Spec", _struct_hash("NodeClaimTemplateSpec", spec_fields))],
    )


def _nanoseconds(text: str) -> int | None:
    """A duration in nanoseconds; None for Never, and for texts that the API server refuses."""
    try:
        duration = parse_duration(text)
    except DurationError:
        return None
    return None if duration is None else duration // timedelta(microseconds=1) * 1000


def _duration_hash(struct_name: str, nanoseconds: int) -> int:
    """A struct whose only field is a duration. A duration of zero counts if the field is a pointer to it."""
    is_zero = struct_name == "Duration" and not nanoseconds
    value = None if is_zero else _fnv(struct.pack("<q", nanoseconds))
    return _struct_hash(struct_name, [("Duration", value)])


def _taints_hash(taints: Iterable[Taint]) -> int:
    total = 0
    for taint in taints:
        total ^= _texts_hash("Taint", (("Key", taint.key), ("Value", taint.value), ("Effect", taint.effect)))
    return total


def _texts_hash(struct_name: str, fields: Iterable[tuple[str, str]]) -> int:
    return _struct_hash(struct_name, [(name, _fnv(text.encode()) if text else None) for name, text in fields])


def _struct_hash(name: str, fields: Iterable[tuple[str, int | None]]) -> int:
    """The hash of a Go struct by its fields in order; None marks zero values, which are left out."""
    total = _fnv(name.encode())
    for field, value in fields:
        if value is not None:
            total = _fnv(_bytes(total ^ _ordered(_fnv(field.encode()), value)))
    return total


def _map_hash(texts: Mapping[str, str]) -> int:
    total = 0
    for key, value in texts.items():
        total ^= _ordered(_fnv(key.encode()), _fnv(value.encode()))
    return _fnv(_bytes(total))


def _ordered(first: int, second: int) -> int:
    return _fnv(_bytes(first) + _bytes(second))


def _bytes(number: int) -> bytes:
    return struct.pack("<Q", number)


def _fnv(content: bytes) -> int:
    """FNV-1 of 64 bits, as Go's fnv.New64."""
    value = _FNV_OFFSET
    for byte in content:
        value = (value * _FNV_PRIME & _MAX_UINT64) ^ byte
    return value


# --- Provisioners and node classes ---


def _without_empty(settings: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in settings.items() if value not in ({}, [])}


def _digest(value: Json) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()[:_DIGITS]


def _canonical(value: Json) -> bytes:
    """The same bytes for any order of maps and lists: no list of these has an order that matters for nodes."""
    return msgspec.json.encode(_sorted(value), order="deterministic")


def _sorted(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted(
            (_sorted(item) for item in value), key=lambda item: msgspec.json.encode(item, order="deterministic")
        )
    return value
