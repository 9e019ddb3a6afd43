"""AL2023 user data: nodeadm's NodeConfig documents, merged in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubelets.kubelet_configuration import (
    JoinError,
    KubeletConfiguration,
    check_cluster,
    flag_values,
    integer,
    with_flags,
)
from shared.api.yaml_documents import reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.cluster.connect import ClusterInfo

API_VERSIONS = ("node.eks.aws/v1alpha1", "node.eks.aws/v1")


def looks_like(text: str) -> bool:
    """Whether the text is a NodeConfig."""
    return "kind: NodeConfig" in text


def read(documents: Sequence[str], cluster: ClusterInfo) -> KubeletConfiguration:
    """The configuration from all documents. All four attributes of the cluster are required.

    Raises:
        JoinError: nodeadm refuses a document, or it is for another cluster.
    """
    merged: dict[str, Any] = {}
    for document in documents:
        merged = _merge(merged, _spec(document))
    node_cluster = _map(merged, "cluster")
    check_cluster(
        cluster,
        name=str(node_cluster.get("name") or ""),
        endpoint=str(node_cluster.get("apiServerEndpoint") or ""),
        authority=str(node_cluster.get("certificateAuthority") or ""),
        cidr=str(node_cluster.get("cidr") or ""),
    )
    kubelet = _map(merged, "kubelet")
    config = _map(kubelet, "config")
    storage = _map(_map(merged, "instance"), "localStorage")
    configuration = KubeletConfiguration(
        taints=tuple(_taint(taint) for taint in config.get("registerWithTaints") or []),
        max_pods=integer("maxPods", config["maxPods"]) if config.get("maxPods") is not None else None,
        pods_per_core=integer("podsPerCore", config["podsPerCore"]) if config.get("podsPerCore") is not None else None,
        kube_reserved=_string_map(config, "kubeReserved"),
        system_reserved=_string_map(config, "systemReserved"),
        eviction_hard=_string_map(config, "evictionHard"),
        raid0=storage.get("strategy") == "RAID0",
    )
    return with_flags(configuration, flag_values([str(flag) for flag in kubelet.get("flags") or []]))


def _spec(document: str) -> dict[str, Any]:
    try:
        loaded = reader.document(document)
    except reader.YamlError as error:
        raise JoinError(f"the NodeConfig is invalid: {error}") from error
    if (
        not isinstance(loaded, dict)
        or loaded.get("kind") != "NodeConfig"
        or loaded.get("apiVersion") not in API_VERSIONS
    ):
        raise JoinError(f"nodeadm accepts only kind NodeConfig of {' or '.join(API_VERSIONS)}")
    return _map(loaded, "spec")


def _merge(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Merge maps, append flags, and replace all other values."""
    merged = dict(a)
    for key, value in b.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merge(before, value)
        elif key == "flags" and isinstance(before, list) and isinstance(value, list):
            merged[key] = [*before, *value]
        else:
            merged[key] = value
    return merged


def _map(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name) or {}
    if not isinstance(value, dict):
        raise JoinError(f"the NodeConfig is invalid: {name} is not a map")
    return value


def _string_map(config: dict[str, Any], name: str) -> dict[str, str]:
    return {key: str(value) for key, value in _map(config, name).items()}


def _taint(raw: object) -> dict[str, str]:
    if not isinstance(raw, dict) or not raw.get("key") or not raw.get("effect"):
        raise JoinError(f"the kubelet exits: registerWithTaints has {raw!r}, which is not a taint")
    return {name: str(raw[name]) for name in ("key", "value", "effect") if raw.get(name)}
