"""The verbs that write, and the subresources eviction and binding."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from local.kubernetes import errors, kinds
from local.kubernetes.apiserver.negotiation import json_response, list_response, object_response
from local.kubernetes.apiserver.request_info import is_true
from local.kubernetes.apiserver.request_parameters import delete_options, is_dry_run, object_body, parse_body
from local.kubernetes.registry import published_types

if TYPE_CHECKING:
    from local.kubernetes.apiserver.http import Request, Response
    from local.kubernetes.apiserver.request_info import RequestInfo
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.standard_storage import PatchType
    from local.kubernetes.registry.store import Store

_PATCH_TYPES: dict[str, PatchType] = {
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
    "application/apply-patch+json": "apply",
}


_CREATED_BY_UPDATES = frozenset(
    kind.resource
    for kind in (
        kinds.LEASES, kinds.ENDPOINTS, kinds.EVENTS, kinds.LIMIT_RANGES, kinds.SERVICES, kinds.RUNTIME_CLASSES,
        kinds.CLUSTER_ROLES, kinds.CLUSTER_ROLE_BINDINGS, kinds.ROLES, kinds.ROLE_BINDINGS,
    )
)  # fmt: skip
"""The kinds that an update creates (``AllowCreateOnUpdate``)."""
_RETURNED_WHEN_REMOVED = frozenset(
    kind.resource
    for kind in (
        kinds.PODS, kinds.NAMESPACES, kinds.PERSISTENT_VOLUMES, kinds.PERSISTENT_VOLUME_CLAIMS, kinds.SERVICES,
        kinds.SERVICE_ACCOUNTS, kinds.RESOURCE_QUOTAS, kinds.CSI_NODES, kinds.CSI_DRIVERS, kinds.STORAGE_CLASSES,
        kinds.VOLUME_ATTACHMENTS,
    )
)  # fmt: skip
"""The kinds whose deletion is answered with the removed object (``ReturnDeletedObject``)."""


_CUSTOM_PATCHES = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
)


class WriteHandlers:
    """Carries out writes on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, request: Request, info: RequestInfo, kind: Kind) -> Response:
        """Create an object, or a subresource of one."""
        if info.name:
            return self._create_subresource(request, info)
        body = self._object_of_kind(request, kind)
        created = self._store.create(kind, body, namespace=info.namespace or "", dry_run=is_dry_run(request))
        return object_response(self._store, request, kind, created, 201)

    def update(self, request: Request, info: RequestInfo, kind: Kind) -> Response:
        """Replace an object; some kinds are created if they don't exist."""
        if not info.name:
            raise errors.bad_request("name must be provided") if kind.custom else errors.method_not_allowed()
        body = object_body(request) if info.subresource == "scale" else self._object_of_kind(request, kind)
        metadata = dict(body.get("metadata") or {})
        if metadata.setdefault("name", info.name) != info.name:
            raise errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({info.name})"
            )
        if kind.namespaced and metadata.setdefault("namespace", info.namespace or "") != info.namespace:
            raise errors.bad_request("the namespace of the object does not match the namespace on the URL")
        body = {**body, "metadata": metadata}
        namespace = info.namespace or ""
        present = self._store.find(kind, info.name, namespace=namespace)
        if present is None and not info.subresource and kind.resource in _CREATED_BY_UPDATES:
            body["metadata"].pop("resourceVersion", None)
            if uid := metadata.get("uid"):
                raise errors.precondition_failed(kind, info.name, "UID", uid, "")
            created = self._store.create(kind, body, namespace=namespace, dry_run=is_dry_run(request))
            return object_response(self._store, request, kind, created, 201)
        obj = self._store.replace(kind, body, subresource=info.subresource, dry_run=is_dry_run(request))
        return object_response(self._store, request, kind, obj)

    def patch(self, request: Request, info: RequestInfo, kind: Kind) -> Response:
        """Patch an object by one of the four patch types."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        patch_type = _PATCH_TYPES.get(content_type)
        if patch_type is None:
            accepted = ", ".join(_PATCH_TYPES)
            raise errors.unsupported_media_type(
                f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            )
        if patch_type == "strategic" and kind.custom:
            raise errors.unsupported_media_type(_CUSTOM_PATCHES)
        patch = parse_body(request)
        field_manager = request.query.get("fieldManager", "")
        if patch_type == "apply" and not field_manager:
            text = "Required value: is required for apply patch"
            raise errors.invalid_options("PatchOptions", "fieldManager", "FieldValueRequired", text)
        if isinstance(patch, dict) and not info.subresource:
            self._check_unknown_fields(request, kind, patch)
        before = self._store.find(kind, info.name, namespace=info.namespace or "")
        obj = self._store.patch(
            kind,
            info.name,
            patch,
            namespace=info.namespace or "",
            subresource=info.subresource,
            patch_type=patch_type,
            field_manager=field_manager,
            force=is_true(request.query.get("force")),
            dry_run=is_dry_run(request),
        )
        return object_response(self._store, request, kind, obj, 201 if before is None else 200)

    def delete(self, request: Request, info: RequestInfo, kind: Kind) -> Response:
        """Delete an object. It is returned if it lingers, and by some kinds when it is removed; else a Status."""
        if info.subresource:
            raise errors.method_not_allowed()
        options = delete_options(request)
        last, removed = self._store.begin_deletion(kind, info.name, namespace=info.namespace or "", **options)
        if not removed or kind.resource in _RETURNED_WHEN_REMOVED:
            return object_response(self._store, request, kind, last)
        details = {"name": info.name, "kind": kind.plural, "uid": last["metadata"]["uid"]}
        if kind.group:
            details["group"] = kind.group
        return json_response(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    def delete_collection(self, request: Request, info: RequestInfo, kind: Kind) -> Response:
        """Delete every object that the selectors select."""
        options = delete_options(request)
        with self._store.lock:
            objects = self._store.list(
                kind,
                namespace=info.namespace,
                labels=request.query.get("labelSelector", ""),
                fields=request.query.get("fieldSelector", ""),
            )
            for obj in objects:
                name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
                if self._store.find(kind, name, namespace=namespace) is not None:
                    self._store.delete(kind, name, namespace=namespace, **options)
            version = str(self._store.version)
        return list_response(self._store, kind, objects, {"resourceVersion": version}, "Object")

    def _create_subresource(self, request: Request, info: RequestInfo) -> Response:
        body = object_body(request)
        namespace = info.namespace or ""
        match info.subresource:
            case "eviction":
                options = {**(body.get("deleteOptions") or {})}
                if is_dry_run(request):
                    options["dryRun"] = ["All"]
                self._store.evict(namespace, info.name, options=options)
            case "binding":
                self._store.bind(namespace, info.name, (body.get("target") or {}).get("name", ""))
            case _:
                raise errors.method_not_allowed()
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return json_response(status, 201)

    def _object_of_kind(self, request: Request, kind: Kind) -> Obj:
        """The object in the body, which must be of this kind."""
        body = object_body(request)
        if kind.custom and body.get("kind", kind.kind) != kind.kind:
            text = f'Invalid value: "{body["kind"]}": must be {kind.kind}'
            name = (body.get("metadata") or {}).get("name", "")
            sent = dataclasses.replace(kind, kind=body["kind"])
            raise errors.invalid(sent, name, [errors.Cause("kind", "FieldValueInvalid", text)])
        for name, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if body.get(name, expected) != expected:
                raise errors.bad_request(
                    f"the {name} in the data ({body[name]}) does not match the expected {name} ({expected})"
                )
        self._check_unknown_fields(request, kind, body)
        return body

    def _check_unknown_fields(self, request: Request, kind: Kind, body: Obj) -> None:
        """Refuse unknown fields if the client asks for strict field validation, as kubectl does."""
        if request.query.get("fieldValidation") != "Strict":
            return
        definition = self._store.definition(kind)
        if definition is not None:
            unknown = definition.schema.unknown_fields(body)
        else:
            unknown = published_types.unknown_fields(kind, body)
        if unknown:
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise errors.bad_request(
                f'{kind.kind} in version "{kind.api_version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {listed}"
            )
