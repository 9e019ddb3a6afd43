"""Pools and node classes, old and new, as one kind each.

Where a legacy object and a v1 object share a name, the v1 object is the one that counts, as after a migration both
are often there; the other is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shared.api.meta import ObjectRef
from shared.api.nodeclass import EC2NodeClass
from shared.api.nodepool import NodePool
from shared.snapshot import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

P = TypeVar("P", bound=NodePool | EC2NodeClass)


def node_pools(raws: Iterable[dict[str, Any]]) -> tuple[tuple[NodePool, ...], tuple[Invalid, ...]]:
    """The pools that can be used, and those that can't."""
    outcomes = [_decoded(raw, NodePool) for raw in raws]
    return tuple(o for o in outcomes if isinstance(o, NodePool)), _invalid(outcomes)


def node_classes(raws: Iterable[dict[str, Any]]) -> tuple[tuple[EC2NodeClass, ...], tuple[Invalid, ...]]:
    """The classes that can be used, and those that can't."""
    outcomes = [_decoded(raw, EC2NodeClass) for raw in raws]
    return tuple(o for o in outcomes if isinstance(o, EC2NodeClass)), _invalid(outcomes)


def merged(current: tuple[P, ...], legacy: tuple[P, ...]) -> tuple[tuple[P, ...], tuple[Invalid, ...]]:
    """Both generations together; a legacy object whose name is taken by a current one is invalid."""
    taken: dict[str, P] = {one.name: one for one in current}
    kept = [*current, *(one for one in legacy if one.name not in taken)]
    shadowed = [
        Invalid(
            ref=one.ref,
            problems=(f'metadata.name "{one.name}": {taken[one.name].ref} has the same name and is used instead',),
        )
        for one in legacy
        if one.name in taken
    ]
    return tuple(kept), tuple(shadowed)


def _invalid(outcomes: Iterable[object]) -> tuple[Invalid, ...]:
    return tuple(one for one in outcomes if isinstance(one, Invalid))


def _decoded(raw: dict[str, Any], kind: type[P]) -> P | Invalid:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        metadata = raw.get("metadata", {})
        ref = ObjectRef(
            api_version=raw.get("apiVersion", ""),
            kind=raw.get("kind", ""),
            name=metadata.get("name", ""),
            uid=metadata.get("uid", ""),
        )
        return Invalid(ref=ref, problems=(str(error),))
