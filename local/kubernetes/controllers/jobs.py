"""Jobs: pods that run until enough of them have succeeded."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.conditions import condition_status, with_condition
from local.kubernetes.controllers.owned_pods import Workloads, create_pod, is_terminating
from local.kubernetes.object_updates import delete, update_status
from local.kubernetes.objects import timestamp
from local.kubernetes.registry.object_meta import generated_name

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.controllers.owned_pods import OwnedPods
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

_DEFAULT_BACKOFF_LIMIT = 6


class Jobs:
    """Keeps every Job's pods running until it is complete or has failed too often."""

    def __init__(self, store: Store, *, seed: int) -> None:
        self._store = store
        self._rng = random.Random(f"jobs/{seed}")  # noqa: S311 (names in a simulation)
        self._jobs = Workloads(store, kinds.JOBS)
        self._pods = self._jobs.pods

    def due(self) -> datetime | None:
        """Never by itself."""
        return None

    def step(self, now: datetime) -> bool:
        """Reconcile the Jobs with changes."""
        version = self._store.version
        for uid in self._jobs.pop_changed():
            job = self._jobs.get(uid)
            if job is not None and not is_terminating(job) and not _is_finished(job):
                self._reconcile(job, self._pods.of(uid), now)
        return self._store.version != version

    def _reconcile(self, job: Obj, pods: OwnedPods, now: datetime) -> None:
        spec, status = job["spec"], job.get("status") or {}
        parallelism = spec.get("parallelism", 1)
        completions = spec.get("completions", parallelism)
        succeeded = sum(pod["status"].get("phase") == "Succeeded" for pod in pods.ended.values())
        failed = len(pods.ended) - succeeded
        active_limit = 0 if spec.get("suspend") else min(parallelism, max(completions - succeeded, 0))
        conditions = status.get("conditions") or []
        if succeeded >= completions:
            conditions = with_condition(conditions, "Complete", status="True", reason="CompletionsReached", now=now)
        elif failed > spec.get("backoffLimit", _DEFAULT_BACKOFF_LIMIT):
            active_limit = 0
            conditions = with_condition(conditions, "Failed", status="True", reason="BackoffLimitExceeded", now=now)
        self._scale(job, pods, active_limit)
        update_status(
            self._store,
            kinds.JOBS,
            job,
            startTime=status.get("startTime") or timestamp(now),
            active=min(len(pods.active), active_limit) or None,
            ready=len(pods.ready),
            succeeded=succeeded or None,
            failed=failed or None,
            conditions=conditions or None,
            completionTime=timestamp(now) if succeeded >= completions else None,
        )

    def _scale(self, job: Obj, pods: OwnedPods, active_limit: int) -> None:
        for pod in list(pods.active.values())[active_limit:]:
            delete(self._store, kinds.PODS, pod)
        for _ in range(active_limit - len(pods.active)):
            name = generated_name(f"{job['metadata']['name']}-", self._rng)
            create_pod(self._store, kinds.JOBS, job, name=name, template=_template(job))


def _is_finished(job: Obj) -> bool:
    return "True" in {condition_status(job, "Complete"), condition_status(job, "Failed")}


def _template(job: Obj) -> Obj:
    """The pod template with the labels that identify the Job's pods."""
    template: Obj = job["spec"]["template"]
    meta = template.get("metadata") or {}
    labels = {
        "batch.kubernetes.io/job-name": job["metadata"]["name"],
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
        "job-name": job["metadata"]["name"],
    }
    return {**template, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}}}
