"""The client of a cluster by its name: DescribeCluster for endpoint and CA, a presigned STS request as token.

The client is cached while the process is warm; the cluster is described again every quarter of an hour, so that an
upgrade of the control plane is noticed.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING

import boto3
from botocore.exceptions import ClientError
from kubernetes.client.configuration import Configuration

from shared.base import aws, runtime
from shared.base.struct import Struct
from shared.cluster.client import ATTEMPTS, Client
from shared.cluster.eks_token import TokenSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mypy_boto3_eks import EKSClient
    from mypy_boto3_eks.type_defs import ClusterTypeDef

    from shared.base.settings import Settings

DESCRIPTION_TTL = timedelta(minutes=15)
RECENT_TTL = timedelta(minutes=1)
"""How old the description of a cluster may be, and where a recent one is needed."""
_ARN_REGION = 3


class ClusterInfo(Struct, kw_only=True):
    """A cluster. ``certificate_authority`` is base64 PEM as in DescribeCluster; ``version`` is like "1.34"."""

    name: str
    endpoint: str
    certificate_authority: str
    version: str
    service_cidr: str
    region: str
    arn: str = ""

    @property
    def is_ipv6(self) -> bool:
        """Whether pods have IPv6 addresses."""
        return ":" in self.service_cidr


class ClusterError(RuntimeError):
    """The cluster doesn't exist or isn't ready yet; the message says which."""


def describe(eks: EKSClient, name: str, *, recent: bool = False) -> ClusterInfo:
    """The cluster's description, at most a quarter of an hour old; ``recent``: at most a minute.

    Raises:
        ClusterError: the cluster doesn't exist, or has no endpoint yet.
        ClientError: EKS denied or throttled the call.
    """
    process = runtime.current()
    cached: dict[str, tuple[datetime, ClusterInfo]] = process.cached("cluster:facts", dict)
    now = process.now()
    if name in cached and now - cached[name][0] < (RECENT_TTL if recent else DESCRIPTION_TTL):
        return cached[name][1]
    try:
        description = eks.describe_cluster(name=name)["cluster"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            raise ClusterError(f'no EKS cluster is named "{name}" in this account and Region') from error
        raise
    info = _info(name, description)
    cached[name] = (now, info)
    return info


def _info(name: str, description: ClusterTypeDef) -> ClusterInfo:
    endpoint = description.get("endpoint") or ""
    authority = description.get("certificateAuthority", {}).get("data") or ""
    if not endpoint or not authority:
        raise ClusterError(
            f'cluster "{name}" has no endpoint yet (its status is {description.get("status", "unknown")})'
        )
    network = description.get("kubernetesNetworkConfig", {})
    return ClusterInfo(
        name=name,
        endpoint=endpoint,
        certificate_authority=authority,
        version=description.get("version", ""),
        service_cidr=network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr") or "",
        region=description.get("arn", "").split(":")[_ARN_REGION]
        if description.get("arn", "").count(":") > _ARN_REGION
        else "",
        arn=description.get("arn", ""),
    )


def connect(settings: Settings, *, attempts: int = ATTEMPTS) -> Client:
    """The client of the function's cluster, created once per process. ``attempts`` are those of a request.

    Raises:
        ClusterError: the cluster doesn't exist, or has no endpoint yet.
    """
    return runtime.cached("cluster:client", lambda: _create_client(settings.cluster_name, attempts))


def _create_client(name: str, attempts: int) -> Client:
    info = describe(aws.eks(), name)
    session = boto3.Session()
    source = TokenSource(
        session,
        region=info.region or session.region_name or "us-east-1",
        cluster=name,
        now=runtime.now,
    )
    authority = base64.b64decode(info.certificate_authority).decode()
    return to_server(info.endpoint, authority, source, attempts=attempts)


def to_server(endpoint: str, authority: str, token: Callable[[], str], *, attempts: int = ATTEMPTS) -> Client:
    """A client of any API server; ``authority`` is PEM, ``token`` is called before each request."""
    return Client(configuration(endpoint, authority, token), attempts=attempts)


def configuration(endpoint: str, authority: str, token: Callable[[], str]) -> Configuration:
    """The official client's configuration for a server; ``authority`` is PEM."""
    result = Configuration(host=endpoint, ca_cert_data=authority)
    result.api_key_prefix["authorization"] = "Bearer"
    # The hook below sets it; the official client sends the header only if the key is present.
    result.api_key["authorization"] = ""

    def refresh(config: Configuration) -> None:
        config.api_key["authorization"] = token()

    result.refresh_api_key_hook = refresh
    return result
