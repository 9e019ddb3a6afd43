"""What a node must be told to join its cluster, whatever its AMI family; and what is wrong with a user's own data.

Nothing in here is of one claim alone, so that claims with the same launch share one template.
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
"""Keeps pods away until the node is known and carries its labels."""

_OWN_DOMAINS = ("kubernetes.io", "k8s.io")
_ALLOWED_PREFIXES = ("node.kubernetes.io", "kubelet.kubernetes.io")
_ALLOWED = frozenset(
    {
        labels.ARCH,
        labels.OS,
        labels.HOSTNAME,
        labels.ZONE,
        labels.REGION,
        *(old for old in labels.ALIASES if old.startswith(("beta.kubernetes.io/", "failure-domain."))),
    }
)


class UserDataError(ValueError):
    """The class's ``spec.userData`` can't be merged; the text names the field and what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """What user data is made of. ``raid``: the instance store is striped for pods' files."""

    cluster: ClusterInfo
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    kubelet: Kubelet | None = None
    user_data: str = ""
    raid: bool = False

    @property
    def settings(self) -> Kubelet:
        """The kubelet's settings, empty if the class has none."""
        return self.kubelet or Kubelet()


def registrable(node_labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that a kubelet may give its own node, in order of key.

    It refuses to start with others in Kubernetes' own domains (kubelet ``--node-labels``); those are added when the
    node is registered.
    """
    return {key: node_labels[key] for key in sorted(node_labels) if _registrable(key)}


def _registrable(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    if not any(domain == own or domain.endswith(f".{own}") for own in _OWN_DOMAINS):
        return True
    return key in _ALLOWED or any(domain == p or domain.endswith(f".{p}") for p in _ALLOWED_PREFIXES)


def taint_text(taint: Taint) -> str:
    """A taint as the kubelet's flag and kubectl write it: ``key=value:effect``, ``key:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def registration_flags(boot: Bootstrap) -> list[str]:
    """The kubelet's flags for labels and taints."""
    flags = []
    if own := registrable(boot.labels):
        flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in own.items()))
    if boot.taints:
        flags.append("--register-with-taints=" + ",".join(taint_text(t) for t in boot.taints))
    return flags


def kubelet_flags(boot: Bootstrap) -> list[str]:
    """The kubelet's settings as flags, for bootstraps that take no configuration file."""
    kubelet = boot.settings
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
