"""Converts NodePools and Provisioners to NodePools, and EC2NodeClasses and AWSNodeTemplates to EC2NodeClasses.

If a legacy object and a v1 object have the same name, the v1 object is used, because both often exist after a
migration; the legacy object is reported as invalid.
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


def node_pools(raw_objects: Iterable[dict[str, Any]]) -> tuple[tuple[NodePool, ...], tuple[InvalidObject, ...]]:
    """The valid NodePools, converted if legacy, and the invalid ones."""
    return _convert(raw_objects, decode.node_pool, nodepool.API_VERSION)


def node_classes(raw_objects: Iterable[dict[str, Any]]) -> tuple[tuple[EC2NodeClass, ...], tuple[InvalidObject, ...]]:
    """The valid EC2NodeClasses, converted if legacy, and the invalid ones."""
    return _convert(raw_objects, decode.node_class, nodeclass.API_VERSION)


def _convert(
    raw_objects: Iterable[dict[str, Any]], convert: Callable[[dict[str, Any]], Outcome[P]], api_version: str
) -> tuple[tuple[P, ...], tuple[InvalidObject, ...]]:
    outcomes = [convert(raw) for raw in raw_objects]
    valid = [outcome.value for outcome in outcomes if outcome.value is not None]
    v1_objects = {obj.name: obj for obj in valid if obj.api_version == api_version}
    used = [obj for obj in valid if v1_objects.get(obj.name, obj) is obj]
    invalid = [InvalidObject(ref=o.ref, problems=o.problems) for o in outcomes if o.value is None]
    shadowed = [_shadowed(obj, v1_objects[obj.name]) for obj in valid if v1_objects.get(obj.name, obj) is not obj]
    return tuple(used), (*invalid, *shadowed)


def _shadowed(obj: NodePool | EC2NodeClass, used: NodePool | EC2NodeClass) -> InvalidObject:
    problem = f'metadata.name: "{obj.name}" is also the name of {used.ref}, which is used instead'
    return InvalidObject(ref=obj.ref, problems=(problem,))
