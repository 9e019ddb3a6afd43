"""What EKS says of a cluster: how to reach it, and what its nodes must know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClusterInfo:
    """Facts of one cluster. ``certificate_authority`` is base64 PEM as DescribeCluster gives it; version "1.34"."""

    name: str
    endpoint: str
    certificate_authority: str
    version: str
    service_cidr: str
    region: str
