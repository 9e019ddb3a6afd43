"""Carries out one step of a drain: taints the node, evicts pods, and writes conditions and events about it.

What a step is decides :mod:`shared.termination.drain`.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

from functions.termination import step_stamp
from shared.api import labels as names
from shared.api import nodeclaim, taints
from shared.api.meta import condition, with_condition
from shared.base.struct import Struct, with_fields
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError
from shared.termination.drain import deadline_reason
from shared.termination.requeue import WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.termination.drain import DrainStep
    from shared.termination.eviction import Evictor


_DETACHMENT = timedelta(minutes=1)
"""Volumes that aren't detached after this time are named in an event: most take seconds."""


class Terminator(Struct, kw_only=True):
    """Drains nodes, one step a call."""

    client: Client
    recorder: Recorder
    evictor: Evictor
    now: Callable[[], datetime]
    logger: Logger

    def taint(self, node: Node) -> Node:
        """Taint the node so that no pods are scheduled to it, and exclude it from external load balancers."""

        def change(current: Node) -> Node:
            labels = {**current.metadata.labels, names.EXCLUDE_BALANCERS: "karpenter"}
            return with_fields(
                current,
                metadata=with_fields(current.metadata, labels=labels),
                spec=with_fields(current.spec, taints=taints.with_disrupted(current.spec.taints)),
            )

        return writes.update(self.client, resources.NODES, node, change)

    def carry_out(self, claim: NodeClaim, node: Node, step: DrainStep) -> WaitReason:
        """Evict and delete the step's pods, and write the drain's conditions; what the drain waits for then.

        Pods whose eviction was not begun within :data:`step_stamp.EVICTING` are left to the next step.
        """
        node_name = node.metadata.name
        blocked = [f"pod {p.key} has annotation {names.DO_NOT_DISRUPT}" for p in step.protected]
        outcomes = self.evictor.evict_all(step.evict, node_name, until=self.now() + step_stamp.EVICTING)
        blocked += [outcome for outcome in outcomes if outcome]
        why = deadline_reason(claim, node_name) if step.delete else ""
        deleted = [self.evictor.delete(pod, grace, node_name=node_name, why=why) for pod, grace in step.delete]
        self._write_progress(claim, node, step, blocked)
        if any(deleted) or not all(outcomes):
            return WaitReason.PODS
        if step.drained:
            return WaitReason.VOLUMES
        return WaitReason.REPLACEMENT if step.delayed and not blocked else WaitReason.BLOCKED

    def _write_progress(self, claim: NodeClaim, node: Node, step: DrainStep, blocked: list[str]) -> None:
        """Write conditions Drained and VolumesDetached, and an event when evictions begin to be blocked.

        The condition's message has the blocked pod too, so the event is recorded once and not at each step.
        """
        now = self.now()
        message = "" if step.drained or step.terminate else step.waiting_for
        if blocked:
            summary = f"{blocked[0]} (and {len(blocked) - 1} more)" if len(blocked) > 1 else blocked[0]
            message = f"{message}; {summary}"
            before = condition(claim.status.conditions, nodeclaim.DRAINED)
            if before is None or before.message != message:
                self.recorder.record(node.ref, "Warning", "FailedDraining", f"Failed to drain node, {summary}")
                self.logger.info("Pods can't be evicted now", extra={"nodeclaim": claim.name, "why": blocked})
        if step.drained and not step.terminate and _waits_long(claim, now=now):
            self.recorder.record(node.ref, "Warning", "AwaitingVolumeDetachment", f"Drained, but {step.waiting_for}")
        with contextlib.suppress(NotFoundError):
            writes.update_status(
                self.client,
                resources.NODE_CLAIMS,
                claim,
                lambda current: with_drain_conditions(current, step, message, now=now),
            )


def _waits_long(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether volumes have been waited for longer than detaching takes."""
    before = condition(claim.status.conditions, nodeclaim.VOLUMES_DETACHED)
    since = before.last_transition_time if before is not None and before.status == "False" else None
    return since is not None and now - since >= _DETACHMENT


def with_drain_conditions(claim: NodeClaim, step: DrainStep, message: str, *, now: datetime) -> NodeClaim:
    """The NodeClaim with condition Drained, and with VolumesDetached once it is drained."""
    is_drained, generation = step.drained or step.terminate, claim.metadata.generation
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.DRAINED,
        status=is_drained,
        reason="Drained" if is_drained else "Draining",
        message=message,
        now=now,
        generation=generation,
    )
    if step.drained:
        conditions = with_condition(
            conditions,
            nodeclaim.VOLUMES_DETACHED,
            status=step.terminate,
            reason="VolumesDetached" if step.terminate else "AwaitingVolumeDetachment",
            message="" if step.terminate else step.waiting_for,
            now=now,
            generation=generation,
        )
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions))
