"""The object that a request is for: ``/apis/apps/v1/namespaces/x/deployments/web/scale`` taken apart.

An API server's paths are regular, so no table of routes is needed and custom kinds are served as soon as they exist.
Named after ``apiserver/pkg/endpoints/request``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.kubernetes.apiserver.http import Request

_VERBS = {"PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))


class RequestInfo(Struct):
    """A path taken apart; ``plural`` is empty when the path names a group version."""

    group: str
    version: str
    plural: str
    namespace: str | None
    """None when the path is not within a namespace."""
    name: str
    subresource: str


def parse(path: str) -> RequestInfo | None:
    """The path's parts, or None when it is not below ``/api/v1`` or ``/apis/group/version``."""
    match [part for part in path.split("/") if part]:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    namespace = None
    match rest:
        case ["namespaces", name, resource, *_] if resource not in _NAMESPACE_SUBRESOURCES:
            namespace, rest = name, rest[2:]
    plural, name, *below = [*rest, "", ""]
    return RequestInfo(group, version, plural, namespace, name, "/".join(part for part in below if part))


def verb_of(method: str, info: RequestInfo, query: Mapping[str, str]) -> str:
    """The API's verb for an HTTP method; empty for a method that no resource supports."""
    if method == "GET":
        if is_true(query.get("watch")):
            return "watch"
        return "get" if info.name else "list"
    if method == "DELETE" and not info.name:
        return "deletecollection"
    return _VERBS.get(method, "")


def with_info(request: Request, info: RequestInfo) -> Request:
    """The request with its verb and the object that it is for."""
    return with_fields(
        request,
        verb=verb_of(request.method, info, request.query),
        resource=f"{info.plural}.{info.group}" if info.group else info.plural,
        namespace=info.namespace or "",
        name=info.name,
        subresource=info.subresource,
    )


def is_true(value: str | None) -> bool:
    """Whether a query parameter is set: present, and neither ``false`` nor ``0``."""
    return value is not None and value.lower() not in {"false", "0"}
