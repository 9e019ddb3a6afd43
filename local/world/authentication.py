"""Authentication of clients: functions by EKS tokens, the relay by its service account, people as administrator.

An EKS token is a presigned GetCallerIdentity URL with the cluster's name in a signed header. Its format is checked
here, not its signature, because the server is only reachable on this machine. The access key identifies the function,
and its role's access entry gives the groups; a role without an access entry is not authenticated.
"""

from __future__ import annotations

import base64
import binascii
import functools
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from infra.cluster.kubernetes import cluster_manifests
from local.aws import backends
from local.aws.iam_enforcement import access_key
from local.kubernetes.apiserver.auth import ADMIN, User
from local.kubernetes.apiserver.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.aws.stack import DeployedStack

_EKS_PREFIX = "k8s-aws-v1."
RELAY_TOKEN = "tenon-local-relay"  # noqa: S105 (opens a simulated cluster on this machine's loopback, nothing else)
RELAY = User(
    f"system:serviceaccount:{cluster_manifests.NAMESPACE}:{cluster_manifests.RELAY}",
    ("system:serviceaccounts", f"system:serviceaccounts:{cluster_manifests.NAMESPACE}", "system:authenticated"),
)


class TokenAuthenticator:
    """An :data:`~local.kubernetes.apiserver.auth.Authenticate`; functions are known after the deployment."""

    def __init__(self) -> None:
        self._functions: Mapping[str, User] = {}

    def register(self, deployed: DeployedStack) -> None:
        """Register each function whose role has an access entry, as a member of the entry's groups."""
        entries = deployed.kubernetes_groups()
        self._functions = {
            access_key(caller): User(
                f"arn:aws:sts::{backends.ACCOUNT}:assumed-role/{role}/{caller}",
                (*entries[role], "system:authenticated"),
            )
            for caller, role in deployed.role_names().items()
            if role in entries
        }

    def __call__(self, token: str | None) -> User | None:
        """The user of a token; None for an unknown token."""
        if token == ADMIN_TOKEN:
            return ADMIN
        if token == RELAY_TOKEN:
            return RELAY
        return self._functions.get(access_key_of(token)) if token is not None else None


@functools.lru_cache(maxsize=256)
def access_key_of(token: str) -> str:
    """The access key of a token of ``aws eks get-token``, a presigned STS URL that names its cluster; else ""."""
    if not token.startswith(_EKS_PREFIX):
        return ""
    encoded = token.removeprefix(_EKS_PREFIX)
    try:
        url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    query = parse_qs(urlsplit(url).query)
    scope = query.get("X-Amz-Credential", [""])[0].split("/")
    region = scope[2] if len(scope) > 2 else "us-east-1"  # noqa: PLR2004 - key/date/region/service/aws4_request
    is_valid = (
        urlsplit(url).hostname in ("sts.amazonaws.com", f"sts.{region}.amazonaws.com")
        and query.get("Action") == ["GetCallerIdentity"]
        and "x-k8s-aws-id" in query.get("X-Amz-SignedHeaders", [""])[0].split(";")
    )
    return scope[0] if is_valid else ""
