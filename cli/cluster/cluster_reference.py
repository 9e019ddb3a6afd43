"""The EKS cluster that a command addresses: by options, or by the kubeconfig's context."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from cli.cluster import local_world, regions

_EKS_ARN = re.compile(r"arn:[\w-]+:eks:(?P<region>[\w-]+):\d+:cluster/(?P<name>[\w-]+)")
_EKSCTL_NAME = re.compile(r"(?P<name>[\w-]+)\.(?P<region>[\w-]+)\.eksctl\.io")


@dataclass(frozen=True, kw_only=True)
class ClusterReference:
    """The kubeconfig's context, and the cluster's name and Region on AWS; each may be empty."""

    context: str = ""
    cluster: str = ""
    region: str = ""


def resolve(reference: ClusterReference) -> ClusterReference:
    """The same with name and Region completed from the context, as `aws eks update-kubeconfig` and eksctl name it.

    If it is a cluster of `tenon demo --keep`, this process calls its AWS from now on.

    Raises:
        UsageError: the given Region doesn't exist.
    """
    if reference.region:
        regions.existing(reference.region)
    context = _context(reference.context)
    local_world.use(context)
    text = f"{context.get('context', {}).get('cluster', '')} {context.get('name', '')}"
    match = _EKS_ARN.search(text) or _EKSCTL_NAME.search(text)
    if match is None:
        return reference
    return ClusterReference(
        context=reference.context,
        cluster=reference.cluster or match["name"],
        region=reference.region or match["region"],
    )


def _context(name: str) -> dict[str, Any]:
    """The kubeconfig's context of that name, or the current one; empty if there is none."""
    from kubernetes.config import ConfigException, list_kube_config_contexts  # noqa: PLC0415 (slow to import)

    from shared.cluster.kubeconfig import MALFORMED  # noqa: PLC0415 (the same)

    try:
        contexts, current = list_kube_config_contexts(config_file=os.environ.get("KUBECONFIG") or None)
    except (ConfigException, *MALFORMED):
        return {}
    return next((c for c in contexts if c["name"] == name), (current or {}) if not name else {})
