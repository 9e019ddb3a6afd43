"""The bearer token that EKS accepts: a presigned STS request, made without any call.

EKS honours a token for 15 minutes from its date (reference: the EKS authenticator). It is signed anew after 11, when
the credentials change, and is never used beyond their expiry, because the signature dies with them.
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

PREFIX = "k8s-aws-v1."
KEPT = timedelta(minutes=11)
_SIGNATURE_SECONDS = 60
_CLUSTER_HEADER = "x-k8s-aws-id"


class NoCredentialsError(RuntimeError):
    """There are no AWS credentials to sign with."""


class _Session(Protocol):
    def get_credentials(self) -> Credentials | None: ...


def presign(credentials: Credentials | ReadOnlyCredentials, *, region: str, cluster: str) -> str:
    """A token for the cluster of that *name* (not its id or ARN), dated now."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    request = AWSRequest(
        method="GET",
        url=f"https://sts.{region}.{suffix}/?Action=GetCallerIdentity&Version=2011-06-15",
        headers={_CLUSTER_HEADER: cluster},
    )
    SigV4QueryAuth(credentials, "sts", region, expires=_SIGNATURE_SECONDS).add_auth(request)
    return PREFIX + base64.urlsafe_b64encode(str(request.url).encode()).decode().rstrip("=")


class TokenSource:
    """Gives the current token; call it once a request."""

    def __init__(self, session: _Session, *, region: str, cluster: str, now: Callable[[], datetime]) -> None:
        self._session = session
        self._region = region
        self._cluster = cluster
        self._now = now
        self._token = ""
        self._access_key = ""
        self.until: datetime | None = None
        """When the token that is kept is replaced by a new one."""

    def __call__(self) -> str:
        """The token.

        Raises:
            NoCredentialsError: the session has no credentials.
        """
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError("no AWS credentials to sign the cluster's token with")
        frozen = credentials.get_frozen_credentials()
        now = self._now()
        if self.until is None or now >= self.until or frozen.access_key != self._access_key:
            self._token = presign(frozen, region=self._region, cluster=self._cluster)
            self._access_key = frozen.access_key or ""
            # botocore keeps the expiry of refreshable credentials in this attribute and offers no other way to it
            expiry: datetime | None = getattr(credentials, "_expiry_time", None)
            self.until = now + KEPT if expiry is None else min(now + KEPT, expiry)
        return self._token
