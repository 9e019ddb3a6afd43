"""The Kubernetes API over a store, one request to one answer, with no socket in sight.

What a client may ask for in a path, a query and a header is decided here; what it means is the store's.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from local.kubernetes import errors, kinds
from local.kubernetes.apiserver import discovery, negotiation, openapi, protobuf, request_info
from local.kubernetes.apiserver.http import Request, Response
from local.kubernetes.apiserver.watch import DEFAULT_SECONDS, Wanted, Watch
from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.apiserver.auth import Authenticate, Authorize, User
    from local.kubernetes.apiserver.negotiation import Form
    from local.kubernetes.apiserver.request_info import Route
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import PatchType, Propagation, Store

Intercept = Callable[[Request], Response | None]
"""Sees every request before it is carried out; an answer of its own takes the place of the API's."""

_PATCH_TYPES: dict[str, PatchType] = {
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
    "application/apply-patch+json": "apply",
}
_OPEN = frozenset(("/healthz", "/livez", "/readyz", "/version"))


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
        self._lock = threading.Lock()
        self._watches: set[Watch] = set()

    def respond(self, request: Request) -> Response:
        """The answer; a refusal is an answer, too."""
        route = request_info.parse(request.path)
        if route is not None and route.plural:
            request = _described(request, route)
        try:
            if self.intercept is not None and (instead := self.intercept(request)) is not None:
                return instead
            return self._answer(request, route)
        except ApiError as error:
            return refusal(error)

    def stop_watches(self) -> None:
        """End every running watch; clients start them again from where they were."""
        with self._lock:
            for watch in self._watches:
                watch.stop()

    def _answer(self, request: Request, route: Route | None) -> Response:
        if request.path in _OPEN:
            return (
                _json(discovery.VERSION)
                if request.path == "/version"
                else Response(body=b"ok", content_type="text/plain")
            )
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        user = self.authenticate(token.strip() if scheme.lower() == "bearer" else None)
        if user is None:
            raise errors.unauthorized()
        if route is None or not route.plural:
            return self._about_itself(request, route)
        if route.group == "authorization.k8s.io":
            return self._review(request, route, user)
        kind = self._kind(route)
        self._allow(user, request, kind, route)
        return self._carry_out(request, route, kind)

    def _about_itself(self, request: Request, route: Route | None) -> Response:
        if request.method != "GET":
            raise errors.method_not_allowed()
        if route is not None:
            return _json(discovery.resources(self.store.served(), route.group, route.version))
        path = request.path.rstrip("/")
        if path.startswith("/openapi"):
            found = openapi.document(self.store, path)
        else:
            found = discovery.root(self.store.served(), path)
        return _json(found)

    def _review(self, request: Request, route: Route, user: User) -> Response:
        """SelfSubjectAccessReview: whether the caller may do something (``kubectl auth can-i``)."""
        if route.plural != "selfsubjectaccessreviews" or request.method != "POST":
            raise errors.no_such_path()
        review = _body(request)
        asked = (review.get("spec") or {}).get("resourceAttributes") or {}
        allowed = True
        if self.authorize is not None:
            plural, group = asked.get("resource", ""), asked.get("group", "")
            named = f"{plural}.{group}" if group else plural
            try:
                kind = self.store.storage_kind(named)
            except ApiError:
                allowed = False
            else:
                allowed = self.authorize(
                    user, asked.get("verb", ""), kind, asked.get("namespace", ""), asked.get("name", "")
                )
        return _json({**review, "status": {"allowed": allowed}}, 201)

    def _kind(self, route: Route) -> Kind:
        for kind in self.store.served():
            if (kind.group, kind.version, kind.plural) == (route.group, route.version, route.plural):
                if kind.namespaced and route.namespace is None and route.name:
                    break
                if not kind.namespaced and route.namespace is not None:
                    break
                return kind
        raise errors.no_such_path()

    def _allow(self, user: User, request: Request, kind: Kind, route: Route) -> None:
        if self.authorize is None:
            return
        namespace = route.namespace or ""
        shown = dataclasses.replace(kind, plural=f"{kind.plural}/{route.subresource}") if route.subresource else kind
        if not self.authorize(user, request.verb, shown, namespace, route.name):
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            raise errors.forbidden(
                kind,
                route.name,
                f'User "{user.name}" cannot {request.verb} resource "{shown.plural}" '
                f'in API group "{kind.group}" {where}',
            )

    def _carry_out(self, request: Request, route: Route, kind: Kind) -> Response:
        if route.subresource and route.subresource not in kind.subresources:
            raise errors.no_such_path()
        by_verb = {
            "list": self._list,
            "watch": self._watch,
            "get": self._get,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        if request.verb not in by_verb:
            raise errors.method_not_allowed()
        return by_verb[request.verb](request, route, kind)

    # Reading

    def _get(self, request: Request, route: Route, kind: Kind) -> Response:
        obj = self.store.get(kind, route.name, namespace=route.namespace or "")
        return self._written(request, route, kind, obj)

    def _list(self, request: Request, route: Route, kind: Kind) -> Response:
        query = request.query
        version = _number(query.get("resourceVersion"), "resourceVersion")
        limit = _number(query.get("limit"), "limit") or 0
        token = query.get("continue", "")
        with self.store.lock:
            if version is not None and version > self.store.version:
                raise errors.version_ahead(version, self.store.version)
            at = self.store.version
            after: tuple[str, str] | None = None
            if token:
                at, after = _read_continue(token)
            elif version and query.get("resourceVersionMatch") == "Exact":
                at = version
            found = self.store.list(
                kind,
                namespace=route.namespace,
                labels=query.get("labelSelector", ""),
                fields=query.get("fieldSelector", ""),
                version=at,
            )
        if after is not None:
            found = found[bisect_right(found, after, key=_key) :]
        metadata: dict[str, Any] = {"resourceVersion": str(at)}
        if limit and len(found) > limit and (version != 0 or token):
            rest = len(found) - limit
            found = found[:limit]
            metadata["continue"] = _continue(at, _key(found[-1]))
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = rest
        form = negotiation.form_of(request.headers.get("accept", ""))
        return Response(body=negotiation.encode_list(self.store, kind, found, metadata, form, self._now(form)))

    def _watch(self, request: Request, route: Route, kind: Kind) -> Response:
        query = request.query
        version = _number(query.get("resourceVersion"), "resourceVersion")
        if version is not None and version > self.store.version:
            raise errors.version_ahead(version, self.store.version)
        fields = query.get("fieldSelector", "")
        if route.name:
            fields = ",".join(filter(None, (fields, f"metadata.name={route.name}")))
        form = negotiation.form_of(request.headers.get("accept", ""))
        announces = request_info.is_true(query.get("sendInitialEvents"))
        first = True

        def show(obj: Obj) -> Any:  # noqa: ANN401 (an object of any kind)
            nonlocal first
            shown = negotiation.shown(self.store, kind, obj, form, self._now(form), columns=first)
            first = False
            return shown

        wanted = Wanted(
            kind=kind,
            namespace=route.namespace,
            labels=query.get("labelSelector", ""),
            fields=fields,
            since=version if version and not announces else None,
            seconds=float(_number(query.get("timeoutSeconds"), "timeoutSeconds") or DEFAULT_SECONDS),
            bookmarks=request_info.is_true(query.get("allowWatchBookmarks")),
            announce_end_of_list=announces,
            show=show,
        )
        try:
            watch = Watch(self.store, wanted)
        except ApiError as error:
            if error.status != 410:  # noqa: PLR2004 (Gone)
                raise
            event = {"type": "ERROR", "object": error.as_json()}
            return Response(stream=iter([msgspec.json.encode(event) + b"\n"]))
        with self._lock:
            self._watches.add(watch)
        return Response(stream=self._lines(watch))

    def _lines(self, watch: Watch) -> Iterator[bytes | None]:
        try:
            yield from watch.lines()
        finally:
            with self._lock:
                self._watches.discard(watch)

    def _shown(self, request: Request, kind: Kind, obj: Obj, status: int = 200) -> Response:
        form = negotiation.form_of(request.headers.get("accept", ""))
        return _json(negotiation.shown(self.store, kind, obj, form, self._now(form)), status)

    def _now(self, form: Form) -> str:
        return negotiation.moment(self.store.now()) if form == "Table" else ""

    # Writing

    def _create(self, request: Request, route: Route, kind: Kind) -> Response:
        if route.name:
            return self._create_below(request, route)
        body = self._accept(request, kind)
        made = self.store.create(kind, body, namespace=route.namespace or "", dry_run=_dry(request))
        return self._shown(request, kind, made, 201)

    def _accept(self, request: Request, kind: Kind) -> Obj:
        """The object in the body, which must say that it is of this kind."""
        body = _body(request)
        for name, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if body.get(name, wanted) != wanted:
                raise errors.bad_request(
                    f"the {name} in the data ({body[name]}) does not match the expected {name} ({wanted})"
                )
        return self._strict(request, kind, body)

    def _strict(self, request: Request, kind: Kind, body: Obj) -> Obj:
        """Refuse unknown fields if the client asked for that (kubectl does)."""
        definition = self.store.definition(kind)
        if definition is not None and request.query.get("fieldValidation") == "Strict":
            unknown = definition.schema.unknown(body)
            if unknown:
                told = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise errors.bad_request(
                    f'{kind.kind} in version "{kind.api_version}" cannot be handled as a {kind.kind}: '
                    f"strict decoding error: {told}"
                )
        return body

    def _create_below(self, request: Request, route: Route) -> Response:
        """Evictions and bindings, the subresources that are created."""
        body = _body(request)
        namespace = route.namespace or ""
        if route.subresource == "eviction":
            options = {**(body.get("deleteOptions") or {})}
            if _dry(request):
                options["dryRun"] = ["All"]
            self.store.evict(namespace, route.name, options=options)
        elif route.subresource == "binding":
            self.store.bind(namespace, route.name, (body.get("target") or {}).get("name", ""))
        else:
            raise errors.method_not_allowed()
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    def _update(self, request: Request, route: Route, kind: Kind) -> Response:
        body = _body(request) if route.subresource == "scale" else self._accept(request, kind)
        metadata = dict(body.get("metadata") or {})
        if metadata.setdefault("name", route.name) != route.name:
            raise errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({route.name})"
            )
        if kind.namespaced and metadata.setdefault("namespace", route.namespace or "") != route.namespace:
            raise errors.bad_request("the namespace of the object does not match the namespace on the URL")
        body = {**body, "metadata": metadata}
        obj = self.store.replace(kind, body, subresource=route.subresource, dry_run=_dry(request))
        return self._written(request, route, kind, obj)

    def _patch(self, request: Request, route: Route, kind: Kind) -> Response:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        patch_type = _PATCH_TYPES.get(content_type)
        if patch_type is None:
            accepted = ", ".join(_PATCH_TYPES)
            raise errors.unsupported_media_type(
                f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            )
        patch = _parsed(request)
        manager = request.query.get("fieldManager", "")
        if patch_type == "apply" and not manager:
            raise errors.bad_request("fieldManager is required for apply patch")
        if isinstance(patch, dict) and not route.subresource:
            patch = self._strict(request, kind, patch)
        before = self.store.find(kind, route.name, namespace=route.namespace or "")
        obj = self.store.patch(
            kind,
            route.name,
            patch,
            namespace=route.namespace or "",
            subresource=route.subresource,
            patch_type=patch_type,
            field_manager=manager,
            force=request_info.is_true(request.query.get("force")),
            dry_run=_dry(request),
        )
        return self._written(request, route, kind, obj, 201 if before is None else 200)

    def _written(self, request: Request, route: Route, kind: Kind, obj: Obj, status: int = 200) -> Response:
        if route.subresource == "scale":
            return _json(self.store.scale_of(kind, obj), status)
        return self._shown(request, kind, obj, status)

    def _delete(self, request: Request, route: Route, kind: Kind) -> Response:
        if route.subresource:
            raise errors.method_not_allowed()
        last = self.store.get(kind, route.name, namespace=route.namespace or "")
        left = self.store.delete(kind, route.name, namespace=route.namespace or "", **_delete_options(request))
        if left is not None or kind.resource == kinds.PODS.resource:
            return self._shown(request, kind, left or last)
        details = {"name": route.name, "kind": kind.plural, "uid": last["metadata"]["uid"]}
        if kind.group:
            details["group"] = kind.group
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    def _delete_collection(self, request: Request, route: Route, kind: Kind) -> Response:
        options = _delete_options(request)
        with self.store.lock:
            found = self.store.list(
                kind,
                namespace=route.namespace,
                labels=request.query.get("labelSelector", ""),
                fields=request.query.get("fieldSelector", ""),
            )
            for obj in found:
                metadata = obj["metadata"]
                if self.store.find(kind, metadata["name"], namespace=metadata.get("namespace", "")) is not None:
                    self.store.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""), **options)
            version = str(self.store.version)
        return Response(
            body=negotiation.encode_list(self.store, kind, found, {"resourceVersion": version}, "Object", "")
        )


