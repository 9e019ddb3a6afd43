"""EKS's description of a cluster: how to reach it, and what its nodes need to join."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClusterInfo:
    """One cluster. ``certificate_authority`` is base64 PEM as in DescribeCluster; ``version`` is like "1.34"."""

    name: str
    endpoint: str
    certificate_authority: str
    version: str
    service_cidr: str
    region: str
