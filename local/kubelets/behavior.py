"""How machines behave: how long things take, and what goes wrong with one that was told to misbehave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

Span = tuple[float, float]
"""Shortest and longest, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long things take; each machine and pod draws its own from these."""

    boot: Span = (20.0, 35.0)
    """From launch until the node registers."""
    ready: Span = (3.0, 6.0)
    """From registration until the node is Ready (the network plugin's start)."""
    pull: Span = (1.0, 2.0)
    """From a pod's arrival until it runs."""
    stop: Span = (1.0, 1.0)
    """How long a pod takes to stop; never longer than its grace period."""

    @staticmethod
    def draw(span: Span, rng: random.Random) -> timedelta:
        """One duration of the span."""
        return timedelta(seconds=rng.uniform(*span))


@dataclass(frozen=True, kw_only=True)
class MachineBehavior:
    """What a machine does otherwise than it should."""

    never_joins: bool = False
    join_delay: timedelta = timedelta()
    never_ready: bool = False
    missing_memory: Fraction = Fraction()
    """The share of its memory that the node doesn't report, beyond what hypervisor and kernel keep."""


NORMAL = MachineBehavior()
