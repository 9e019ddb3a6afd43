"""The durations of machines and pods, and machines that misbehave."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    import random

Span = tuple[float, float]
"""Minimum and maximum, in seconds."""


class Timing(Struct, kw_only=True):
    """The spans of durations; each machine and pod draws its own."""

    boot: Span = (20.0, 35.0)
    """From launch to the node's registration."""
    restart: Span = (12.0, 20.0)
    """From running again, after a stop or a reboot, to the kubelet's first status: nothing is set up."""
    ready: Span = (3.0, 6.0)
    """From registration to Ready (the network plugin's start)."""
    pull: Span = (1.0, 2.0)
    """From a pod's binding to running."""
    stop: Span = (1.0, 1.0)
    """From a pod's deletion to its stop; at most its grace period."""

    @staticmethod
    def draw(span: Span, rng: random.Random) -> timedelta:
        """A duration from the span."""
        return timedelta(seconds=rng.uniform(*span))


class MachineBehavior(Struct, kw_only=True):
    """How a machine misbehaves."""

    never_joins: bool = False
    join_delay: timedelta = timedelta()
    never_ready: bool = False
    dynamic_devices: bool = False
    """Its devices are published by a driver, in a ResourceSlice; the kubelet doesn't report them."""
    never_returns: bool = False
    """After a stop and a start, or a reboot."""
    missing_memory: Fraction = Fraction()
    """The share of memory that the node doesn't report, beyond the overhead of hypervisor and kernel."""


NORMAL = MachineBehavior()
