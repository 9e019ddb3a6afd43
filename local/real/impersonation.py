"""Requests made as another user, by the API's own impersonation, so that the cluster's authorizers judge that user."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes.client.configuration import Configuration

    from local.kubernetes.apiserver.auth import User

_USER: ContextVar[User | None] = ContextVar("user", default=None)


@contextlib.contextmanager
def impersonated(user: User | None) -> Iterator[None]:
    """While entered, requests of this context are made as the user; None: as the client's own."""
    token = _USER.set(user)
    try:
        yield
    finally:
        _USER.reset(token)


def headers(user: User) -> dict[str, str]:
    """The headers that make a request the user's.

    One group at most can be named, because a header is sent once; the API server adds ``system:authenticated``.
    """
    own = [group for group in user.groups if group != "system:authenticated"]
    return {"Impersonate-User": user.name, **({"Impersonate-Group": own[0]} if own else {})}


def allow(configuration: Configuration) -> None:
    """Let :func:`impersonated` apply to a client with this configuration."""
    own_settings = configuration.auth_settings

    def auth_settings() -> dict[str, dict[str, Any]]:
        settings: dict[str, dict[str, Any]] = dict(own_settings())
        user = _USER.get()
        if user is not None:
            settings |= {key: {"key": key, "value": value} for key, value in headers(user).items()}
        return settings

    configuration.auth_settings = auth_settings
