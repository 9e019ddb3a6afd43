"""The options of a local world."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local.kubelets.behavior import NORMAL, MachineBehavior, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from local.kubelets.machine import Machine
    from local.world.control_plane import ControlPlane


@dataclass(frozen=True, kw_only=True)
class Options:
    """The differences from a default world.

    ``version`` is that of Kubernetes. ``start`` is the first time of the world's clock, ``elapsed`` the seconds that
    work takes on it (:class:`local.clock.Clock`). ``catalog`` tells whether the instance type catalog is filled at the
    start, ``context`` is the CDK's. ``control_plane`` makes a control plane other than the embedded one.
    """

    version: str = "1.34"
    concurrency: int = 1
    timing: Timing | None = None
    behavior: Callable[[Machine], MachineBehavior] = lambda _machine: NORMAL
    start: datetime | None = None
    elapsed: Callable[[], float] = time.monotonic
    port: int = 0
    catalog: bool = True
    context: Mapping[str, str] = field(default_factory=dict)
    control_plane: Callable[[], ControlPlane] | None = None
