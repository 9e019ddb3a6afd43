"""What a run of shadow mode decides from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from functions.shadow.default_pools import DerivedPools
    from functions.shadow.real_fleet import Lifetime
    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot


class Observed(Struct, kw_only=True):
    """What a run decides from.

    ``snapshot`` has the NodePools to decide with, ``derived`` are those that no user wrote. ``autoscalers``, and
    ``pools`` that nodes belong to, are by the node's name. ``lifetimes`` are those of instances that came or went.
    """

    snapshot: Snapshot
    autoscalers: Mapping[str, str]
    pools: Mapping[str, str]
    derived: DerivedPools
    resolved_pools: ResolvedNodePools
    catalog: InstanceTypeCatalog
    lifetimes: Mapping[str, Lifetime]
    notes: Sequence[str] = ()
