"""The kubelet configuration that a cluster depends on, from any bootstrap, and the values that kubelets refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from shared.cluster.connect import ClusterInfo

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ALLOWED_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_ALLOWED_LABELS = frozenset(
    {labels.HOSTNAME, labels.ZONE, labels.REGION, labels.INSTANCE_TYPE, labels.OS, labels.ARCH, *labels.ALIASES}
)


class JoinError(Exception):
    """The reason why a machine does not become a node."""


class KubeletConfiguration(Struct, kw_only=True):
    """A kubelet's configuration; quantities are texts.

    ``raid0`` gives pods the NVMe disks. ``reserves_by_interfaces``: memory is reserved for the number of pods that the
    network interfaces allow, regardless of ``max_pods``, as the bootstraps of AL2 and AL2023 do.
    """

    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    max_pods: int | None = None
    pods_per_core: int | None = None
    kube_reserved: dict[str, str] = {}
    system_reserved: dict[str, str] = {}
    eviction_hard: dict[str, str] = {}
    raid0: bool = False
    reserves_by_interfaces: bool = True

    def check(self) -> None:
        """Refuse values with which a kubelet exits.

        Raises:
            JoinError: a label that kubelets can't set (``--node-labels``).
        """
        refused = [key for key in self.labels if not _is_allowed_label(key)]
        if refused:
            raise JoinError(
                f"the kubelet exits: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: {refused}"
            )


def _is_allowed_label(key: str) -> bool:
    prefix = key.partition("/")[0] if "/" in key else ""
    owned = any(prefix == domain or prefix.endswith(f".{domain}") for domain in ("kubernetes.io", "k8s.io"))
    if not owned or key in _ALLOWED_LABELS:
        return True
    return any(prefix == allowed or prefix.endswith(f".{allowed}") for allowed in _ALLOWED_PREFIXES)


def check_cluster(
    cluster: ClusterInfo,
    *,
    name: str,
    endpoint: str | None = None,
    authority: str | None = None,
    cidr: str | None = None,
) -> None:
    """Compare the user data's attributes of the cluster with EKS's; None is not compared.

    Raises:
        JoinError: the first difference.
    """
    attributes = (
        ("cluster name", name, cluster.name),
        ("API server endpoint", endpoint, cluster.endpoint),
        ("certificate authority", authority, cluster.certificate_authority),
        ("service CIDR", cidr, cluster.service_cidr),
    )
    for attribute, value, actual in attributes:
        if value is not None and value != actual:
            difference = f'"{value[:60]}", not "{actual[:60]}"' if value else "missing"
            raise JoinError(f"the {attribute} in the user data is {difference}")


def flag_values(flags: list[str]) -> dict[str, str]:
    """Kubelet flags by name, from ``--name=value`` or ``--name value``; the last one applies."""
    values: dict[str, str] = {}
    name = ""
    for flag in flags:
        if flag.startswith("--"):
            name, equals, value = flag[2:].partition("=")
            values[name] = value.strip("'\"")
            name = "" if equals else name
        elif name:
            values[name], name = flag, ""
    return values


def parse_pairs(text: str) -> dict[str, str]:
    """``a=1,b=2`` as a map."""
    return {key.strip(): value for key, _, value in (item.partition("=") for item in text.split(",") if item.strip())}


def parse_taint(text: str) -> dict[str, str]:
    """A taint from ``key=value:Effect``.

    Raises:
        JoinError: it is malformed, with which a kubelet exits.
    """
    rest, colon, effect = text.strip().rpartition(":")
    key, _, value = rest.partition("=")
    if not colon or not key or effect not in _EFFECTS:
        raise JoinError(f'the kubelet exits: "{text}" is not a taint (key=value:{"|".join(_EFFECTS)})')
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def with_flags(configuration: KubeletConfiguration, flags: dict[str, str]) -> KubeletConfiguration:
    """The configuration with the values of flags, which take precedence.

    Raises:
        JoinError: a flag's value is malformed.
    """
    taints = [parse_taint(t) for t in flags.get("register-with-taints", "").split(",") if t.strip()]
    return with_fields(
        configuration,
        labels={**configuration.labels, **parse_pairs(flags.get("node-labels", ""))},
        taints=(*configuration.taints, *taints),
        max_pods=integer("max-pods", flags["max-pods"]) if "max-pods" in flags else configuration.max_pods,
        pods_per_core=integer("pods-per-core", flags["pods-per-core"])
        if "pods-per-core" in flags
        else configuration.pods_per_core,
        kube_reserved=parse_pairs(flags["kube-reserved"]) if "kube-reserved" in flags else configuration.kube_reserved,
        system_reserved=parse_pairs(flags["system-reserved"])
        if "system-reserved" in flags
        else configuration.system_reserved,
        eviction_hard=_thresholds(flags["eviction-hard"]) if "eviction-hard" in flags else configuration.eviction_hard,
    )


def integer(name: str, value: object) -> int:
    """An integer value.

    Raises:
        JoinError: it is not an integer.
    """
    try:
        return int(str(value))
    except ValueError as error:
        raise JoinError(f'the kubelet exits: {name} is "{value}", not an integer') from error


def _thresholds(text: str) -> dict[str, str]:
    """``memory.available<100Mi,nodefs.available<10%`` as a map."""
    return {key: value for key, _, value in (item.partition("<") for item in text.split(",")) if value}
