"""The schemas of built-in kinds as a kube-apiserver publishes them: ``python -m local.real.published_schemas``.

The command starts a real control plane and writes what the embedded API server decodes objects by. Kubernetes is under
the Apache License 2.0; its descriptions are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import kinds
from local.kubernetes.registry import published_types
from local.real.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.kubernetes.objects import Obj

_KEPT = frozenset(("type", "format", "enum", "required"))
_UNTYPED = frozenset(("customresourcedefinitions.apiextensions.k8s.io",))
"""Kinds that have rules of their own here."""


def read(get: Callable[[str], Obj]) -> Obj:
    """Each type's schema by its name, and by ``group/version/kind`` the names of the kinds' own types.

    ``get`` returns the JSON at a path of the server.
    """
    documents = get("/openapi/v3")["paths"]
    known: Obj = {}
    for kind in kinds.BUILT_IN:
        path = f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"
        known |= get(documents[path]["serverRelativeURL"])["components"]["schemas"]
    roots = dict(_roots(known))
    kept: Obj = {}
    for name in roots.values():
        _keep(name, known, kept)
    return {"kinds": dict(sorted(roots.items())), "types": dict(sorted(kept.items()))}


def _roots(known: Obj) -> Iterator[tuple[str, str]]:
    served = {f"{k.group}/{k.version}/{k.kind}": k for k in kinds.BUILT_IN if k.resource not in _UNTYPED}
    for name, schema in known.items():
        for each in schema.get("x-kubernetes-group-version-kind") or ():
            key = f"{each['group']}/{each['version']}/{each['kind']}"
            if key in served and name.rpartition(".")[2] == each["kind"]:
                yield key, name


def _keep(name: str, known: Obj, kept: Obj) -> None:
    """Keep the type and those that it refers to."""
    if name in kept:
        return
    kept[name] = {}
    kept[name] = _reduced(known[name], lambda referred: _keep(referred, known, kept))


def _reduced(schema: Obj, refer: Callable[[str], None]) -> Obj:
    """The schema with what decoding needs; ``refer`` is told of the types that it refers to."""
    reduced: dict[str, Any] = {name: value for name, value in schema.items() if name in _KEPT}
    for part in schema.get("allOf") or ():
        reduced |= _reduced(part, refer)
    if "$ref" in schema:
        reduced["$ref"] = schema["$ref"].rpartition("/")[2]
        refer(reduced["$ref"])
    if "properties" in schema:
        reduced["properties"] = {name: _reduced(inner, refer) for name, inner in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            reduced[name] = _reduced(schema[name], refer)
    return reduced


def text(schemas: Obj) -> str:
    """The text of the file: a line for each kind and type."""

    def lines(part: Obj) -> str:
        return ",\n".join(f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in part.items())

    parts = (f"{json.dumps(name)}: {{\n{lines(part)}\n}}" for name, part in schemas.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Write the file."""
    with ControlPlane(components=()) as control_plane:
        client = control_plane.client()
        try:
            schemas = read(lambda path: msgspec.json.decode(client.get(path)))
        finally:
            client.close()
    Path(published_types.FILE).write_text(text(schemas), encoding="utf-8")


if __name__ == "__main__":
    main()
