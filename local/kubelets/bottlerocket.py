"""Bottlerocket user data: the TOML table ``settings.kubernetes``."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from local.kubelets.kubelet_configuration import JoinError, KubeletConfiguration, check_cluster, integer, parse_taint

if TYPE_CHECKING:
    from shared.cluster.connect import ClusterInfo


def looks_like(text: str) -> bool:
    """Whether the text is TOML with Kubernetes settings."""
    return "[settings.kubernetes" in text or "[settings]" in text


def read(text: str, cluster: ClusterInfo) -> KubeletConfiguration:
    """The configuration; name, endpoint and authority are required.

    Raises:
        JoinError: the TOML is invalid, or for another cluster.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JoinError(f"Bottlerocket's settings are invalid TOML: {error}") from error
    kubernetes: dict[str, Any] = document.get("settings", {}).get("kubernetes", {})
    check_cluster(
        cluster,
        name=str(kubernetes.get("cluster-name", "")),
        endpoint=str(kubernetes.get("api-server", "")),
        authority=str(kubernetes.get("cluster-certificate", "")),
    )
    taints: list[dict[str, str]] = []
    for key, values in kubernetes.get("node-taints", {}).items():
        taints += [parse_taint(f"{key}={value}") for value in ([values] if isinstance(values, str) else values)]
    return KubeletConfiguration(
        labels={key: str(value) for key, value in kubernetes.get("node-labels", {}).items()},
        taints=tuple(taints),
        max_pods=integer("max-pods", kubernetes["max-pods"]) if "max-pods" in kubernetes else None,
        kube_reserved=_string_map(kubernetes, "kube-reserved"),
        system_reserved=_string_map(kubernetes, "system-reserved"),
        eviction_hard=_string_map(kubernetes, "eviction-hard"),
        reserves_by_interfaces=False,
        raid0="bootstrap-commands" in document.get("settings", {}),
    )


def _string_map(kubernetes: dict[str, Any], name: str) -> dict[str, str]:
    return {key: str(value) for key, value in kubernetes.get(name, {}).items()}
