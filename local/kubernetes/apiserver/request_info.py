"""Which object a path is for: ``/apis/apps/v1/namespaces/x/deployments/web/scale`` taken apart.

An API server's paths are regular, so this needs no table of routes; custom kinds are served the moment they exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_GET, _NAMED_BY_METHOD = "GET", {"PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))


@dataclass(frozen=True)
class Route:
    """A path taken apart; no plural means that it names a group version."""

    group: str
    version: str
    plural: str
    namespace: str | None
    """None when the path is not within a namespace."""
    name: str
    subresource: str


def parse(path: str) -> Route | None:
    """The route, or None when the path is not below ``/api/v1`` or ``/apis/group/version``."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 1:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 2:  # noqa: PLR2004 (apis, group, version)
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:  # noqa: PLR2004 (namespaces, name, plural)
        namespace, rest = rest[1], rest[2:]
    plural, name, *below = [*rest, "", ""]
    return Route(group, version, plural, namespace, name, "/".join(part for part in below if part))


def verb(method: str, route: Route, query: Mapping[str, str]) -> str:
    """The API's verb for a method there; empty for a method that no resource knows."""
    if method == _GET:
        if is_true(query.get("watch")):
            return "watch"
        return "get" if route.name else "list"
    if method == "DELETE" and not route.name:
        return "deletecollection"
    return _NAMED_BY_METHOD.get(method, "")


def is_true(value: str | None) -> bool:
    """How a query parameter says yes: present, and neither ``false`` nor ``0``."""
    return value is not None and value.lower() not in {"false", "0"}
