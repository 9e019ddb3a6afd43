"""The cluster's own controllers, as far as a cluster with coming and going nodes needs them.

They work on the store directly, as the other side of the API that Tenon talks to, and are stepped by the world's loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.controllers.daemonsets import DaemonSets
from local.kubernetes.controllers.deployments import Deployments
from local.kubernetes.controllers.jobs import Jobs
from local.kubernetes.controllers.nodes import NodeLifecycle
from local.kubernetes.controllers.replicasets import ReplicaSets
from local.kubernetes.controllers.scheduler import Scheduler
from local.kubernetes.controllers.statefulsets import StatefulSets
from local.kubernetes.controllers.volumes import Volumes

if TYPE_CHECKING:
    from local.actor import Actor
    from local.kubernetes.store import Store


def controllers(store: Store, *, seed: int = 0) -> list[Actor]:
    """All controllers of the cluster, in the order in which they are best stepped; the seed makes pods' names."""
    return [
        NodeLifecycle(store),
        Deployments(store),
        ReplicaSets(store, seed=seed),
        DaemonSets(store, seed=seed),
        StatefulSets(store),
        Jobs(store, seed=seed),
        Volumes(store),
        Scheduler(store),
    ]
