"""What the bootstrap of every AMI family needs to join a node to its cluster: labels, taints, kubelet settings.

Nothing in it belongs to one NodeClaim, so that the NodeClaims of a launch group share a launch template.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.kubernetes import Taint
from shared.api.nodeclass import Kubelet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.cluster.connect import ClusterInfo

UNREGISTERED = Taint(key=labels.UNREGISTERED_TAINT, effect="NoExecute")
"""Keeps pods away until the node is registered and has its labels."""

_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")
_ALLOWED_PREFIXES = ("node.kubernetes.io", "kubelet.kubernetes.io")
_ALLOWED = frozenset(
    {
        labels.ARCH,
        labels.OS,
        labels.HOSTNAME,
        labels.ZONE,
        labels.REGION,
        *(alias for alias in labels.ALIASES if alias.startswith(("beta.kubernetes.io/", "failure-domain."))),
    }
)


class UserDataError(ValueError):
    """The class's ``spec.userData`` can't be merged; the message names the field and the problem."""


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """The inputs of user data. ``raid``: the instance store is striped for ephemeral storage."""

    cluster: ClusterInfo
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    kubelet: Kubelet | None = None
    user_data: str = ""
    raid: bool = False

    @property
    def settings(self) -> Kubelet:
        """The kubelet settings, empty if the class has none."""
        return self.kubelet or Kubelet()


def registrable(node_labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that a kubelet may set on its own node, in order of key.

    It doesn't start with others in Kubernetes' own domains (kubelet ``--node-labels``); these are added when the node
    is registered.
    """
    return {key: node_labels[key] for key in sorted(node_labels) if _registrable(key)}


def _registrable(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    if not any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS):
        return True
    return key in _ALLOWED or any(domain == p or domain.endswith(f".{p}") for p in _ALLOWED_PREFIXES)


def taint_text(taint: Taint) -> str:
    """A taint as the kubelet's flag and kubectl write it: ``key=value:effect``, ``key:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def registration_flags(bootstrap: Bootstrap) -> list[str]:
    """The kubelet's flags for labels and taints."""
    flags = []
    if node_labels := registrable(bootstrap.labels):
        flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in node_labels.items()))
    if bootstrap.taints:
        flags.append("--register-with-taints=" + ",".join(taint_text(t) for t in bootstrap.taints))
    return flags


def kubelet_flags(bootstrap: Bootstrap) -> list[str]:
    """The kubelet settings as flags, for bootstraps without a configuration file."""
    kubelet = bootstrap.settings
    flags = [
        f"--{name}={value}"
        for name, value in (
            ("max-pods", kubelet.max_pods),
            ("pods-per-core", kubelet.pods_per_core),
            ("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period),
            ("image-gc-high-threshold", kubelet.image_gc_high_threshold_percent),
            ("image-gc-low-threshold", kubelet.image_gc_low_threshold_percent),
        )
        if value is not None
    ]
    if kubelet.cpu_cfs_quota is not None:
        flags.append(f"--cpu-cfs-quota={str(kubelet.cpu_cfs_quota).lower()}")
    for name, values, sign in (
        ("system-reserved", kubelet.system_reserved, "="),
        ("kube-reserved", kubelet.kube_reserved, "="),
        ("eviction-hard", kubelet.eviction_hard, "<"),
        ("eviction-soft", kubelet.eviction_soft, "<"),
        ("eviction-soft-grace-period", kubelet.eviction_soft_grace_period, "="),
    ):
        if values:
            flags.append(f"--{name}=" + ",".join(f"{key}{sign}{values[key]}" for key in sorted(values)))
    return flags
