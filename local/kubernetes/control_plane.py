"""Every controller of the cluster, and its scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from local.kubernetes.controllers.daemonsets import DaemonSets
from local.kubernetes.controllers.deployments import Deployments
from local.kubernetes.controllers.jobs import Jobs
from local.kubernetes.controllers.node_lifecycle import NodeLifecycle
from local.kubernetes.controllers.persistent_volumes import PersistentVolumes
from local.kubernetes.controllers.replicasets import ReplicaSets
from local.kubernetes.controllers.statefulsets import StatefulSets
from local.kubernetes.scheduler.scheduler import VERSION, Scheduler

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.registry.store import Store


class Controller(Protocol):
    """A controller works on the store directly. A loop outside this package steps it."""

    def step(self, now: datetime) -> bool:
        """Do everything that is due. True if anything was done, so that the loop steps again before time moves."""
        ...

    def due(self) -> datetime | None:
        """When there is something to do if nothing else happens; None: never."""
        ...


def controllers(store: Store, *, seed: int = 0, version: str = VERSION) -> list[Controller]:
    """All controllers and the scheduler, in the order in which they are stepped.

    The seed decides pods' names, and the scheduler's choice among equal nodes. The scheduler is that of ``version``.
    """
    return [
        NodeLifecycle(store),
        Deployments(store),
        ReplicaSets(store, seed=seed),
        DaemonSets(store, seed=seed),
        StatefulSets(store),
        Jobs(store, seed=seed),
        PersistentVolumes(store),
        Scheduler(store, seed=seed, version=version),
    ]
