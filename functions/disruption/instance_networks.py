"""The subnet, security groups and capacity reservation of running instances, for drift.

Only EC2 knows them, and they seldom change, so a warm process reads them every few minutes. An instance that isn't
known yet hasn't drifted. Nor has one whose reservation has ended, so EC2 is asked again before one drifts. In a large
cluster each read is of a portion (:class:`shared.cloud_provider.Portion`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.base.struct import MutableStruct
from shared.cloud_provider import InstanceNetwork, Portion, instance_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclass import EC2NodeClass
    from shared.cloud_provider import CloudProvider, Instance

CACHE_TTL = timedelta(minutes=5)
CONFIRMED_TTL = timedelta(seconds=30)
"""Where an instance would drift: less than the time between a reservation's end and a class that doesn't select it."""
_CACHE_KEY = "disruption:networks"
_EXISTING = frozenset({"pending", "running", "stopping", "stopped"})
"""Standby nodes are stopped, and drift as others do."""


class _KnownNetworks(MutableStruct, kw_only=True):
    """What a warm process knows, by provider id; ``listed_at`` is by portion of the instances."""

    networks: dict[str, InstanceNetwork] = {}
    listed_at: dict[Portion, datetime] = {}
    confirmed_at: datetime | None = None
    """When EC2 was last asked about the instances that would drift for their reservation."""


def instance_networks(
    cloud_provider: CloudProvider,
    node_classes: Iterable[EC2NodeClass],
    *,
    instances: int,
    cache: MutableMapping[str, Any],
    now: datetime,
    logger: Logger,
) -> Mapping[str, InstanceNetwork]:
    """The networks of the cluster's instances by provider id; the known ones where EC2 doesn't answer.

    ``instances`` is about how many there are: of many, a portion is listed at a time. ``cache`` is the warm process's.
    """
    known: _KnownNetworks = cache.setdefault(_CACHE_KEY, _KnownNetworks())
    portion = Portion.of(instances, at=now)
    try:
        if _is_older(known.listed_at.get(portion), CACHE_TTL, now):
            kept = {p: network for p, network in known.networks.items() if not portion.has(instance_id(p))}
            known.networks = kept | _networks(cloud_provider.list(portion))
            known.listed_at[portion] = now
            if portion.is_whole:
                known.confirmed_at = now
        selected = {reservation.id for c in node_classes for reservation in c.status.capacity_reservations}
        doubtful = {
            p for p, n in known.networks.items() if n.capacity_reservation and n.capacity_reservation not in selected
        }
        if doubtful and _is_older(known.confirmed_at, CONFIRMED_TTL, now):
            described = cloud_provider.get(sorted(map(instance_id, doubtful)))
            confirmed = {p: network for p, network in known.networks.items() if p not in doubtful}
            known.networks = confirmed | _networks(described)
            known.confirmed_at = now
    except (BotoCoreError, ClientError) as error:
        logger.warning(
            "Couldn't check drift of subnets, security groups and capacity reservations", extra={"why": str(error)}
        )
    return known.networks


def _is_older(at: datetime | None, age: timedelta, now: datetime) -> bool:
    return at is None or now - at >= age


def _networks(instances: Iterable[Instance]) -> dict[str, InstanceNetwork]:
    return {
        i.provider_id: InstanceNetwork(
            subnet=i.subnet_id,
            security_groups=frozenset(i.security_groups),
            capacity_reservation=i.capacity_reservation,
        )
        for i in instances
        if i.state in _EXISTING
    }
