"""One node emptied a step further: tainted, its pods sent away, and what holds it up told where people look."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared import runtime
from shared.api import labels as names
from shared.api import nodeclaim, taints
from shared.api.meta import condition, with_condition
from shared.api.pods import is_terminating
from shared.cluster import resources, writes
from shared.cluster.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
)
from shared.termination.requeue import WaitReason

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from functions.termination.drain import Step
    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder

_INTERNAL = 500
"""The eviction API's answer for a pod that two budgets cover; a server that can't serve says something else."""


@dataclass(frozen=True, kw_only=True)
class Emptying:
    """What it takes to empty nodes."""

    client: Client
    recorder: Recorder
    logger: Logger

    def cordon(self, node: Node) -> Node:
        """No new pods come, and load balancers outside send no more."""
        return writes.update(
            self.client,
            resources.NODES,
            node,
            lambda n: replace(
                n,
                metadata=replace(n.metadata, labels={**n.metadata.labels, names.EXCLUDE_BALANCERS: "karpenter"}),
                spec=replace(n.spec, taints=taints.with_disrupted(n.spec.taints)),
            ),
        )

    def carry_out(self, claim: NodeClaim, node: Node, step: Step) -> WaitReason:
        """Evict and delete, and say what is waited for. Answers what that is: pods that go now, or what holds."""
        moved = False
        held = [f"pod {p.key} has annotation {names.DO_NOT_DISRUPT}" for p in step.protected]
        for pod in step.evict:
            refusal = self._evict(pod, node)
            if refusal:
                held.append(refusal)
            moved = moved or not refusal
        for pod, grace in step.force:
            moved = self._force(pod, node, grace) or moved
        self._say(claim, node, step, held)
        if moved:
            return WaitReason.PODS
        if step.drained:
            return WaitReason.VOLUMES
        return WaitReason.REPLACEMENT if step.stay and not held else WaitReason.BLOCKED

    def _evict(self, pod: Pod, node: Node, *, grace: int | None = None) -> str:
        """Why the pod can't leave now; "" when it goes, or is gone.

        Whatever the server says of one pod (two budgets cover it, a webhook denies it) holds that pod and no other.

        Raises:
            UnauthorizedError, UnavailableError: the server said nothing of the pod.
        """
        try:
            self.client.evict(
                pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid, grace_period_seconds=grace
            )
        except TooManyRequestsError as error:
            return f"pod {pod.key} can't leave now: {error.message}"
        except (NotFoundError, ConflictError):
            return ""
        except UnauthorizedError:
            raise
        except ApiError as error:
            if isinstance(error, UnavailableError) and error.status != _INTERNAL:
                raise
            return f"pod {pod.key} can't be evicted: {error.message}"
        self.recorder.record(pod.ref, "Normal", "Evicted", f"node {node.metadata.name} is being removed")
        return ""

    def _force(self, pod: Pod, node: Node, grace: int) -> bool:
        """Delete a pod whose time is up; False when it is gone. A budget is asked once more where there is time left.

        A budget that allows it by now counts the pod as disrupted, which keeps it from allowing another one as well.
        """
        if grace and not is_terminating(pod) and not self._evict(pod, node, grace=grace):
            return True
        path = resources.PODS.path(pod.metadata.name, namespace=pod.metadata.namespace)
        try:
            self.client.delete(path, uid=pod.metadata.uid, grace_period_seconds=grace)
        except (NotFoundError, ConflictError):
            return False
        self.recorder.record(
            pod.ref, "Warning", "Evicted", f"node {node.metadata.name} must go by its terminationGracePeriod"
        )
        return True

    def _say(self, claim: NodeClaim, node: Node, step: Step, held: list[str]) -> None:
        """Keep the claim's Drained and VolumesDetached conditions, which tell people what is waited for.

        What holds is told by an event once, when it begins to: the condition remembers that it was.
        """
        now = runtime.current().now()
        message = "" if step.drained or step.terminate else step.waiting_for
        if held:
            more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
            message = f"{message}; {held[0]}{more}"
            before = condition(claim.status.conditions, nodeclaim.DRAINED)
            if before is None or before.message != message:
                self.recorder.record(node.ref, "Warning", "FailedDraining", f"{held[0]}{more}")
                self.logger.info("Pods can't be evicted now", extra={"nodeclaim": claim.name, "why": held})

        def change(current: NodeClaim) -> NodeClaim:
            conditions = with_condition(
                current.status.conditions,
                nodeclaim.DRAINED,
                status=step.drained or step.terminate,
                reason="Drained" if step.drained or step.terminate else "Draining",
                message=message,
                now=now,
            )
            if step.drained:
                conditions = with_condition(
                    conditions,
                    nodeclaim.VOLUMES_DETACHED,
                    status=step.terminate,
                    reason="VolumesDetached" if step.terminate else "AwaitingVolumeDetachment",
                    message="" if step.terminate else step.waiting_for,
                    now=now,
                )
            return replace(current, status=replace(current.status, conditions=conditions))

        with contextlib.suppress(NotFoundError):
            writes.update_status(self.client, resources.NODE_CLAIMS, claim, change)
