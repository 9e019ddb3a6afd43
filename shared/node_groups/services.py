"""What node groups are read and scaled with: AWS's services, the clock, and the cache of a warm process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.base import aws, runtime
from shared.base.struct import Struct
from shared.node_groups.discovery import discover

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_eks import EKSClient
    from mypy_boto3_events import EventBridgeClient

    from shared.node_groups.node_group import NodeGroup

AutoScaling = Any
"""The client of Auto Scaling, whose types aren't installed."""


class GroupServices(Struct, kw_only=True):
    """The services of one invocation; their clients are created on first use, which most events don't come to."""

    autoscaling: Callable[[], AutoScaling]
    ec2: Callable[[], EC2Client]
    eks: Callable[[], EKSClient]
    events: Callable[[], EventBridgeClient]
    clock: Callable[[], datetime]
    cache: MutableMapping[str, Any]

    def groups(self, cluster: str, *, now: datetime) -> tuple[NodeGroup, ...]:
        """The cluster's groups as AWS describes them now.

        Raises:
            ClientError, BotoCoreError: AWS refuses a call.
        """
        details = self.cache.setdefault("node-groups:details", {})
        return discover(cluster, autoscaling=self.autoscaling(), ec2=self.ec2(), eks=self.eks(), now=now, cache=details)


def group_services() -> GroupServices:
    """The services of this invocation."""
    process = runtime.current()
    return GroupServices(
        autoscaling=aws.autoscaling,
        ec2=aws.ec2,
        eks=aws.eks,
        events=aws.events,
        clock=process.now,
        cache=process.cache,
    )
