"""Taints and tolerations: who may go where, and who must leave.

The rules are Kubernetes' own (``k8s.io/component-helpers/scheduling/corev1``), shared by scheduling, draining and the
local world's scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import kubernetes
from shared.api import labels as names
from shared.api.kubernetes import Taint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shared.api.kubernetes import Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"
EFFECTS = kubernetes.EFFECTS
DISRUPTED = Taint(key=names.DISRUPTED_TAINT, effect=NO_SCHEDULE)
"""Taint of nodes that are being disrupted or terminated: no new pods are scheduled to them."""
REBOOTING = Taint(key=names.REBOOTING_TAINT, effect=NO_SCHEDULE)
"""Taint of nodes that reboot in place: pods that were evicted from them wait until they are back."""
PODS_NOT_NOMINATED = Taint(key=names.PODS_NOT_NOMINATED_TAINT, effect=NO_SCHEDULE)
"""Startup taint of nodes until the pods that are planned for them are nominated."""
DELETION_CANDIDATE = Taint(key=names.DELETION_CANDIDATE_TAINT, effect=PREFER_NO_SCHEDULE)
"""Soft taint of nodes that could go: new pods fill other nodes first. Scheduling decisions ignore it."""
LESS_USED = Taint(key=names.LESS_USED_TAINT, effect=PREFER_NO_SCHEDULE)
"""Soft taint of the less used half of the nodes that stay, and of those that could go: kube-scheduler counts taints."""
SOFT_TAINTS = (LESS_USED, DELETION_CANDIDATE)
"""A node that new pods should avoid has the first, or both."""
_EPHEMERAL = frozenset(
    {
        names.NOT_READY_TAINT,
        "node.kubernetes.io/unreachable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        names.UNREGISTERED_TAINT,
    }
)
_EPHEMERAL_PREFIXES = (
    "readiness.k8s.io/",  # Node Readiness Controller
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
_EPHEMERAL_SUFFIX = "agent-not-ready"
"""Of CSI drivers (``ebs.csi.aws.com/agent-not-ready``) and Cilium (``node.cilium.io/agent-not-ready``)."""
REPELLING = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""The effects that keep a pod away; PreferNoSchedule only makes a node less liked."""


def tolerated_by(toleration: Toleration, taint: Taint) -> bool:
    """Whether this one toleration covers the taint.

    An empty effect covers every effect; an empty key needs Exists and covers every key. An unknown operator covers
    nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and bool(toleration.key) and toleration.value == taint.value


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of the tolerations covers the taint.

    >>> from shared.api.kubernetes import Toleration
    >>> gpu = Taint(key="nvidia.com/gpu", value="true", effect=NO_SCHEDULE)
    >>> tolerates([Toleration(key="nvidia.com/gpu", operator="Exists")], gpu)
    True
    >>> tolerates([Toleration(key="nvidia.com/gpu", value="false")], gpu)
    False
    """
    return any(tolerated_by(toleration, taint) for toleration in tolerations)


def untolerated(
    tolerations: Collection[Toleration], taints: Iterable[Taint], *, effects: Collection[str] = REPELLING
) -> Taint | None:
    """The first taint of these effects that no toleration covers, to be named to people; None: all are covered.

    >>> soft = Taint(key="spot", effect=PREFER_NO_SCHEDULE)
    >>> untolerated([], [soft]) is None
    True
    """
    return next((t for t in taints if t.effect in effects and not tolerates(tolerations, t)), None)


def tolerates_all(
    tolerations: Collection[Toleration], taints: Iterable[Taint], *, effects: Collection[str] = REPELLING
) -> bool:
    """Whether every taint of these effects is covered."""
    return untolerated(tolerations, taints, effects=effects) is None


def same_taint(a: Taint, b: Taint) -> bool:
    """Whether both are the same taint: key and effect; a node can't carry two of them, whatever their values."""
    return a.key == b.key and a.effect == b.effect


def is_ephemeral(taint: Taint) -> bool:
    """Whether a starting node has the taint and loses it without Tenon, though no NodePool names it as startup taint.

    Source: Karpenter's ``pkg/scheduling/taints.go``, Cluster Autoscaler's ``utils/taints``.

    >>> is_ephemeral(Taint(key="readiness.k8s.io/network", effect=NO_SCHEDULE))
    True
    """
    return taint.key in _EPHEMERAL or taint.key.startswith(_EPHEMERAL_PREFIXES) or taint.key.endswith(_EPHEMERAL_SUFFIX)


def equal(a: Taint, b: Taint) -> bool:
    """Whether both say the same: key, effect and value; when they were added is not part of it."""
    return same_taint(a, b) and a.value == b.value


def with_taint(taints: Iterable[Taint], taint: Taint) -> list[Taint]:
    """The taints with this one in place of the same one, or at the end; equal calls give equal lists.

    >>> before = [Taint(key="team", value="a", effect=NO_SCHEDULE)]
    >>> [format_taint(taint) for taint in with_taint(before, Taint(key="team", value="b", effect=NO_SCHEDULE))]
    ['team=b:NoSchedule']
    """
    before = list(taints)
    if any(same_taint(t, taint) for t in before):
        return [taint if same_taint(t, taint) and not equal(t, taint) else t for t in before]
    return [*before, taint]


def without_taint(taints: Iterable[Taint], key: str) -> list[Taint]:
    """The taints but for those of that key, whatever their effects."""
    return [taint for taint in taints if taint.key != key]


def without_soft_taints(taints: Iterable[Taint]) -> list[Taint]:
    """The taints but for Tenon's soft ones."""
    return [t for t in taints if not any(same_taint(t, soft) for soft in SOFT_TAINTS)]


def with_disrupted(taints: list[Taint]) -> list[Taint]:
    """The taints with ``karpenter.sh/disrupted:NoSchedule``."""
    return taints if any(same_taint(t, DISRUPTED) for t in taints) else [*taints, DISRUPTED]


def without_disrupted(taints: list[Taint]) -> list[Taint]:
    """The taints without ``karpenter.sh/disrupted:NoSchedule``."""
    return [t for t in taints if not same_taint(t, DISRUPTED)]


def format_taint(taint: Taint) -> str:
    """``key=value:effect`` as kubectl writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
