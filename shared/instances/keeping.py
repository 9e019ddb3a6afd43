"""The instance types of a class, kept by a warm process for as long as nothing that they are made from changes.

Making them anew takes longer than reading a large cluster's changes, and most decisions see what the last one saw.
They are then the same objects, so whoever derives something from them may keep that too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from shared import runtime
from shared.instances import build

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shared.api.nodeclass import EC2NodeClass
    from shared.instances.catalog import RawCatalog
    from shared.instances.offering import InstanceType


@dataclass(frozen=True)
class _Kept:
    raw: RawCatalog
    made_from: bytes
    types: tuple[InstanceType, ...]


def instance_types(
    raw: RawCatalog,
    node_class: EC2NodeClass,
    *,
    zones: Collection[str],
    unavailable: Collection[tuple[str, str, str]],
    observed_memory: Mapping[str, int],
) -> tuple[InstanceType, ...]:
    """As :func:`shared.instances.build.instance_types`, with the class's own kubelet settings; one answer a class."""
    made_from = msgspec.json.encode(
        [
            node_class.kind,
            node_class.spec,
            node_class.status.amis,
            node_class.status.capacity_reservations,
            sorted(zones),
            sorted(unavailable),
            sorted(observed_memory.items()),
        ]
    )
    memory: dict[str, _Kept] = runtime.current().cached("instances:types", dict)
    kept = memory.get(node_class.name)
    if kept is None or kept.raw is not raw or kept.made_from != made_from:
        types = build.instance_types(
            raw,
            node_class,
            node_class.spec.kubelet,
            zones=zones,
            unavailable=unavailable,
            observed_memory=observed_memory,
        )
        kept = _Kept(raw, made_from, types)
        memory[node_class.name] = kept
    return kept.types
