"""The Kubernetes API over a store: one request in, one response out, without sockets.

A request is authenticated, resolved to a kind, authorized, and handed to its verb's handler.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import errors
from local.kubernetes.apiserver import discovery, openapi, request_info
from local.kubernetes.apiserver.http import Request, Response
from local.kubernetes.apiserver.negotiation import json_response
from local.kubernetes.apiserver.read_handlers import ReadHandlers
from local.kubernetes.apiserver.request_parameters import object_body
from local.kubernetes.apiserver.write_handlers import WriteHandlers
from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from local.kubernetes.apiserver.auth import Authenticate, Authorize, User
    from local.kubernetes.apiserver.request_info import RequestInfo
    from local.kubernetes.kinds import Kind
    from local.kubernetes.registry.store import Store

Intercept = Callable[[Request], Response | None]
"""Sees every request before it is carried out; a response of its own replaces the API's."""

_ANONYMOUS_PATHS = frozenset(("/healthz", "/livez", "/readyz", "/version"))


class Api:
    """Answers requests from a store."""

    def __init__(
        self,
        store: Store,
        *,
        authenticate: Authenticate,
        authorize: Authorize | None = None,
        intercept: Intercept | None = None,
    ) -> None:
        self.store = store
        self.authenticate = authenticate
        self.authorize = authorize
        self.intercept = intercept
        self.version = discovery.VERSION
        """The minor version that it states."""
        self._reads = ReadHandlers(store)
        writes = WriteHandlers(store)
        self._handlers: dict[str, Callable[[Request, RequestInfo, Kind], Response]] = {
            "get": self._reads.get,
            "list": self._reads.list,
            "watch": self._reads.watch,
            "create": writes.create,
            "update": writes.update,
            "patch": writes.patch,
            "delete": writes.delete,
            "deletecollection": writes.delete_collection,
        }

    def respond(self, request: Request) -> Response:
        """The response; an API error is a response, too."""
        info = request_info.parse(request.path)
        if info is not None and info.plural:
            request = request_info.with_info(request, info)
        try:
            if self.intercept is not None and (intercepted := self.intercept(request)) is not None:
                return intercepted
            return self._handle(request, info)
        except ApiError as error:
            return error_response(error)

    def stop_watches(self) -> None:
        """End every running watch; clients start them again from the last version they saw."""
        self._reads.stop_watches()

    def _handle(self, request: Request, info: RequestInfo | None) -> Response:
        if request.path in _ANONYMOUS_PATHS:
            if request.path == "/version":
                return json_response(discovery.version(self.version))
            return Response(body=b"ok", content_type="text/plain")
        user = self._user(request)
        if info is None or not info.plural:
            return self._discovery(request, info)
        if (info.group, info.plural, request.method) == ("authentication.k8s.io", "selfsubjectreviews", "POST"):
            return json_response(_self_review(user), 201)
        if info.group == "authorization.k8s.io":
            return self._access_review(request, info, user)
        kind = self._kind(info)
        self._check_authorized(user, request, kind, info)
        if info.subresource and info.subresource not in kind.subresources:
            raise errors.not_found(kind, info.name) if kind.custom else errors.no_such_path()
        if request.verb not in self._handlers:
            raise errors.method_not_allowed()
        return self._handlers[request.verb](request, info, kind)

    def _user(self, request: Request) -> User:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        user = self.authenticate(token.strip() if scheme.lower() == "bearer" else None)
        if user is None:
            raise errors.unauthorized()
        return user

    def _discovery(self, request: Request, info: RequestInfo | None) -> Response:
        if request.method != "GET":
            raise errors.method_not_allowed()
        if info is not None:
            return json_response(discovery.resources(self.store.served(), info.group, info.version))
        path = request.path.rstrip("/")
        if path.startswith("/openapi"):
            return json_response(openapi.document(self.store, path))
        return json_response(discovery.root(self.store.served(), path))

    def _access_review(self, request: Request, info: RequestInfo, user: User) -> Response:
        """SelfSubjectAccessReview: whether the caller is authorized (``kubectl auth can-i``)."""
        if info.plural != "selfsubjectaccessreviews" or request.method != "POST":
            raise errors.no_such_path()
        review = object_body(request)
        attributes = (review.get("spec") or {}).get("resourceAttributes") or {}
        allowed = True
        if self.authorize is not None:
            plural, group = attributes.get("resource", ""), attributes.get("group", "")
            try:
                kind = self.store.storage_kind(f"{plural}.{group}" if group else plural)
            except ApiError:
                allowed = False
            else:
                namespace, name = attributes.get("namespace", ""), attributes.get("name", "")
                allowed = self.authorize(user, attributes.get("verb", ""), kind, namespace, name)
        return json_response({**review, "status": {"allowed": allowed}}, 201)

    def _kind(self, info: RequestInfo) -> Kind:
        for kind in self.store.served():
            if (kind.group, kind.version, kind.plural) == (info.group, info.version, info.plural):
                if kind.namespaced and info.namespace is None and info.name:
                    break
                if not kind.namespaced and info.namespace is not None:
                    break
                return kind
        raise errors.no_such_path()

    def _check_authorized(self, user: User, request: Request, kind: Kind, info: RequestInfo) -> None:
        if self.authorize is None:
            return
        namespace = info.namespace or ""
        resource = dataclasses.replace(kind, plural=f"{kind.plural}/{info.subresource}") if info.subresource else kind
        if not self.authorize(user, request.verb, resource, namespace, info.name):
            scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            raise errors.forbidden(
                kind,
                info.name,
                f'User "{user.name}" cannot {request.verb} resource "{resource.plural}" '
                f'in API group "{kind.group}" {scope}',
            )


def _self_review(user: User) -> dict[str, Any]:
    """SelfSubjectReview: who the caller is (``kubectl auth whoami``)."""
    return {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "status": {"userInfo": {"username": user.name, "groups": list(user.groups)}},
    }


def error_response(error: ApiError) -> Response:
    """An API error as a response."""
    seconds = error.details.get("retryAfterSeconds")
    headers = (("Retry-After", str(seconds)),) if seconds else ()
    return Response(error.status, msgspec.json.encode(error.as_json()), headers=headers)
