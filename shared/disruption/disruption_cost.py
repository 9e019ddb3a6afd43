"""What moving a pod costs: a price in USD, so that it can be set against what is saved.

A moved pod starts anew somewhere else, and what it did meanwhile is lost. That is reckoned as a little for the restart
itself and some minutes of its resources, weighted by Karpenter's eviction cost (reference: karpenter.md, section 5).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shared.api.labels import POD_DELETION_COST

if TYPE_CHECKING:
    from shared.api.kubernetes import Pod

RESTART_COST = 0.02
"""USD: what a restart costs even the smallest pod's owner. Ours: bench/steady_load.py says what it comes to."""
LOST_WORK_HOURS = 10 / 60
"""How much of a pod's resources a restart loses: ten minutes. Ours."""
_LEAST, _MOST = -10.0, 10.0
_LEAST_WEIGHT = 0.1


def eviction_cost(pod: Pod) -> float:
    """Karpenter's eviction cost: 1, more or less by the pod's deletion cost and priority, between -10 and 10."""
    found = 1.0
    with contextlib.suppress(ValueError):  # what is no number counts for nothing, as with ReplicaSets
        found += int(pod.metadata.annotations.get(POD_DELETION_COST, "0")) / 2**27
    found += (pod.spec.priority or 0) / 2**25
    return min(max(found, _LEAST), _MOST)


def pod_disruption_cost(pod: Pod, value: float) -> float:
    """USD to move the pod; ``value`` is what its resources are worth, in USD per hour."""
    return max(eviction_cost(pod), _LEAST_WEIGHT) * (RESTART_COST + LOST_WORK_HOURS * value)
