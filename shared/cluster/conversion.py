"""Pools and node classes, old and new, as one kind each.

Where a legacy object and a v1 object share a name, the v1 object is the one that counts, as after a migration both
are often there; the other is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from shared.api import decode, nodeclass, nodepool
from shared.api.nodeclass import EC2NodeClass
from shared.api.nodepool import NodePool
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.api.decode import Outcome

P = TypeVar("P", bound=NodePool | EC2NodeClass)


def node_pools(raws: Iterable[dict[str, Any]]) -> tuple[tuple[NodePool, ...], tuple[InvalidObject, ...]]:
    """The pools of NodePools and Provisioners: those that can be used, and those that can't."""
    return _read(raws, decode.node_pool, nodepool.API_VERSION)


def node_classes(raws: Iterable[dict[str, Any]]) -> tuple[tuple[EC2NodeClass, ...], tuple[InvalidObject, ...]]:
    """The classes of EC2NodeClasses and AWSNodeTemplates: those that can be used, and those that can't."""
    return _read(raws, decode.node_class, nodeclass.API_VERSION)


def _read(
    raws: Iterable[dict[str, Any]], read: Callable[[dict[str, Any]], Outcome[P]], api_version: str
) -> tuple[tuple[P, ...], tuple[InvalidObject, ...]]:
    outcomes = [read(raw) for raw in raws]
    usable = [outcome.value for outcome in outcomes if outcome.value is not None]
    current = {one.name: one for one in usable if one.api_version == api_version}
    kept = [one for one in usable if current.get(one.name, one) is one]
    broken = [InvalidObject(ref=o.ref, problems=o.problems) for o in outcomes if o.value is None]
    shadowed = [
        InvalidObject(
            ref=one.ref,
            problems=(
                f'metadata.name: "{one.name}" is also the name of {current[one.name].ref}, which is used instead',
            ),
        )
        for one in usable
        if one.name in current and current[one.name] is not one
    ]
    return tuple(kept), (*broken, *shadowed)
