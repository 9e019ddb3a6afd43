"""Who asks, and what they may do: bearer tokens to users, users to verbs.

By default one administrator's token opens everything. A local world that proves least privilege brings its own rules.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from local.kubernetes.kinds import Kind


@dataclass(frozen=True)
class User:
    """An authenticated caller, as RBAC sees it."""

    name: str
    groups: tuple[str, ...] = ()


Authenticate = Callable[[str | None], User | None]
"""A bearer token, or None when there is none, to its user; no user is a 401."""

Authorize = Callable[[User, str, Kind, str, str], bool]
"""Whether the user may do the verb on the kind, in the namespace, to the name (both may be empty); else a 403."""

ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))


def single_token(token: str) -> Authenticate:
    """One token, the administrator's."""

    def authenticate(given: str | None) -> User | None:
        return ADMIN if given is not None and hmac.compare_digest(given.encode(), token.encode()) else None

    return authenticate


def kubeconfig(url: str, authority: str, token: str) -> str:
    """The YAML file by which kubectl finds and trusts the server."""
    named = "tenon-local"
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": named,
            "clusters": [
                {
                    "name": named,
                    "cluster": {
                        "server": url,
                        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
                    },
                }
            ],
            "users": [{"name": named, "user": {"token": token}}],
            "contexts": [{"name": named, "context": {"cluster": named, "user": named}}],
        }
    )
