"""Provisioning while the cluster is paused: only pods of nodes that an interruption takes get new nodes.

All other pods wait, with the pause as the reason. Nodes that were launched before still take their pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pause import read_pause
from shared.base.struct import with_fields
from shared.provisioning.round import Feature
from shared.scheduling.decision import Problem, UnschedulableReason
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.pause import Pause
    from shared.provisioning.round import Provisioning, Round
    from shared.snapshot import Snapshot


class PausedProvisioning(Feature, kw_only=True):
    """One round while the cluster is paused: ``snapshot`` is what it decides from.

    ``forced`` are the pods that get new nodes nevertheless (namespace/name); the snapshot isn't paused then, and has
    none of the ``waiting`` pods, which are by the reason.
    """

    pause: Pause
    snapshot: Snapshot
    forced: frozenset[str] = frozenset()
    waiting: Mapping[str, UnschedulableReason] = {}

    def before(self, round_: Round) -> Round:
        """The round from the snapshot that is left for it."""
        return with_fields(round_, snapshot=self.snapshot, pause=self.pause)

    def after(self, round_: Round) -> Round:
        """The decision with the waiting pods, and with the pause as the reason where no NodePool was checked."""
        why = UnschedulableReason(message=f"unschedulable: {self.pause.message}")
        errors = {**round_.decision.pod_errors, **self.waiting}
        errors = {pod: error if error.criteria else why for pod, error in errors.items()}
        return with_fields(round_, decision=with_fields(round_.decision, pod_errors=errors))

    def write(self, round_: Round) -> Round:
        """Of the NodeClaims without an instance, those that forced pods need are launched.

        Without forced pods those of NodePools, which can't be launched now, and say so in a condition.
        """
        existing = round_.decision.existing_nodes
        launched = tuple(
            c
            for c in round_.unlaunched
            if (
                not self.forced.isdisjoint(existing.get(c.name, ()))
                if self.forced
                else names.NODEPOOL in c.metadata.labels and names.STANDBY not in c.metadata.annotations
            )
        )
        return with_fields(round_, unlaunched=launched)


def paused_provisioning(provisioning: Provisioning, round_: Round) -> PausedProvisioning | None:
    """How to provision by the annotations of the cluster's Lease; None if the cluster isn't paused.

    Pods of nodes that an interruption takes get new nodes all the same.
    """
    snapshot = round_.snapshot
    pause = read_pause(round_.lease.annotations, now=snapshot.taken_at)
    if pause is None:
        return None
    forced = round_.leaving if provisioning.by == "interruption" else frozenset[str]()
    paused = with_fields(snapshot, pause=pause)
    pods = frozenset(p.key for p in snapshot.pods if p.spec.node_name in forced)
    if not pods:
        return PausedProvisioning(pause=pause, snapshot=paused)
    waiting = _without_room(paused, pause, leaving=forced, forced=pods)
    only_forced = with_fields(
        snapshot,
        pods=tuple(p for p in snapshot.pods if p.key not in waiting),
        node_pools=tuple(p for p in snapshot.node_pools if p.spec.replicas is None),
        capacity_buffers=(),
    )
    return PausedProvisioning(pause=pause, snapshot=only_forced, forced=pods, waiting=waiting)


def _without_room(
    snapshot: Snapshot, pause: Pause, *, leaving: frozenset[str], forced: frozenset[str]
) -> dict[str, UnschedulableReason]:
    """The pods that have no room on nodes that exist or are coming, without the forced ones, by the reason."""
    decision = schedule(
        Problem(
            snapshot=snapshot,
            instance_types={p.name: () for p in snapshot.node_pools},
            not_ready={p.name: pause.message for p in snapshot.node_pools},
            leaving=leaving,
        )
    )
    return {pod: why for pod, why in decision.pod_errors.items() if pod not in forced}
