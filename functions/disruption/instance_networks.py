"""The subnet, security groups and capacity reservation of running instances, for drift.

Only EC2 knows them, and they seldom change, so a warm process reads them every few minutes. An instance that isn't
known yet hasn't drifted. Nor has one whose reservation has ended, so EC2 is asked again before one drifts.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.cloud_provider import InstanceNetwork

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclass import EC2NodeClass
    from shared.cloud_provider import CloudProvider

CACHE_TTL = timedelta(minutes=5)
CONFIRMED_TTL = timedelta(seconds=30)
"""Where an instance would drift: less than the time between a reservation's end and a class that doesn't select it."""
_CACHE_KEY = "disruption:networks"
_EXISTING = frozenset({"pending", "running", "stopping", "stopped"})
"""Standby nodes are stopped, and drift as others do."""


def instance_networks(
    cloud_provider: CloudProvider,
    node_classes: Iterable[EC2NodeClass],
    *,
    cache: MutableMapping[str, Any],
    now: datetime,
    logger: Logger,
) -> Mapping[str, InstanceNetwork]:
    """The networks of the cluster's instances by provider id; the cached ones where EC2 doesn't answer.

    ``cache`` is the warm process's.
    """
    cached: tuple[datetime, Mapping[str, InstanceNetwork]] | None = cache.get(_CACHE_KEY)
    if cached is not None:
        selected = {reservation.id for c in node_classes for reservation in c.status.capacity_reservations}
        reserved = {n.capacity_reservation for n in cached[1].values() if n.capacity_reservation}
        if now - cached[0] < (CACHE_TTL if reserved <= selected else CONFIRMED_TTL):
            return cached[1]
    try:
        instances = cloud_provider.list()
    except (BotoCoreError, ClientError) as error:
        logger.warning(
            "Couldn't check drift of subnets, security groups and capacity reservations", extra={"why": str(error)}
        )
        return cached[1] if cached is not None else {}
    networks = {
        i.provider_id: InstanceNetwork(
            subnet=i.subnet_id,
            security_groups=frozenset(i.security_groups),
            capacity_reservation=i.capacity_reservation,
        )
        for i in instances
        if i.state in _EXISTING
    }
    cache[_CACHE_KEY] = now, networks
    return networks
