"""The bearer token for EKS: a presigned STS request, created without a call.

EKS accepts it for 15 minutes from its date (reference: the EKS authenticator). It is signed again after 11 minutes and
when the credentials change, and is never used after they expire, because its signature expires with them. The module
needs botocore only, which Lambda's runtime has.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from botocore.credentials import Credentials, ReadOnlyCredentials

TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 (no secret: how every EKS token begins)
TOKEN_TTL = timedelta(minutes=11)
_SIGNATURE_SECONDS = 60
_CLUSTER_HEADER = "x-k8s-aws-id"


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
