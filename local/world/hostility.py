"""Hostility: everything that AWS and a cluster may do at any time, all at once, within what AWS documents.

By default EC2's answers are current and complete, instances and pods stop quickly, one function runs at a time and
every object is Tenon's. Recursive loops are dropped and time-outs enforced in every world.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

from local.aws.ec2_instances import INVALID_KMS_KEY
from local.kubelets.behavior import Timing
from shared.base.struct import Struct

if TYPE_CHECKING:
    from local.aws.cloud import Cloud

VARIABLE = "TENON_HOSTILE"
"""The environment variable that makes every world hostile, if it is 1."""
_WHOLE_GRACE = (86_400.0, 86_400.0)


class Hostility(Struct, kw_only=True):
    """How hostile a world is.

    ``lag``: how old EC2's answers about instances are, and how long IAM doesn't see the tags of new ones.
    ``page_size``: the reservations of a page of DescribeInstances,
    whose first page is empty. ``incomplete``: the share of EC2's answers that leave out ``left_out`` of the instances,
    or ``resources_left_out`` of subnets, security groups and images.
    ``stop_duration``: how long instances are shutting down. ``whole_grace``: pods use their whole grace period.
    ``boot_failures``: how many of the first instances are terminated at boot, as EC2 may not use their volumes' key.
    ``foreign_objects``: objects of other node-class groups are in the cluster. ``concurrency``: functions run at once.
    ``rebalance_after``: each Auto Scaling group is rebalanced once, that long after its first instance is in service.
    """

    lag: timedelta = timedelta(seconds=5)
    page_size: int = 5
    incomplete: float = 0.1
    left_out: float = 0.5
    resources_left_out: float = 0.5
    stop_duration: timedelta = timedelta(seconds=60)
    whole_grace: bool = True
    boot_failures: int = 0
    foreign_objects: bool = True
    concurrency: int = 4
    rebalance_after: timedelta | None = timedelta(minutes=10)

    def apply_to(self, aws: Cloud) -> None:
        """Make EC2 hostile."""
        consistency = aws.consistency
        consistency.lag = consistency.tag_lag = consistency.hidden_tags = self.lag
        consistency.page_size = self.page_size
        consistency.incomplete, consistency.left_out = self.incomplete, self.left_out
        consistency.resources_left_out = self.resources_left_out
        aws.instances.stop_duration = self.stop_duration
        aws.auto_scaling.rebalance_after = self.rebalance_after
        aws.instances.fail_starts("*", "*", self.boot_failures, reason=INVALID_KMS_KEY)

    def timing(self, timing: Timing | None) -> Timing | None:
        """The durations of machines and pods; those that a test gives are kept."""
        return Timing(stop=_WHOLE_GRACE) if self.whole_grace and timing is None else timing


def of_environment() -> Hostility | None:
    """The hostility that the environment asks for; None for none."""
    return Hostility() if os.environ.get(VARIABLE) == "1" else None
