"""Why a difference about a field may be left: the ledger of fields says that nothing of ours reads it."""

from __future__ import annotations

import re
from functools import cache

from docs.fields import ledger
from tests.real.differential.generated_objects import Json, resolved, schema_of

_INTERNAL = {"persistentDisk": "gcePersistentDisk", "downwarAPI": "downwardAPI"}
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


def reason(api_version: str, kind: str, field: str) -> str:
    """Why nothing reads the field, or any field below it; empty if something does or the ledger doesn't know it."""
    owner, path = _ledger_path(api_version, kind, field)
    if not path:
        return ""
    decisions = [d for d in _of_kind(owner) if _concerns(d.pattern, path)]
    if not decisions or any(d.group == "read" for d in decisions):
        return ""
    return decisions[0].why


@cache
def _of_kind(kind: str) -> tuple[ledger.Decision, ...]:
    return tuple(d for d in ledger.decisions() if d.kind == kind)


def _concerns(pattern: str, path: str) -> bool:
    prefix = pattern.removesuffix(".*").removesuffix("*")
    return (
        prefix == path
        or prefix.startswith((f"{path}.", f"{path}[", f"{path}{{"))
        or (pattern.endswith("*") and path.startswith(prefix))
    )


def _published_name(name: str, properties: Json) -> str:
    """The field that an error's path names, which may be of the internal version; empty if there is none."""
    name = _INTERNAL.get(name, name)
    return next((field for field in properties if field.lower() == name.lower()), "")


def _ledger_path(api_version: str, kind: str, field: str) -> tuple[str, str]:
    """The ledger's kind or shared type, and the path in it, of a field that an API server names."""
    owner, path = kind, ""
    schema: Json = schema_of(api_version, kind)
    for match in _STEP.finditer(field):
        name = match[1]
        if name is not None and "properties" in schema:
            name = _published_name(name, schema["properties"])
            if not name:
                return owner, path
            inner = schema["properties"][name]
            path = f"{path}.{name}" if path else name
        elif name is not None and isinstance(schema.get("additionalProperties"), dict):
            inner, path = schema["additionalProperties"], f"{path}{{}}"
        elif name is None and schema.get("type") == "array":
            inner, path = schema["items"], f"{path}[]"
        elif name is None and isinstance(schema.get("additionalProperties"), dict):
            inner, path = schema["additionalProperties"], f"{path}{{}}"
        else:
            return owner, path
        shared = inner.get("$ref", "").rpartition(".")[2]
        if shared in ledger.kinds():
            owner, path = shared, ""
        schema = resolved(inner)
    return owner, path
