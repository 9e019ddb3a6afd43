"""The spot share of a workload: annotation ``tenon.sh/spot-share`` on its pods, as ``"70%"``.

Of the pods of one controller (a ReplicaSet, StatefulSet, Job), at most this share is planned for spot capacity.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pods import controller

if TYPE_CHECKING:
    from shared.api.kubernetes import Pod

_PERCENT = re.compile(r"(\d{1,3})%")
_ALL = 100

WorkloadKey = tuple[str, str, str]
"""Namespace, kind and name of a controller."""


def workload_key(pod: Pod) -> WorkloadKey | None:
    """The pod's controller; None if it has none."""
    owner = controller(pod.metadata)
    return None if owner is None else (pod.metadata.namespace or "default", owner.kind, owner.name)


def spot_share(pod: Pod) -> int | None:
    """The percentage of its workload's pods that may be spot; None if there is no valid annotation."""
    match = _PERCENT.fullmatch(pod.metadata.annotations.get(names.SPOT_SHARE, "").strip())
    percent = int(match[1]) if match is not None else _ALL + 1
    return percent if percent <= _ALL and workload_key(pod) is not None else None


def spot_share_problem(pod: Pod) -> str:
    """Why the pod's annotation has no effect; "" if it has one, or the pod has no annotation."""
    text = pod.metadata.annotations.get(names.SPOT_SHARE)
    if text is None or spot_share(pod) is not None:
        return ""
    why = "the pod has no controller" if _PERCENT.fullmatch(text.strip()) else 'it must be a share from "0%" to "100%"'
    return f'annotation {names.SPOT_SHARE}: "{text}" has no effect: {why}'
