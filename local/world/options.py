"""The options of a local world."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from local.aws import latencies
from local.clock import RealTimeClock
from local.kubelets.behavior import NORMAL, MachineBehavior, Timing
from local.world import shared_cache
from local.world.hostility import Hostility, of_environment
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from local.aws.cloud import Cloud
    from local.aws.latencies import Latencies, Latency
    from local.aws.purchases import Purchases
    from local.clock import Clock
    from local.kubelets.machine import Machine
    from local.world.control_plane import ControlPlane


class Options(Struct, kw_only=True):
    """The differences from a default world.

    ``version`` is that of Kubernetes. ``start`` is the first time of the world's clock, ``elapsed`` the seconds that
    work takes on it (:class:`local.clock.Clock`). ``catalog`` tells whether the instance type catalog is filled at the
    start, ``context`` is the CDK's. ``control_plane`` makes a control plane other than the embedded one.
    ``purchases`` buys the Reserved Instances and Savings Plans that the account has at the start.
    ``hostility`` is that of AWS and the cluster (None: none), by default what the
    environment asks for. ``latencies`` are those of functions' calls, by service and operation (None: calls take no
    longer than the work here, for measurements of that). There are none in real time, nor where functions run one
    after the other: they would wait for each other's calls, which deployed ones don't.
    """

    version: str = "1.34"
    concurrency: int = 1
    timing: Timing | None = None
    behavior: Callable[[Machine], MachineBehavior] = lambda _machine: NORMAL
    start: datetime | None = None
    elapsed: Callable[[], float] = time.monotonic
    port: int = 0
    catalog: bool = True
    context: Mapping[str, str] = {}
    control_plane: Callable[[], ControlPlane] | None = None
    purchases: Callable[[Purchases], object] = lambda _purchases: None
    hostility: Hostility | None = msgspec.field(default_factory=of_environment)
    latencies: Mapping[tuple[str, str], Latency] | None = msgspec.field(default_factory=latencies.table)

    @property
    def function_concurrency(self) -> int:
        """How many functions run at once."""
        return max(self.concurrency, self.hostility.concurrency if self.hostility else 1)

    def call_latencies(self, clock: Clock, *, seed: int) -> Latencies | None:
        """The latencies of functions' calls in a world with this clock."""
        if self.latencies is None or self.function_concurrency == 1 or isinstance(clock, RealTimeClock):
            return None
        return latencies.Latencies(self.latencies, seed=seed)

    @property
    def shared_cache(self) -> Mapping[str, Any]:
        """The part of their caches that all functions share, of earlier worlds too: what depends on equal inputs only.

        Nothing where the functions' own work is measured, as processor time.
        """
        return {} if self.elapsed is time.process_time else shared_cache.INSTANCE_TYPES

    @property
    def machine_timing(self) -> Timing | None:
        """The durations of machines and pods; None: the usual ones."""
        return self.hostility.timing(self.timing) if self.hostility else self.timing

    @property
    def foreign_objects(self) -> bool:
        """Whether objects of other node-class groups are in the cluster."""
        return self.hostility is not None and self.hostility.foreign_objects

    def apply_to(self, aws: Cloud) -> None:
        """Let the account own what the options say, and EC2 be as hostile."""
        self.purchases(aws.purchases)
        if self.hostility is not None:
            self.hostility.apply_to(aws)
