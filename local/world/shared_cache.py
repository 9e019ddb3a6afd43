"""The part of the functions' caches that a process's worlds share: values that depend on nothing but equal inputs.

On Lambda each function's process makes its own. Here all functions run in one process, and tests in hundreds of worlds
with the same instance types, so making them again for each function takes longer than most of what is tested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.instance_types.provider import InstanceTypeCache

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_SLOTS = 32
"""Some more than the node classes and NodePools of a world need."""


class _SharedCache(InstanceTypeCache):
    def clear(self) -> None:
        """Nothing: functions of a world read a new catalog at different times, and use both in turn until then."""


INSTANCE_TYPES: Mapping[str, Any] = {"instance_types": _SharedCache(max_slots=_MAX_SLOTS)}
"""By its name in the cache of a process: the lists of instance types."""
