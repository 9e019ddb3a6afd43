"""What a hostile world adds to durations that the tests bound; nothing in any other world."""

from __future__ import annotations

from datetime import timedelta

from local.aws.ec2_instances import STOP_DURATION
from local.world import hostility

LONGEST_WAIT = timedelta(seconds=30)
"""A drain waits as long as it has waited for the instance, at most this, before it asks EC2 again
(``shared/termination/requeue.py``)."""


LEASE = timedelta(seconds=15)
"""For how long a function that died keeps the lease that others wait for."""


def lease_delay() -> timedelta:
    """How much later a reconcile follows one that died, where several functions run at once."""
    return timedelta() if hostility.of_environment() is None else LEASE


def shutdown_delay() -> timedelta:
    """How much later a drained node is deleted.

    Its instance shuts down for longer, EC2 shows the end late, and by then the drain's wait has grown to its longest.
    """
    hostile = hostility.of_environment()
    return timedelta() if hostile is None else hostile.stop_duration - STOP_DURATION + hostile.lag + LONGEST_WAIT
