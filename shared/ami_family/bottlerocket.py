"""User data of Bottlerocket: the user's TOML settings, merged with Tenon's.

Tenon's settings take precedence, because a node that joins another cluster is lost. Labels and taints are added to the
user's. Source: Bottlerocket's settings.kubernetes reference.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

from shared.ami_family.bootstrap import UserDataError, registrable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.ami_family.bootstrap import Bootstrap

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")


def render(bootstrap: Bootstrap) -> str:
    """The user data.

    Raises:
        UserDataError: the user's data is not TOML.
    """
    try:
        user_settings = tomllib.loads(bootstrap.user_data)
    except tomllib.TOMLDecodeError as error:
        raise UserDataError(f"spec.userData is not valid TOML, which Bottlerocket needs: {error}") from error
    return "\n".join(_write(_merge(user_settings, _settings(bootstrap)), ())) + "\n"


def _settings(bootstrap: Bootstrap) -> dict[str, Any]:
    kubelet = bootstrap.settings
    taints: dict[str, list[str]] = {}
    for taint in bootstrap.taints:
        taints.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    kubernetes = {
        "cluster-name": bootstrap.cluster.name,
        "api-server": bootstrap.cluster.endpoint,
        "cluster-certificate": bootstrap.cluster.certificate_authority,
        "cluster-dns-ip": kubelet.cluster_dns[0] if kubelet.cluster_dns else None,
        "max-pods": kubelet.max_pods,
        "image-gc-high-threshold-percent": kubelet.image_gc_high_threshold_percent,
        "image-gc-low-threshold-percent": kubelet.image_gc_low_threshold_percent,
        "cpu-cfs-quota-enforced": kubelet.cpu_cfs_quota,
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "eviction-hard": kubelet.eviction_hard,
        "eviction-soft": kubelet.eviction_soft,
        "eviction-soft-grace-period": kubelet.eviction_soft_grace_period,
        "kube-reserved": {k: str(v) for k, v in kubelet.kube_reserved.items()},
        "system-reserved": {k: str(v) for k, v in kubelet.system_reserved.items()},
        "node-labels": registrable(bootstrap.labels),
        "node-taints": taints,
    }
    settings: dict[str, Any] = {
        "kubernetes": {name: value for name, value in kubernetes.items() if value is not None and value != {}}
    }
    if bootstrap.raid:
        dirs = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
        settings["bootstrap-commands"] = {
            "000-mount-instance-storage": {
                "commands": [
                    ["apiclient", "ephemeral-storage", "init"],
                    ["apiclient", "ephemeral-storage", "bind", "--dirs", *dirs],
                ],
                "essential": True,
                "mode": "always",
            }
        }
    return {"settings": settings}


def _merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in overlay.items():
        existing = merged.get(key)
        both_tables = isinstance(value, dict) and isinstance(existing, dict)
        merged[key] = _merge(existing, value) if both_tables and existing is not None else value
    return merged


def _write(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table in TOML: its plain values, then its sub-tables, each with its full name."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if path and (plain or not table):
        yield f"[{'.'.join(_key(p) for p in path)}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _write(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE.match(key) else json.dumps(key, ensure_ascii=False)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(_value(v) for v in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    return str(value)