def refusal(error: ApiError) -> Response:
    """An error as an answer."""
    seconds = error.details.get("retryAfterSeconds")
    headers = (("Retry-After", str(seconds)),) if seconds else ()
    return Response(error.status, msgspec.json.encode(error.as_json()), headers=headers)


def _described(request: Request, route: Route) -> Request:
    return dataclasses.replace(
        request,
        verb=request_info.verb(request.method, route, request.query),
        resource=f"{route.plural}.{route.group}" if route.group else route.plural,
        namespace=route.namespace or "",
        name=route.name,
        subresource=route.subresource,
    )


def _json(value: Any, status: int = 200) -> Response:  # noqa: ANN401 (any JSON)
    return Response(status, msgspec.json.encode(value))


def _parsed(request: Request) -> Any:  # noqa: ANN401 (any JSON)
    if "protobuf" in request.headers.get("content-type", ""):
        return protobuf.decode(request.body)
    try:
        return msgspec.json.decode(request.body)
    except msgspec.DecodeError as broken:
        if "yaml" not in request.headers.get("content-type", ""):
            raise errors.bad_request(f"the object provided is unrecognized: {broken}") from broken
    try:
        return yaml.safe_load(request.body)
    except yaml.YAMLError as broken:
        raise errors.bad_request(f"error converting YAML to JSON: {broken}") from broken


