"""User data of Amazon Linux 2023: a NodeConfig for nodeadm, in a MIME archive with the user's own parts.

nodeadm merges several NodeConfigs in order, the later over the earlier; the user's stand after ours, so that his word
counts. Source: nodeadm's NodeConfig v1alpha1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from shared.ami_family import mime
from shared.ami_family.bootstrap import UserDataError, registration_flags

if TYPE_CHECKING:
    from shared.ami_family.bootstrap import Bootstrap

_NODE_CONFIG = "application/node.eks.aws"
_GROUP = "node.eks.aws/"


def render(boot: Bootstrap) -> str:
    """The user data.

    Raises:
        UserDataError: the user's is neither MIME, nor a shell script, nor a NodeConfig.
    """
    ours = yaml.safe_dump(_node_config(boot), sort_keys=False, width=2**16)
    return mime.write([mime.Part(_NODE_CONFIG, ours), *_users(boot.user_data)])


def _node_config(boot: Bootstrap) -> dict[str, Any]:
    cluster = boot.cluster
    kubelet: dict[str, Any] = {}
    if config := _kubelet_config(boot):
        kubelet["config"] = config
    if flags := registration_flags(boot):
        kubelet["flags"] = flags
    spec: dict[str, Any] = {
        "cluster": {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.certificate_authority,
            "cidr": cluster.service_cidr,
        },
        "kubelet": kubelet,
    }
    if boot.raid:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    return {"apiVersion": f"{_GROUP}v1alpha1", "kind": "NodeConfig", "spec": spec}


def _kubelet_config(boot: Bootstrap) -> dict[str, Any]:
    kubelet = boot.settings
    config = {
        "maxPods": kubelet.max_pods,
        "podsPerCore": kubelet.pods_per_core,
        "clusterDNS": kubelet.cluster_dns,
        "systemReserved": {k: str(v) for k, v in kubelet.system_reserved.items()},
        "kubeReserved": {k: str(v) for k, v in kubelet.kube_reserved.items()},
        "evictionHard": kubelet.eviction_hard,
        "evictionSoft": kubelet.eviction_soft,
        "evictionSoftGracePeriod": kubelet.eviction_soft_grace_period,
        "evictionMaxPodGracePeriod": kubelet.eviction_max_pod_grace_period,
        "imageGCHighThresholdPercent": kubelet.image_gc_high_threshold_percent,
        "imageGCLowThresholdPercent": kubelet.image_gc_low_threshold_percent,
        "cpuCFSQuota": kubelet.cpu_cfs_quota,
    }
    return {name: value for name, value in config.items() if value is not None and value not in ({}, [])}


def _users(user_data: str) -> list[mime.Part]:
    text = user_data.strip()
    if not text:
        return []
    if mime.is_mime(text):
        return mime.parse(text)
    if text.startswith("#!"):
        return [mime.Part(mime.SHELL, text)]
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        raise UserDataError(f"spec.userData is no MIME archive, shell script or NodeConfig: {_place(error)}") from error
    if documents and all(isinstance(d, dict) and str(d.get("apiVersion", "")).startswith(_GROUP) for d in documents):
        return [mime.Part(_NODE_CONFIG, text)]
    raise UserDataError(
        "spec.userData is no MIME archive (MIME-Version: …), shell script (#!…) or NodeConfig (node.eks.aws/v1alpha1)"
    )


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"not YAML at line {mark.line + 1}" if mark is not None else "not YAML"
