"""The load of a day: Deployments that follow the hour, jobs at night, spot interruptions, and drift once.

A day may be shorter than 24 hours: what happens at an hour then happens at the same share of the day.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from local.world import World, sample_objects
from shared.api import labels as names
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

HOURS = 24
WEB = (1, 1, 1, 1, 1, 2, 3, 4, 6, 7, 8, 8, 7, 8, 8, 7, 6, 5, 4, 3, 2, 2, 1, 1)
"""Replicas of a Deployment by hour."""
JOB_HOURS = (2, 4)
JOB_PODS = 3
INTERRUPTED_AT = (10, 15)
_REQUESTS = {"web": {"cpu": "700m", "memory": "1Gi"}, "api": {"cpu": "1500m", "memory": "2Gi"}}
_JOB_REQUESTS = {"cpu": "1", "memory": "1Gi"}
_GRACE = 30
_REVISION = "bench/revision"
_CATEGORY, _CPU = "karpenter.k8s.aws/instance-category", "karpenter.k8s.aws/instance-cpu"


class Day(Struct, kw_only=True):
    """How a day goes: its length, and on which days the nodes drift."""

    length: timedelta = timedelta(days=1)
    drift_on: frozenset[int] = frozenset({3})
    drift_hour: int = 12

    @property
    def hour(self) -> timedelta:
        """One of its 24 parts."""
        return self.length / HOURS


def prepare(world: World) -> None:
    """Create the NodePool and the workloads, without replicas."""
    world.apply([sample_objects.node_class(world), _node_pool("first")])
    world.apply(
        [
            sample_objects.deployment(app, 0, requests, terminationGracePeriodSeconds=_GRACE)
            for app, requests in _REQUESTS.items()
        ]
    )
    world.apply([sample_objects.budget(app, "50%") for app in _REQUESTS])


def run_day(world: World, day: Day, number: int) -> None:
    """Run one day, in 24 parts."""
    rng = random.Random(f"day/{number}")  # noqa: S311 (which instances are interrupted)
    for hour in range(HOURS):
        scale(world, WEB[hour])
        if hour in JOB_HOURS:
            world.apply(_job(f"night-{number}-{hour}"))
        if hour - 1 in JOB_HOURS:
            _delete_job(world, f"night-{number}-{hour - 1}")
        if hour in INTERRUPTED_AT:
            running = sorted(i.id for i in world.instances())
            world.interrupt_spot(rng.sample(running, min(2, len(running))))
        if number in day.drift_on and hour == day.drift_hour:
            world.apply(_node_pool(f"day-{number}"))
        world.run_for(day.hour)


def scale(world: World, web: int) -> None:
    """Scale the Deployments: that many web pods, and half as many of the api."""
    world.scale("default", "web", web)
    world.scale("default", "api", web // 2)


def _node_pool(revision: str) -> dict[str, Any]:
    """Spot nodes of a few sizes; another revision lets them drift."""
    requirements = {names.CAPACITY_TYPE: ["spot"], _CATEGORY: ["m"], _CPU: ["2", "4", "8"]}
    pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "1m", "budgets": [{"nodes": "50%"}]})
    pool["spec"]["template"]["metadata"] = {"labels": {_REVISION: revision}}
    return pool


def _job(name: str) -> Mapping[str, Any]:
    template = sample_objects.deployment(name, 0, _JOB_REQUESTS, terminationGracePeriodSeconds=_GRACE)["spec"][
        "template"
    ]
    pod = {**template["spec"], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parallelism": JOB_PODS,
            "completions": JOB_PODS,
            "template": {"metadata": template["metadata"], "spec": pod},
        },
    }


def _delete_job(world: World, name: str) -> None:
    world.store.delete(kinds.JOBS, name, namespace="default")
