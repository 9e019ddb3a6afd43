"""The client of a cluster by its name: DescribeCluster for endpoint and CA, a presigned STS request as token.

The client is cached while the process is warm; the cluster is described again every quarter of an hour, so that an
upgrade of the control plane is noticed.

The bearer token for EKS is created without a call. EKS accepts it for 15 minutes from its date (reference: the EKS
authenticator). It is signed again after 11 minutes and when the credentials change, and is never used after they
expire, because its signature expires with them.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import boto3
import msgspec
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from kubernetes.client.configuration import Configuration

from shared import aws, runtime
from shared.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from botocore.credentials import Credentials, ReadOnlyCredentials
    from mypy_boto3_eks import EKSClient
    from mypy_boto3_eks.type_defs import ClusterTypeDef

    from shared.settings import Settings

_DESCRIPTION_TTL = timedelta(minutes=15)
_ARN_REGION = 3
TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 (no secret: how every EKS token begins)
TOKEN_TTL = timedelta(minutes=11)
_SIGNATURE_SECONDS = 60
_CLUSTER_HEADER = "x-k8s-aws-id"


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster. ``certificate_authority`` is base64 PEM as in DescribeCluster; ``version`` is like "1.34"."""

    name: str
    endpoint: str
    certificate_authority: str
    version: str
    service_cidr: str
    region: str


class ClusterError(RuntimeError):
    """The cluster doesn't exist or isn't ready yet; the message says which."""


def describe(eks: EKSClient, name: str) -> ClusterInfo:
    """The cluster's description, at most a quarter of an hour old.

    Raises:
        ClusterError: the cluster doesn't exist, or has no endpoint yet.
        ClientError: EKS denied or throttled the call.
    """
    cached: dict[str, tuple[datetime, ClusterInfo]] = runtime.current().cached("cluster:facts", dict)
    now = runtime.current().now()
    if name in cached and now - cached[name][0] < _DESCRIPTION_TTL:
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
    )


def connect(settings: Settings) -> Client:
    """The client of the function's cluster, created once per process.

    Raises:
        ClusterError: the cluster doesn't exist, or has no endpoint yet.
    """
    return runtime.current().cached("cluster:client", lambda: _create_client(settings.cluster_name))


def _create_client(name: str) -> Client:
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
    """A client of any API server; ``authority`` is PEM, ``token`` is called before each request."""
    return Client(configuration(endpoint, authority, token))


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


class NoCredentialsError(RuntimeError):
    """There are no AWS credentials to sign with."""


class _Session(Protocol):
    def get_credentials(self) -> Credentials | None: ...


def presign(credentials: Credentials | ReadOnlyCredentials, *, region: str, cluster: str) -> str:
    """A token for the cluster with that *name* (not id or ARN), dated now."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    request = AWSRequest(
        method="GET",
        url=f"https://sts.{region}.{suffix}/?Action=GetCallerIdentity&Version=2011-06-15",
        headers={_CLUSTER_HEADER: cluster},
    )
    SigV4QueryAuth(credentials, "sts", region, expires=_SIGNATURE_SECONDS).add_auth(request)
    return TOKEN_PREFIX + base64.urlsafe_b64encode(str(request.url).encode()).decode().rstrip("=")


class TokenSource:
    """Returns the current token; call it for each request."""

    def __init__(self, session: _Session, *, region: str, cluster: str, now: Callable[[], datetime]) -> None:
        self._session = session
        self._region = region
        self._cluster = cluster
        self._now = now
        self._token = ""
        self._access_key = ""
        self.until: datetime | None = None
        """When the cached token is replaced."""

    def __call__(self) -> str:
        """The token.

        Raises:
            NoCredentialsError: the session has no credentials.
        """
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError("no AWS credentials to sign the cluster's token")
        frozen = credentials.get_frozen_credentials()
        now = self._now()
        if self.until is None or now >= self.until or frozen.access_key != self._access_key:
            self._token = presign(frozen, region=self._region, cluster=self._cluster)
            self._access_key = frozen.access_key or ""
            # botocore has no public attribute for the expiry of refreshable credentials
            expiry: datetime | None = getattr(credentials, "_expiry_time", None)
            self.until = now + TOKEN_TTL if expiry is None else min(now + TOKEN_TTL, expiry)
        return self._token
