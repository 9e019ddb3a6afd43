"""The Kubernetes version whose images a node class selects: the control plane's, or an older one by annotation.

Before EKS rolls a control plane back, the nodes must have its older version: a kubelet may be up to three minor
versions older than the API server, and never newer (Kubernetes' version skew policy). The annotation gives new nodes
the older version, and the others follow by drift. One that can't be followed has no effect: the control plane's version
is always right.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.ami_family.families import alias
from shared.api.labels import KUBERNETES_VERSION
from shared.api.meta import condition, with_condition
from shared.api.nodeclass import KUBERNETES_VERSION_HELD
from shared.base.struct import Struct
from shared.cluster.connect import DESCRIPTION_TTL, RECENT_TTL

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.meta import Condition
    from shared.api.nodeclass import EC2NodeClass

MAX_OLDER = 3
"""How many minor versions a kubelet may be older than the API server."""

_VERSION = re.compile(r"1\.(\d{1,3})")
_KEPT = DESCRIPTION_TTL + 2 * RECENT_TTL
"""How long the condition stays after the annotation. Until then a process that has no reason to look may remember the
newer control plane, and would launch nodes that are newer than the present one."""


class HeldVersion(Struct, kw_only=True):
    """What an annotation means. ``version`` is that of the class's images; ``is_held``: it is the annotation's."""

    version: str
    is_held: bool
    reason: str
    message: str


def held_version(node_class: EC2NodeClass, cluster_version: str) -> HeldVersion | None:
    """What the class's annotation means on a control plane of the version ("1.37"); None without one."""
    text = node_class.metadata.annotations.get(KUBERNETES_VERSION, "").strip()
    if not text:
        return None
    annotation = f'annotation {KUBERNETES_VERSION}: "{text}"'
    if (problem := _no_effect(node_class, text, cluster_version)) is not None:
        reason, why = problem
        message = f"{annotation} has no effect: {why}"
        return HeldVersion(version=cluster_version, is_held=False, reason=reason, message=message)
    message = f"{annotation} selects the images of Kubernetes {text}; the control plane has {cluster_version}"
    return HeldVersion(version=text, is_held=True, reason="OlderThanControlPlane", message=message)


def _no_effect(node_class: EC2NodeClass, text: str, cluster_version: str) -> tuple[str, str] | None:
    """Why the annotation's version has no effect (reason, message); None if it has."""
    wanted, current = _minor(text), _minor(cluster_version)
    if wanted is None or current is None:
        return "Invalid", 'it must be a minor version, such as "1.36"'
    control_plane = f"the control plane, which has {cluster_version}"
    if wanted > current:
        return "NewerThanControlPlane", f"nodes may not be newer than {control_plane}"
    if wanted < current - MAX_OLDER:
        return "TooOld", f"nodes may be {MAX_OLDER} minor versions older than {control_plane}"
    if not follows_version(node_class):
        return (
            "ImagesNotByVersion",
            "spec.amiSelectorTerms select images by other than an alias; let them select others",
        )
    if wanted == current:
        return "ControlPlaneReached", "the control plane has this version; remove it"
    return None


def follows_version(node_class: EC2NodeClass) -> bool:
    """Whether the class selects its images by the Kubernetes version: by an alias, or by its family alone."""
    return not node_class.spec.ami_selector_terms or alias(node_class.spec) is not None


def images_version(node_class: EC2NodeClass, cluster_version: str) -> str:
    """The Kubernetes version of the class's images."""
    held = held_version(node_class, cluster_version)
    return held.version if held is not None else cluster_version


def with_held_condition(
    conditions: list[Condition], node_class: EC2NodeClass, cluster_version: str, *, now: datetime
) -> list[Condition]:
    """The class's conditions with KubernetesVersionHeld, which stays for a while after the annotation is gone."""
    held = held_version(node_class, cluster_version)
    if held is not None:
        reason, message = held.reason, held.message
        return with_condition(
            conditions,
            KUBERNETES_VERSION_HELD,
            status=held.is_held,
            reason=reason,
            message=message,
            now=now,
            generation=node_class.metadata.generation,
        )
    before = condition(conditions, KUBERNETES_VERSION_HELD)
    if before is None:
        return conditions
    since = before.last_transition_time
    if before.status != "True" and (since is None or now - since > _KEPT):
        return [c for c in conditions if c.type != KUBERNETES_VERSION_HELD]
    generation = node_class.metadata.generation
    return with_condition(
        conditions, KUBERNETES_VERSION_HELD, status=False, reason="Released", now=now, generation=generation
    )


def _minor(version: str) -> int | None:
    match = _VERSION.fullmatch(version)
    return int(match[1]) if match else None
