"""In which subnet and with which security groups instances run, so that drift of either is seen.

Only EC2 knows it, and it seldom changes, so a warm process asks every few minutes. An instance that nobody knows of yet
hasn't drifted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared import runtime
from shared.cloud_provider import InstanceNetwork

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.cloud_provider import CloudProvider

KEPT = timedelta(minutes=5)
_KEY = "disruption:networks"
_RUNNING = frozenset({"pending", "running"})


def networks(cloud_provider: CloudProvider, *, now: datetime, logger: Logger) -> Mapping[str, InstanceNetwork]:
    """By provider id, of the cluster's instances; what was known before where EC2 doesn't answer."""
    known: tuple[datetime, Mapping[str, InstanceNetwork]] | None = runtime.current().cache.get(_KEY)
    if known is not None and now - known[0] < KEPT:
        return known[1]
    try:
        instances = cloud_provider.list()
    except (BotoCoreError, ClientError) as error:
        logger.warning("Drift of subnets and security groups was not looked for", extra={"why": str(error)})
        return known[1] if known is not None else {}
    seen = {
        i.provider_id: InstanceNetwork(subnet=i.subnet_id, security_groups=frozenset(i.security_groups))
        for i in instances
        if i.state in _RUNNING
    }
    runtime.current().cache[_KEY] = now, seen
    return seen
