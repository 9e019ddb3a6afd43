"""Jobs: pods that run until enough of them have ended well."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.object_updates import condition_status, remove, set_status, with_condition
from local.kubernetes.controllers.owned_pods import Families, make_pod
from local.kubernetes.registry.object_meta import generated_name, timestamp

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.controllers.owned_pods import Family
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

_BACKOFF_LIMIT = 6


class Jobs:
    """Keeps every Job's pods running until it is complete or has failed too often."""

    def __init__(self, store: Store, *, seed: int) -> None:
        self._store = store
        self._rng = random.Random(f"jobs/{seed}")  # noqa: S311 (names in a simulation)
        self._feed = Informer(store, kinds.JOBS, kinds.PODS)
        self._jobs: dict[str, Obj] = {}
        self._families = Families(kinds.JOBS)

    def due(self) -> datetime | None:
        """Never by itself."""
        return None

    def step(self, now: datetime) -> bool:
        """See to the Jobs that something happened to."""
        version = self._store.version
        affected: dict[str, None] = {}
        for change in self._feed.take():
            if change.kind.plural == "pods":
                affected[self._families.learn(change)] = None
                continue
            uid = change.object["metadata"]["uid"]
            affected[uid] = None
            if change.type == "DELETED":
                self._jobs.pop(uid, None)
            else:
                self._jobs[uid] = change.object
        for uid in affected:
            if (job := self._jobs.get(uid)) is not None:
                self._reconcile(job, self._families.of(uid), now)
        return self._store.version != version

    def _reconcile(self, job: Obj, family: Family, now: datetime) -> None:
        spec, status = job["spec"], job.get("status") or {}
        if "deletionTimestamp" in job["metadata"] or _is_over(job):
            return
        parallelism = spec.get("parallelism", 1)
        completions = spec.get("completions", parallelism)
        succeeded = sum(pod["status"].get("phase") == "Succeeded" for pod in family.ended.values())
        failed = len(family.ended) - succeeded
        wanted = 0 if spec.get("suspend") else min(parallelism, max(completions - succeeded, 0))
        conditions = status.get("conditions") or []
        if succeeded >= completions:
            conditions = with_condition(conditions, "Complete", status="True", reason="CompletionsReached", now=now)
        elif failed > spec.get("backoffLimit", _BACKOFF_LIMIT):
            wanted = 0
            conditions = with_condition(conditions, "Failed", status="True", reason="BackoffLimitExceeded", now=now)
        for pod in list(family.active.values())[wanted:]:
            remove(self._store, kinds.PODS, pod)
        for _ in range(wanted - len(family.active)):
            name = generated_name(f"{job['metadata']['name']}-", self._rng)
            make_pod(self._store, kinds.JOBS, job, name=name, template=_labelled(job))
        set_status(
            self._store,
            kinds.JOBS,
            job,
            startTime=status.get("startTime") or timestamp(now),
            active=min(len(family.active), wanted) or None,
            ready=len(family.ready),
            succeeded=succeeded or None,
            failed=failed or None,
            conditions=conditions or None,
            completionTime=timestamp(now) if succeeded >= completions else None,
        )


def _is_over(job: Obj) -> bool:
    return "True" in {condition_status(job, "Complete"), condition_status(job, "Failed")}


def _labelled(job: Obj) -> Obj:
    """The template with the labels that tell a Job's pods apart."""
    template: Obj = job["spec"]["template"]
    meta = template.get("metadata") or {}
    own = {
        "batch.kubernetes.io/job-name": job["metadata"]["name"],
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
        "job-name": job["metadata"]["name"],
    }
    return {**template, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **own}}}
