"""The kubelet settings that matter to a cluster, from whichever bootstrap they came, and what a kubelet refuses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shared.api import labels as names

if TYPE_CHECKING:
    from shared.cluster.connect import ClusterInfo

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ALLOWED_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_ALLOWED = frozenset(
    {names.HOSTNAME, names.ZONE, names.REGION, names.INSTANCE_TYPE, names.OS, names.ARCH, *names.ALIASES}
)


class JoinError(Exception):
    """A machine that never becomes a node, and why."""


@dataclass(frozen=True, kw_only=True)
class KubeletConfiguration:
    """What the kubelet starts with; quantities as written.

    ``raid0`` gives pods the NVMe disks. ``reserves_by_interfaces``: memory is kept back for as many pods as the network
    interfaces allow, whatever ``max_pods`` says, as the bootstraps of AL2 and AL2023 do.
    """

    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    max_pods: int | None = None
    pods_per_core: int | None = None
    kube_reserved: dict[str, str] = field(default_factory=dict)
    system_reserved: dict[str, str] = field(default_factory=dict)
    eviction_hard: dict[str, str] = field(default_factory=dict)
    raid0: bool = False
    reserves_by_interfaces: bool = True

    def check(self) -> None:
        """Refuse what makes a kubelet exit at once.

        Raises:
            JoinError: labels that a node may not give itself (kubelet ``--node-labels``).
        """
        refused = [key for key in self.labels if not _may_label_itself(key)]
        if refused:
            raise JoinError(
                f"the kubelet exits: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: {refused}"
            )


def _may_label_itself(key: str) -> bool:
    prefix = key.partition("/")[0] if "/" in key else ""
    owned = any(prefix == domain or prefix.endswith(f".{domain}") for domain in ("kubernetes.io", "k8s.io"))
    if not owned or key in _ALLOWED:
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
    """Compare what the user data says of the cluster with what EKS says; None is not compared.

    Raises:
        JoinError: the first difference.
    """
    told = (
        ("cluster name", name, cluster.name),
        ("API server endpoint", endpoint, cluster.endpoint),
        ("certificate authority", authority, cluster.certificate_authority),
        ("service CIDR", cidr, cluster.service_cidr),
    )
    for what, given, actual in told:
        if given is not None and given != actual:
            shown = f'"{given[:60]}", not "{actual[:60]}"' if given else "missing"
            raise JoinError(f"the {what} in the user data is {shown}")


def flag_values(flags: list[str]) -> dict[str, str]:
    """Kubelet flags by name, ``--name=value`` or ``--name value``; a flag that comes again wins."""
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


def pairs(text: str) -> dict[str, str]:
    """``a=1,b=2`` as a map."""
    return {key.strip(): value for key, _, value in (item.partition("=") for item in text.split(",") if item.strip())}


def taint_of(text: str) -> dict[str, str]:
    """A taint of ``key=value:Effect``.

    Raises:
        JoinError: it is none; a kubelet exits on it.
    """
    rest, colon, effect = text.strip().rpartition(":")
    key, _, value = rest.partition("=")
    if not colon or not key or effect not in _EFFECTS:
        raise JoinError(f'the kubelet exits: "{text}" is not a taint (key=value:{"|".join(_EFFECTS)})')
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def with_flags(settings: KubeletConfiguration, flags: dict[str, str]) -> KubeletConfiguration:
    """The settings with those that flags give; flags win over configuration.

    Raises:
        JoinError: a flag's value can't be read.
    """
    taints = [taint_of(t) for t in flags.get("register-with-taints", "").split(",") if t.strip()]
    return replace(
        settings,
        labels={**settings.labels, **pairs(flags.get("node-labels", ""))},
        taints=(*settings.taints, *taints),
        max_pods=whole("max-pods", flags["max-pods"]) if "max-pods" in flags else settings.max_pods,
        pods_per_core=whole("pods-per-core", flags["pods-per-core"])
        if "pods-per-core" in flags
        else settings.pods_per_core,
        kube_reserved=pairs(flags["kube-reserved"]) if "kube-reserved" in flags else settings.kube_reserved,
        system_reserved=pairs(flags["system-reserved"]) if "system-reserved" in flags else settings.system_reserved,
        eviction_hard=_thresholds(flags["eviction-hard"]) if "eviction-hard" in flags else settings.eviction_hard,
    )


def whole(name: str, value: object) -> int:
    """A whole number of a setting.

    Raises:
        JoinError: it is none.
    """
    try:
        return int(str(value))
    except ValueError as error:
        raise JoinError(f'the kubelet exits: {name} is "{value}", not a whole number') from error


def _thresholds(text: str) -> dict[str, str]:
    """``memory.available<100Mi,nodefs.available<10%`` as a map."""
    return {key: value for key, _, value in (item.partition("<") for item in text.split(",")) if value}
