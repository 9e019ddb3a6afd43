"""The least OpenAPI that clients need: kubectl looks here for whether the server validates fields, and for schemas.

Built-in kinds are open objects; custom kinds carry the schema of their CustomResourceDefinition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes import errors

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

_INFO = {"title": "Kubernetes", "version": "v1.36.2"}
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")


def document(store: Store, path: str) -> Obj:
    """The document at ``/openapi/v2``, ``/openapi/v3`` or ``/openapi/v3/apis/group/version``.

    Raises:
        ApiError: 404.
    """
    served = store.served()
    match path.strip("/").split("/"):
        case ["openapi", "v2"]:
            return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": _schemas(store, served)}
        case ["openapi", "v3"]:
            places = sorted({_place(kind) for kind in served})
            return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}}
        case ["openapi", "v3", *rest]:
            here = [kind for kind in served if _place(kind) == "/".join(rest)]
            if here:
                return {
                    "openapi": "3.0.0",
                    "info": _INFO,
                    "paths": {f"/{_place(kind)}/{_under(kind)}": _operations(kind) for kind in here},
                    "components": {"schemas": _schemas(store, here)},
                }
    raise errors.no_such_path()


def _place(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _under(kind: Kind) -> str:
    return f"namespaces/{{namespace}}/{kind.plural}/{{name}}" if kind.namespaced else f"{kind.plural}/{{name}}"


def _named(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def _schema_name(kind: Kind) -> str:
    return f"{'.'.join(reversed((kind.group or 'core').split('.')))}.{kind.version}.{kind.kind}"


def _operations(kind: Kind) -> Obj:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in _PARAMETERS
    ]
    marked = {"x-kubernetes-group-version-kind": _named(kind), "parameters": parameters, "responses": {}}
    return {
        "patch": {**marked, "x-kubernetes-action": "patch"},
        "put": {**marked, "x-kubernetes-action": "put"},
    }


def _schemas(store: Store, served: list[Kind]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in served:
        definition = store.definition(kind)
        raw: Obj = definition.schema.raw if definition is not None else {"x-kubernetes-preserve-unknown-fields": True}
        properties: Obj = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            **(raw.get("properties") or {}),
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        }
        found[_schema_name(kind)] = {
            **raw,
            "type": "object",
            "properties": properties,
            "x-kubernetes-group-version-kind": [_named(kind)],
        }
    return found
