"""The representation that a client accepts: whole objects, metadata only, or a table for ``kubectl get``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from local.kubernetes.apiserver import printers
from local.kubernetes.apiserver.http import Response
from local.kubernetes.errors import bad_request
from local.kubernetes.objects import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store
    from shared.api.json_types import Json

Representation = Literal["Object", "PartialObjectMetadata", "Table", "TableOfObjects", "TableOfCells"]
"""Rows of a Table have the objects' metadata; the whole objects, by which ``kubectl get --sort-by`` sorts; or cells."""

_META = "meta.k8s.io/v1"
_TABLES: Mapping[str, Representation] = {
    "": "Table",
    "Metadata": "Table",
    "Object": "TableOfObjects",
    "None": "TableOfCells",
}
"""By query parameter ``includeObject``, as in apiserver ``pkg/endpoints/handlers/response.go``."""
_TYPE_META = frozenset(("apiVersion", "kind"))


def representation_of(request: Request) -> Representation:
    """The first representation in the ``Accept`` header that is served; whole objects if it names none.

    Raises:
        ApiError: ``includeObject`` has an unknown value.
    """
    for offer in request.headers.get("accept", "").split(","):
        words = {word.strip() for word in offer.split(";")}
        if "v=v1" not in words:
            continue
        if "as=Table" in words:
            return _table_of(request.query.get("includeObject", ""))
        if words & {"as=PartialObjectMetadata", "as=PartialObjectMetadataList"}:
            return "PartialObjectMetadata"
    return "Object"


def _table_of(include_object: str) -> Representation:
    if include_object not in _TABLES:
        raise bad_request(f'unrecognized includeObject value: "{include_object}"')
    return _TABLES[include_object]


def json_response(value: Json, status: int = 200) -> Response:
    """A response with that JSON as its body."""
    return Response(status, msgspec.json.encode(value))


def object_response(store: Store, request: Request, kind: Kind, obj: Obj, status: int = 200) -> Response:
    """A response with the object, or with its Scale if the request is for that subresource."""
    if request.subresource == "scale":
        return json_response(store.scale_of(kind, obj), status)
    return json_response(represent(store, kind, obj, representation_of(request)), status)


def represent(store: Store, kind: Kind, obj: Obj, representation: Representation, *, with_columns: bool = True) -> Json:
    """The object in that representation. In a watch of tables, only the first event has ``with_columns``."""
    match representation:
        case "PartialObjectMetadata":
            return {"kind": representation, "apiVersion": _META, "metadata": obj["metadata"]}
        case "Table" | "TableOfObjects" | "TableOfCells":
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            return _table(store, kind, [obj], metadata, representation, with_columns=with_columns)
    return obj


def list_response(
    store: Store, kind: Kind, objects: list[Obj], metadata: Obj, representation: Representation
) -> Response:
    """A response with a list. Items of built-in kinds don't repeat their kind, as on a real server."""
    match representation:
        case "PartialObjectMetadata":
            items = [{"kind": representation, "apiVersion": _META, "metadata": obj["metadata"]} for obj in objects]
            body = {"kind": "PartialObjectMetadataList", "apiVersion": _META, "metadata": metadata, "items": items}
        case "Table" | "TableOfObjects" | "TableOfCells":
            body = _table(store, kind, objects, metadata, representation, with_columns=True)
        case _:
            items = objects if kind.custom else [_without_type_meta(obj) for obj in objects]
            body = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": items}
    return json_response(body)


def _without_type_meta(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name not in _TYPE_META}


def _table(
    store: Store, kind: Kind, objects: list[Obj], metadata: Obj, representation: Representation, *, with_columns: bool
) -> Obj:
    now = timestamp(store.now())
    columns = printers.columns_of(kind, store.definition(kind))
    rows = [
        {
            "cells": [column.cell(obj, now) for column in columns],
            "object": _row_object(kind, obj, representation),
        }
        for obj in objects
    ]
    definitions = [column.as_json() for column in columns] if with_columns else None
    return {"kind": "Table", "apiVersion": _META, "metadata": metadata, "columnDefinitions": definitions, "rows": rows}


def _row_object(kind: Kind, obj: Obj, representation: Representation) -> Json:
    match representation:
        case "TableOfObjects":
            return {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
        case "TableOfCells":
            return None
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}
