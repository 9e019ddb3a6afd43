"""From a cluster's name to a client: DescribeCluster for endpoint and CA, STS for the token.

Both are kept as long as the process is warm; the cluster's facts are read anew every quarter of an hour, so that an
upgrade of the control plane is noticed.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING

import boto3
from botocore.exceptions import ClientError
from kubernetes.client.configuration import Configuration

from shared import aws, runtime
from shared.cluster.client import Client
from shared.cluster.info import ClusterInfo
from shared.cluster.token import TokenSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mypy_boto3_eks import EKSClient
    from mypy_boto3_eks.type_defs import ClusterTypeDef

    from shared.settings import Settings

_FACTS_KEPT = timedelta(minutes=15)
_ARN_REGION = 3


class ClusterError(RuntimeError):
    """The cluster isn't there, or isn't up yet; the message says which."""


def describe(eks: EKSClient, name: str) -> ClusterInfo:
    """The facts of a cluster, at most a quarter of an hour old.

    Raises:
        ClusterError: no such cluster, or one without an endpoint yet.
        ClientError: EKS refuses or throttles.
    """
    kept: dict[str, tuple[datetime, ClusterInfo]] = runtime.current().cached("cluster:facts", dict)
    now = runtime.current().now()
    if name in kept and now - kept[name][0] < _FACTS_KEPT:
        return kept[name][1]
    try:
        found = eks.describe_cluster(name=name)["cluster"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            raise ClusterError(f'no EKS cluster is named "{name}" in this account and Region') from error
        raise
    info = _info(name, found)
    kept[name] = (now, info)
    return info


def _info(name: str, found: ClusterTypeDef) -> ClusterInfo:
    endpoint = found.get("endpoint") or ""
    authority = found.get("certificateAuthority", {}).get("data") or ""
    if not endpoint or not authority:
        raise ClusterError(f'cluster "{name}" has no endpoint yet (its status is {found.get("status", "unknown")})')
    network = found.get("kubernetesNetworkConfig", {})
    return ClusterInfo(
        name=name,
        endpoint=endpoint,
        certificate_authority=authority,
        version=found.get("version", ""),
        service_cidr=network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr") or "",
        region=found.get("arn", "").split(":")[_ARN_REGION] if found.get("arn", "").count(":") > _ARN_REGION else "",
    )


def connect(settings: Settings) -> Client:
    """The client of the function's cluster, made once a process.

    Raises:
        ClusterError: no such cluster, or one without an endpoint yet.
    """
    return runtime.current().cached("cluster:client", lambda: _to(settings.cluster_name))


def _to(name: str) -> Client:
    info = describe(aws.eks(), name)
    session = boto3.Session()
    source = TokenSource(
        session,
        region=info.region or session.region_name or "us-east-1",
        cluster=name,
        now=lambda: runtime.current().now(),
    )
    return to_server(info.endpoint, base64.b64decode(info.certificate_authority).decode(), source)


def to_server(endpoint: str, authority: str, token: Callable[[], str]) -> Client:
    """A client of any API server; ``authority`` is PEM, ``token`` is asked before each request."""
    return Client(configuration(endpoint, authority, token))


def configuration(endpoint: str, authority: str, token: Callable[[], str]) -> Configuration:
    """The official client's configuration for a server; ``authority`` is PEM."""
    made = Configuration(host=endpoint, ca_cert_data=authority)
    made.api_key_prefix["authorization"] = "Bearer"
    # the hook below fills it in; its presence is what makes the official client send the header
    made.api_key["authorization"] = ""

    def refresh(of: Configuration) -> None:
        of.api_key["authorization"] = token()

    made.refresh_api_key_hook = refresh
    return made
