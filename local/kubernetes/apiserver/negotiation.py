"""How objects are shown: whole, as metadata alone, or as the rows of a table that kubectl prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from local.kubernetes.apiserver import printers
from local.kubernetes.registry.object_meta import timestamp as moment

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

__all__ = ["Form", "encode_list", "form_of", "moment", "shown"]

Form = Literal["Object", "PartialObjectMetadata", "Table"]

_META = "meta.k8s.io/v1"
_TYPE = frozenset(("apiVersion", "kind"))


def form_of(accept: str) -> Form:
    """The first form in an ``Accept`` header that is served here; whole objects if it names none."""
    for offer in accept.split(","):
        words = {word.strip() for word in offer.split(";")}
        if "v=v1" not in words:
            continue
        if "as=Table" in words:
            return "Table"
        if words & {"as=PartialObjectMetadata", "as=PartialObjectMetadataList"}:
            return "PartialObjectMetadata"
    return "Object"


def shown(store: Store, kind: Kind, obj: Obj, form: Form, now: str, *, columns: bool = True) -> Any:  # noqa: ANN401 (JSON)
    """One object in that form; in a watch of tables only the first carries the columns."""
    match form:
        case "PartialObjectMetadata":
            return {"kind": form, "apiVersion": _META, "metadata": obj["metadata"]}
        case "Table":
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            return _table(store, kind, [obj], metadata, now, headed=columns)
    return obj


def encode_list(store: Store, kind: Kind, objects: list[Obj], metadata: Obj, form: Form, now: str) -> bytes:
    """A list of objects in that form, as JSON. Items of built-in kinds don't repeat their kind, as on a real server."""
    match form:
        case "PartialObjectMetadata":
            items = [{"kind": form, "apiVersion": _META, "metadata": obj["metadata"]} for obj in objects]
            answer = {"kind": "PartialObjectMetadataList", "apiVersion": _META, "metadata": metadata, "items": items}
        case "Table":
            answer = _table(store, kind, objects, metadata, now, headed=True)
        case _:
            items = objects if kind.custom else [_bare(obj) for obj in objects]
            answer = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": items}
    return msgspec.json.encode(answer)


def _bare(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name not in _TYPE}


def _table(store: Store, kind: Kind, objects: list[Obj], metadata: Obj, now: str, *, headed: bool) -> Obj:
    wanted = printers.of(kind, store.definition(kind))
    rows = [
        {
            "cells": [column.cell(obj, now) for column in wanted],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]},
        }
        for obj in objects
    ]
    heads = [column.as_json() for column in wanted] if headed else None
    return {"kind": "Table", "apiVersion": _META, "metadata": metadata, "columnDefinitions": heads, "rows": rows}
