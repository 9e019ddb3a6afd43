"""User data of Amazon Linux 2023: a NodeConfig for nodeadm, in a MIME archive with the user's own parts.

nodeadm merges NodeConfigs in order, later ones over earlier ones. The user's are after ours, so the user's settings
take precedence. Source: nodeadm's NodeConfig v1alpha1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.ami_family.bootstrap import SHELL, Part, UserDataError, is_mime, parse_mime, registration_flags, write_mime
from shared.api.kubelet import without_nulls
from shared.api.yaml_documents import reader, writer

if TYPE_CHECKING:
    from shared.ami_family.bootstrap import Bootstrap

_NODE_CONFIG = "application/node.eks.aws"
_GROUP = "node.eks.aws/"


def render(bootstrap: Bootstrap) -> str:
    """The user data.

    Raises:
        UserDataError: the user's data is not MIME, a shell script or a NodeConfig.
    """
    node_config = writer.text(_node_config(bootstrap), width=2**16)
    return write_mime([Part(_NODE_CONFIG, node_config), *_user_parts(bootstrap.user_data)])


def _node_config(bootstrap: Bootstrap) -> dict[str, Any]:
    cluster = bootstrap.cluster
    kubelet: dict[str, Any] = {}
    if config := _kubelet_config(bootstrap):
        kubelet["config"] = config
    if flags := registration_flags(bootstrap):
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
    if bootstrap.raid:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    return {"apiVersion": f"{_GROUP}v1alpha1", "kind": "NodeConfig", "spec": spec}


def _kubelet_config(bootstrap: Bootstrap) -> dict[str, Any]:
    if not bootstrap.kubelet:
        return {}
    kubelet = bootstrap.settings
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
    return {
        **{name: value for name, value in config.items() if value is not None and value not in ({}, [])},
        **{name: value for name, value in sorted(without_nulls(dict(bootstrap.kubelet)).items()) if name not in config},
    }


def _user_parts(raw: str) -> list[Part]:
    text = raw.strip()
    if not text:
        return []
    if is_mime(text):
        return parse_mime(text)
    if text.startswith("#!"):
        return [Part(SHELL, text)]
    try:
        documents = reader.documents(text)
    except reader.YamlError as error:
        raise UserDataError(f"spec.userData is not MIME, a shell script or a NodeConfig: not YAML: {error}") from error
    if documents and all(isinstance(d, dict) and str(d.get("apiVersion", "")).startswith(_GROUP) for d in documents):
        return [Part(_NODE_CONFIG, text)]
    raise UserDataError(
        "spec.userData is not MIME (MIME-Version: …), a shell script (#!…) or a NodeConfig (node.eks.aws/v1alpha1)"
    )
