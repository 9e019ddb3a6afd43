"""Authentication of bearer tokens and authorization of users.

By default, one token has all rights. Callers that need more pass their own functions, such as ``rbac.Rbac``.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable

from local.kubernetes.kinds import Kind
from shared.api.yaml_documents import writer
from shared.base.struct import Struct


class User(Struct):
    """An authenticated user and its groups."""

    name: str
    groups: tuple[str, ...] = ()


Authenticate = Callable[[str | None], User | None]
"""The user of a bearer token (None without one); no user means 401."""

Authorize = Callable[[User, str, Kind, str, str], bool]
"""Whether the user may do the verb on the kind, in the namespace, to the name (both may be empty); if not, 403."""

ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))


def single_token(token: str) -> Authenticate:
    """Authenticate one token, as the administrator."""

    def authenticate(presented: str | None) -> User | None:
        return ADMIN if presented is not None and hmac.compare_digest(presented.encode(), token.encode()) else None

    return authenticate


def kubeconfig(url: str, authority: str, token: str) -> str:
    """A kubeconfig file with which kubectl reaches and trusts the server. ``authority`` is a PEM text."""
    cluster = "tenon-local"
    return writer.text(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {
                        "server": url,
                        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
                    },
                }
            ],
            "users": [{"name": cluster, "user": {"token": token}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        }
    )
