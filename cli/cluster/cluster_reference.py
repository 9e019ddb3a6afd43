"""The EKS cluster that a command addresses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClusterReference:
    """The kubeconfig's context, and the cluster's name and Region on AWS; each may be empty."""

    context: str = ""
    cluster: str = ""
    region: str = ""
