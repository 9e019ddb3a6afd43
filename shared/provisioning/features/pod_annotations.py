"""Pods' annotations that have no effect: the pod gets an event. What they say counts where they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.lost_work import lost_work_problem
from shared.api.meta import EventReason
from shared.api.spot_share import spot_share_problem
from shared.provisioning.round import Feature

if TYPE_CHECKING:
    from shared.cluster.events import Recorder
    from shared.provisioning.round import Round


class PodAnnotations(Feature, kw_only=True):
    """The annotations of the pods of one round."""

    recorder: Recorder

    def before(self, round_: Round) -> Round:
        """The round as it is, after an event on each pod without a node for each annotation without an effect."""
        for pod in round_.snapshot.pods:
            if pod.spec.node_name:
                continue
            lost_work = lost_work_problem(pod.metadata.annotations)
            of_lost_work = lost_work and f"annotation {names.LOST_WORK} has no effect: {lost_work}"
            for problem in (spot_share_problem(pod), of_lost_work):
                if problem:
                    self.recorder.record(pod.ref, "Warning", EventReason("InvalidAnnotation"), problem)
        return round_
