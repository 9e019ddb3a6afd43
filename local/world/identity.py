"""Who asks the embedded API: Tenon's functions by EKS's token, people and the relay by the administrator's.

EKS's token is a presigned GetCallerIdentity URL with the cluster's name in a signed header. Here its form is checked,
not its signature: nothing outside this process can reach the server.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from local.kubernetes.access import ADMIN, User
from local.kubernetes.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from local.kubernetes.access import Authenticate

_PREFIX = "k8s-aws-v1."
FUNCTIONS = User("tenon", ("system:masters", "system:authenticated"))


def authenticate() -> Authenticate:
    """Accepts the administrator's token and well-formed EKS tokens."""

    def user_of(token: str | None) -> User | None:
        if token == ADMIN_TOKEN:
            return ADMIN
        return FUNCTIONS if token is not None and is_eks_token(token) else None

    return user_of


def is_eks_token(token: str) -> bool:
    """Whether it is what ``aws eks get-token`` would make: a presigned URL for STS that names its cluster."""
    if not token.startswith(_PREFIX):
        return False
    encoded = token.removeprefix(_PREFIX)
    try:
        url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    query = parse_qs(urlsplit(url).query)
    signed = query.get("X-Amz-SignedHeaders", [""])[0].split(";")
    return (
        urlsplit(url).hostname in _hosts(query)
        and query.get("Action") == ["GetCallerIdentity"]
        and "x-k8s-aws-id" in signed
    )


def _hosts(query: dict[str, list[str]]) -> tuple[str, ...]:
    scope = query.get("X-Amz-Credential", [""])[0].split("/")
    region = scope[2] if len(scope) > 2 else "us-east-1"  # noqa: PLR2004 - key/date/region/service/aws4_request
    return "sts.amazonaws.com", f"sts.{region}.amazonaws.com"
