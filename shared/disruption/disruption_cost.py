"""Disruption cost: what moving a pod costs in USD, so that it can be compared with savings.

A moved pod restarts on another node and loses its work in progress. Its disruption cost is a fixed amount for the
restart plus the price of its resources for the time whose work it loses (:mod:`shared.api.lost_work`), weighted by
Karpenter's eviction cost (reference: docs/facts/karpenter.md, section 5).
"""

from __future__ import annotations

import re
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from shared.api.labels import POD_DELETION_COST, POD_DISRUPTION_COST
from shared.api.lost_work import DEFAULT_LOST_WORK, lost_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.kubernetes import Pod

RESTART_COST = 0.01
"""USD that a planned restart costs even for the smallest pod. Tenon's figure: bench/month measures its effect."""
INTERRUPTION_RESTART_COST = 0.02
"""The same for a restart by an interruption: a pod may wait until a node has booted. Tenon's figure."""
_HOUR = timedelta(hours=1)
LOST_WORK_HOURS = DEFAULT_LOST_WORK / _HOUR
"""Hours of its resources that an interruption loses of each pod."""
_MIN_EVICTION_COST, _MAX_EVICTION_COST = -10.0, 10.0
_MIN_WEIGHT = 0.1
_NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
_INTEGER = re.compile(r"-?[0-9]{1,10}")


def eviction_cost(pod: Pod) -> float:
    """Karpenter's eviction cost: 1, adjusted by the pod's disruption cost and priority, between -10 and 10.

    Annotation ``karpenter.sh/disruption-cost`` counts, or without it ``controller.kubernetes.io/pod-deletion-cost``.
    A value that isn't an int32 counts as 0; an invalid disruption cost still takes the place of the deletion cost.

    >>> from shared.api.kubernetes import Pod, PodSpec
    >>> eviction_cost(Pod()), eviction_cost(Pod(spec=PodSpec(priority=2_000_000_000)))
    (1.0, 10.0)
    """
    annotations = pod.metadata.annotations
    stated = annotations.get(POD_DISRUPTION_COST, annotations.get(POD_DELETION_COST, ""))
    cost = 1.0 + _int32(stated) / 2**27 + (pod.spec.priority or 0) / 2**25
    return min(max(cost, _MIN_EVICTION_COST), _MAX_EVICTION_COST)


def _int32(text: str) -> int:
    """The number; 0 for any other text."""
    value = int(text) if _INTEGER.fullmatch(text) else 0
    return value if -(2**31) <= value < 2**31 else 0


def pod_disruption_cost(pod: Pod, resource_price: float, of_pool: Mapping[str, str] = _NO_ANNOTATIONS) -> float:
    """USD to move the pod; ``resource_price`` is the price of its resources in USD per hour.

    ``of_pool`` are its NodePool's annotations.

    >>> from shared.api.kubernetes import Pod
    >>> f"${pod_disruption_cost(Pod(), resource_price=0.06):.2f}"
    '$0.02'
    """
    return max(eviction_cost(pod), _MIN_WEIGHT) * (RESTART_COST + lost_work(pod, of_pool) / _HOUR * resource_price)