def _body(request: Request) -> Obj:
    body = _parsed(request)
    if not isinstance(body, dict):
        raise errors.bad_request("the object provided is unrecognized (must be an object)")
    return body


def _dry(request: Request) -> bool:
    return bool(request.query.get("dryRun"))


def _delete_options(request: Request) -> dict[str, Any]:
    """DeleteOptions from the body, or the query in its place."""
    body = _body(request) if request.body else {}
    grace = body.get("gracePeriodSeconds")
    if grace is None:
        grace = _number(request.query.get("gracePeriodSeconds"), "gracePeriodSeconds")
    propagation: Propagation | None = body.get("propagationPolicy") or request.query.get("propagationPolicy")  # type: ignore[assignment]  # checked below
    if propagation not in {None, "Background", "Foreground", "Orphan"}:
        raise errors.bad_request(f"invalid propagationPolicy: {propagation}")
    if body.get("orphanDependents"):
        propagation = "Orphan"
    return {
        "grace_period_seconds": grace,
        "preconditions": body.get("preconditions"),
        "propagation": propagation,
        "dry_run": bool(body.get("dryRun")) or _dry(request),
    }


def _number(text: str | None, name: str) -> int | None:
    if not text:
        return None
    if not text.isdigit():
        raise errors.bad_request(f'Invalid value: "{text}": {name} must be a non-negative integer')
    return int(text)


def _key(obj: Obj) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _continue(version: int, after: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([version, *after])).decode().rstrip("=")


def _read_continue(token: str) -> tuple[int, tuple[str, str]]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        version, namespace, name = msgspec.json.decode(raw, type=tuple[int, str, str])
    except (binascii.Error, UnicodeDecodeError, msgspec.DecodeError) as broken:
        raise errors.bad_request("continue key is not valid") from broken
    return version, (namespace, name)
