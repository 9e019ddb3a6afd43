"""The eviction call, and deletion of pods over their budgets when the deadline requires it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api.pods import is_terminating
from shared.base.runtime import in_threads
from shared.base.struct import Struct
from shared.cluster import resources
from shared.cluster.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder

_OF_THE_POD = frozenset({500, 504})
"""HTTP statuses of the eviction API for a pod with more than one PodDisruptionBudget, or for which an admission webhook
doesn't answer in time. Unavailability has others."""


_BUDGET_NAME = re.compile(r"\bdisruption budget (\S+)")


class Evictor(Struct, kw_only=True):
    """Evicts pods, and deletes those of nodes that are being terminated. Thread-safe."""

    client: Client
    recorder: Recorder
    now: Callable[[], datetime]

    def evict_all(
        self, pods: Sequence[Pod], node_name: str, *, until: datetime, why: str = "terminated"
    ) -> list[str | None]:
        """Evict the pods, several at once; for each what :meth:`evict` returns, None if it was not begun by ``until``.

        ``why``: the node is being "terminated" or "rebooted".

        Raises:
            UnauthorizedError, UnavailableError: an error is not about a pod.
        """

        def evict(pod: Pod) -> str | None:
            return None if self.now() >= until else self.evict(pod, why=f"node {node_name} is being {why}")

        return in_threads(evict, pods, sequential_limit=1)

    def evict(self, pod: Pod, *, why: str, grace_seconds: int | None = None) -> str:
        """Evict the pod for the reason ``why``; why it can't be evicted now, or "" when it is evicted or gone.

        An error about the pod (a budget, two budgets, its namespace, a webhook that denies it or doesn't answer) blocks
        that pod only.

        Raises:
            UnauthorizedError, UnavailableError: the error is not about the pod.
        """
        try:
            self.client.evict(
                pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid, grace_period_seconds=grace_seconds
            )
        except (NotFoundError, ConflictError):
            return ""
        except UnauthorizedError:
            raise
        except ApiError as error:
            if isinstance(error, UnavailableError) and error.status not in _OF_THE_POD:
                raise
            passes = isinstance(error, TooManyRequestsError) or error.by_budget or error.by_namespace
            return f"pod {pod.key} can't be evicted{' now' if passes else ''}: {_why_denied(error)}"
        self.recorder.record(pod.ref, "Normal", "Evicted", f"Evicted pod: {why}")
        return ""

    def delete(self, pod: Pod, grace_seconds: int, *, node_name: str, why: str) -> bool:
        """Delete a pod to meet the deadline; False when it is gone. ``why`` says which deadline.

        Eviction is tried once more while there is grace left: a budget that allows it by now counts the pod as
        disrupted, and does not allow another eviction as well.
        """
        evicts = bool(grace_seconds) and not is_terminating(pod)
        if evicts and not self.evict(pod, why=_terminated(node_name), grace_seconds=grace_seconds):
            return True
        path = resources.PODS.path(pod.metadata.name, namespace=pod.metadata.namespace)
        try:
            self.client.delete(path, uid=pod.metadata.uid, grace_period_seconds=grace_seconds)
        except (NotFoundError, ConflictError):
            return False
        self.recorder.record(pod.ref, "Warning", "Evicted", f"Deleted pod: {why}")
        return True


def _terminated(node_name: str) -> str:
    return f"node {node_name} is being terminated"


def _why_denied(error: ApiError) -> str:
    """The PodDisruptionBudget that allows no disruption, or the namespace; otherwise what the API server says.

    The API server's message doesn't name it, but the cause does: "The disruption budget NAME needs 2 healthy pods and
    has 2 currently". The numbers are left out, because an event is recorded for each new message.
    """
    if error.by_namespace:
        return "its namespace is being deleted, and the pod with it"
    names = [match[1] for cause in error.causes if (match := _BUDGET_NAME.search(cause.message))]
    return f"PodDisruptionBudget {names[0]} allows no disruption" if error.by_budget and names else error.message
