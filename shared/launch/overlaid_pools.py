"""The instance types of NodePools with what NodeOverlays set: prices and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.base.struct import Struct, with_fields
from shared.instance_types.overlays import OverlaidPools, apply_overlays, labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.instance_type import InstanceType
    from shared.instance_types.provider import InstanceTypeCache


class _CachedOverlays(Struct, eq=False):
    inputs: bytes
    instance_types: Mapping[str, tuple[InstanceType, ...]]
    overlaid: OverlaidPools


def with_overlays(
    resolved: ResolvedNodePools, pools: Iterable[NodePool], overlays: Sequence[NodeOverlay], cache: InstanceTypeCache
) -> ResolvedNodePools:
    """The same with the overlays' prices and resources. Identical instance types give identical results."""
    pool_labels = {pool.name: labels_of(pool) for pool in pools}
    inputs = msgspec.json.encode([[(o.name, o.spec) for o in overlays], pool_labels])
    slot = "overlays", ""
    of_inputs = (entry for entry in cache.latest(slot, _CachedOverlays) if entry.inputs == inputs)
    cached = next((entry for entry in of_inputs if _are_same(entry.instance_types, resolved)), None)
    if cached is None:
        overlaid = apply_overlays(resolved.instance_types, pool_labels, overlays)
        cached = _CachedOverlays(inputs, resolved.instance_types, overlaid)
    cache.keep(slot, cached)
    return with_fields(
        resolved,
        instance_types=cached.overlaid.instance_types,
        overlays=cached.overlaid.applied,
        overlay_conflicts=cached.overlaid.conflicts,
    )


def _are_same(instance_types: Mapping[str, tuple[InstanceType, ...]], resolved: ResolvedNodePools) -> bool:
    """Whether the NodePools have the identical instance types."""
    return instance_types.keys() == resolved.instance_types.keys() and all(
        types is instance_types[pool] for pool, types in resolved.instance_types.items()
    )
