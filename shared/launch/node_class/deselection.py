"""Resources that a node class selected before and that EC2's answers lack now.

A subnet, security group or AMI that a class no longer selects makes nodes drift, and a class without any isn't ready.
EC2's answer may just have left it out, so it stays selected until a later look doesn't find it either.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Collection

    from shared.api.nodeclass import EC2NodeClassStatus
    from shared.base.runtime import Runtime

CONFIRMED_AFTER = timedelta(seconds=45)
"""How much later the second look is at least. Until then the lifecycle function looks each minute."""
_FORGOTTEN_AFTER = timedelta(hours=1)
"""A class whose spec has changed, or that is gone, is not looked at again."""
_CACHE_KEY = "nodeclass:missing"


def missing(before: EC2NodeClassStatus, after: EC2NodeClassStatus) -> frozenset[str]:
    """The ids that the status had before and lacks now."""
    return _ids(before) - _ids(after)


def unconfirmed(runtime: Runtime, key: str, ids: Collection[str], *, now: datetime) -> frozenset[str]:
    """Those of the missing ids that an earlier look of this process still found; ``key`` names the class and spec.

    A new process remembers no looks, so that it confirms later.
    """
    by_class = runtime.cached(_CACHE_KEY, dict[str, dict[str, datetime]])
    earlier = by_class.pop(key, {})
    for past in [name for name, seen in by_class.items() if all(now - at >= _FORGOTTEN_AFTER for at in seen.values())]:
        del by_class[past]
    if ids:
        by_class[key] = {i: earlier.get(i, now) for i in ids}
    return frozenset(i for i in ids if now - earlier.get(i, now) < CONFIRMED_AFTER)


def keeping(ids: Collection[str], *, before: EC2NodeClassStatus, after: EC2NodeClassStatus) -> EC2NodeClassStatus:
    """The status after, with these resources of the one before.

    AMIs exclude each other, as the newest is launched, so all of them stay as before.
    """
    groups = [*after.security_groups, *(g for g in before.security_groups if g.id in ids)]
    reservations = [*after.capacity_reservations, *(r for r in before.capacity_reservations if r.id in ids)]
    return with_fields(
        after,
        subnets=[*after.subnets, *(s for s in before.subnets if s.id in ids)],
        security_groups=sorted(groups, key=lambda g: g.id),
        amis=before.amis if any(ami.id in ids for ami in before.amis) else after.amis,
        capacity_reservations=sorted(reservations, key=lambda r: r.id),
    )


def _ids(status: EC2NodeClassStatus) -> frozenset[str]:
    return frozenset(
        {
            *(subnet.id for subnet in status.subnets),
            *(group.id for group in status.security_groups),
            *(ami.id for ami in status.amis),
            *(reservation.id for reservation in status.capacity_reservations),
        }
    )
