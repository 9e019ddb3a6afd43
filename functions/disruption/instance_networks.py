"""The subnet and security groups of running instances, for drift.

Only EC2 knows them, and they seldom change, so a warm process reads them every few minutes. An instance that isn't
known yet hasn't drifted.
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

CACHE_TTL = timedelta(minutes=5)
_CACHE_KEY = "disruption:networks"
_EXISTING = frozenset({"pending", "running", "stopping", "stopped"})
"""Standby nodes are stopped, and drift as others do."""


def instance_networks(cloud_provider: CloudProvider, *, now: datetime, logger: Logger) -> Mapping[str, InstanceNetwork]:
    """The networks of the cluster's instances by provider id; the cached ones where EC2 doesn't answer."""
    cached: tuple[datetime, Mapping[str, InstanceNetwork]] | None = runtime.current().cache.get(_CACHE_KEY)
    if cached is not None and now - cached[0] < CACHE_TTL:
        return cached[1]
    try:
        instances = cloud_provider.list()
    except (BotoCoreError, ClientError) as error:
        logger.warning("Couldn't check drift of subnets and security groups", extra={"why": str(error)})
        return cached[1] if cached is not None else {}
    networks = {
        i.provider_id: InstanceNetwork(subnet=i.subnet_id, security_groups=frozenset(i.security_groups))
        for i in instances
        if i.state in _EXISTING
    }
    runtime.current().cache[_CACHE_KEY] = now, networks
    return networks
