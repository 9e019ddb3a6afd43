"""The minimal OpenAPI that clients need: kubectl reads whether the server validates fields, and schemas.

Built-in kinds are objects with any fields; custom kinds have the schema of their CustomResourceDefinition.
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
            paths = sorted({_group_path(kind) for kind in served})
            return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}
        case ["openapi", "v3", *rest]:
            kinds = [kind for kind in served if _group_path(kind) == "/".join(rest)]
            if kinds:
                return {
                    "openapi": "3.0.0",
                    "info": _INFO,
                    "paths": {f"/{_group_path(kind)}/{_resource_path(kind)}": _operations(kind) for kind in kinds},
                    "components": {"schemas": _schemas(store, kinds)},
                }
    raise errors.no_such_path()


def _group_path(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _resource_path(kind: Kind) -> str:
    return f"namespaces/{{namespace}}/{kind.plural}/{{name}}" if kind.namespaced else f"{kind.plural}/{{name}}"


def _group_version_kind(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def _schema_name(kind: Kind) -> str:
    return f"{'.'.join(reversed((kind.group or 'core').split('.')))}.{kind.version}.{kind.kind}"


def _operations(kind: Kind) -> Obj:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in _PARAMETERS
    ]
    operation = {
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
        "parameters": parameters,
        "responses": {},
    }
    return {
        "patch": {**operation, "x-kubernetes-action": "patch"},
        "put": {**operation, "x-kubernetes-action": "put"},
    }


def _schemas(store: Store, served: list[Kind]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for kind in served:
        definition = store.definition(kind)
        raw: Obj = definition.schema.raw if definition is not None else {"x-kubernetes-preserve-unknown-fields": True}
        properties: Obj = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            **(raw.get("properties") or {}),
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        }
        schemas[_schema_name(kind)] = {
            **raw,
            "type": "object",
            "properties": properties,
            "x-kubernetes-group-version-kind": [_group_version_kind(kind)],
        }
    return schemas
