"""In which subnet and with which security groups instances run, so that drift of either is seen.

Only EC2 knows it, and it seldom changes, so a warm process asks every few minutes. An instance that nobody knows of yet
hasn't drifted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared import runtime
from shared.disruption.cluster_state import InstanceNetwork
from shared.launch.instances import LAUNCHED, describe_cluster_instances

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aws_lambda_powertools import Logger

KEPT = timedelta(minutes=5)
_KEY = "disruption:networks"


def networks(cluster: str, *, now: datetime, logger: Logger) -> Mapping[str, InstanceNetwork]:
    """By provider id, of the cluster's instances; what was known before where EC2 doesn't answer."""
    known: tuple[datetime, Mapping[str, InstanceNetwork]] | None = runtime.current().cache.get(_KEY)
    if known is not None and now - known[0] < KEPT:
        return known[1]
    try:
        found = describe_cluster_instances(cluster, states=LAUNCHED)
    except (BotoCoreError, ClientError) as error:
        logger.warning("Drift of subnets and security groups was not looked for", extra={"why": str(error)})
        return known[1] if known is not None else {}
    seen = {
        i.provider_id: InstanceNetwork(subnet=i.subnet_id, security_groups=frozenset(i.security_groups)) for i in found
    }
    runtime.current().cache[_KEY] = now, seen
    return seen
