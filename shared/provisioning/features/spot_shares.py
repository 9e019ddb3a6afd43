"""Spot shares of workloads: pods whose annotation has no effect get an event. Scheduling itself keeps to the shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import EventReason
from shared.api.spot_share import spot_share_problem
from shared.provisioning.round import Feature

if TYPE_CHECKING:
    from shared.cluster.events import Recorder
    from shared.provisioning.round import Round


class SpotShares(Feature, kw_only=True):
    """The spot shares of the pods of one round."""

    recorder: Recorder

    def before(self, round_: Round) -> Round:
        """The round as it is, after an event on each pod without a node whose annotation has no effect."""
        for pod in round_.snapshot.pods:
            if not pod.spec.node_name and (problem := spot_share_problem(pod)):
                self.recorder.record(pod.ref, "Warning", EventReason("InvalidAnnotation"), problem)
        return round_
