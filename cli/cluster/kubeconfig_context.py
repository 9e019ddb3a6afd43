"""The EKS cluster that options or the kubeconfig's context name."""

from __future__ import annotations

import os
import re
from typing import Any

from kubernetes.config import ConfigException, list_kube_config_contexts

from cli.cluster import local_world, regions
from cli.cluster.cluster_reference import ClusterReference
from cli.errors import UsageError
from shared.cluster.kubeconfig import MALFORMED

NO_CLUSTER_NAME = "the kubeconfig's context doesn't name the EKS cluster; give --cluster NAME"
_EKS_ARN = re.compile(r"arn:[\w-]+:eks:(?P<region>[\w-]+):\d+:cluster/(?P<name>[\w-]+)")
_EKSCTL_NAME = re.compile(r"(?P<name>[\w-]+)\.(?P<region>[\w-]+)\.eksctl\.io")


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


def resolve_named(reference: ClusterReference) -> ClusterReference:
    """The same, completed as by :func:`resolve`; it names a cluster.

    Raises:
        UsageError: neither options nor the context name the cluster, or the given Region doesn't exist.
    """
    resolved = resolve(reference)
    if not resolved.cluster:
        raise UsageError(NO_CLUSTER_NAME)
    return resolved


def context_names() -> list[str]:
    """The names of the kubeconfig's contexts; none if it can't be read."""
    try:
        contexts, _ = list_kube_config_contexts(config_file=os.environ.get("KUBECONFIG") or None)
    except (ConfigException, *MALFORMED):
        return []
    return [context["name"] for context in contexts]


def _context(name: str) -> dict[str, Any]:
    """The kubeconfig's context of that name, or the current one; empty if there is none."""
    try:
        contexts, current = list_kube_config_contexts(config_file=os.environ.get("KUBECONFIG") or None)
    except (ConfigException, *MALFORMED):
        return {}
    return next((c for c in contexts if c["name"] == name), (current or {}) if not name else {})
