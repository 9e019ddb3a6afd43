"""Requests of reboots, which the lifecycle function carries out: what Karpenter's node repair writes (commitReboot)."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from shared.api import reboot
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client


def request_reboot(
    client: Client, claim: NodeClaim, grace_period: timedelta | None, *, why: str, now: datetime
) -> None:
    """Request that the NodeClaim's node is rebooted, after a drain of at most that time (None: without a bound).

    The bound is written first: a run that dies between the two has requested nothing.
    """
    with contextlib.suppress(NotFoundError):
        bounded = writes.update(
            client, resources.NODE_CLAIMS, claim, partial(reboot.with_grace_period, period=grace_period)
        )
        change = partial(reboot.with_request, message=f"rebooting: {why}", now=now)
        writes.update_status(client, resources.NODE_CLAIMS, bounded, change)
