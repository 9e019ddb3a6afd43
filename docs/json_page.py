"""The page on the JSON that commands print, from the schemas that `tenon schema` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.json_output import VERSION_FIELD, VERSIONS
from cli.schema import schemas
from docs.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REFERENCE = "#/$defs/"
_FORMATS = {"date-time": "time", "decimal": "decimal as string"}


def page() -> str:
    """The page's text."""
    lines = [
        "# JSON output",
        "",
        (
            "With `--json` a command prints one JSON value. `tenon schema COMMAND` prints its schema (JSON Schema, "
            "draft 2020-12), whose `$id` ends with its version; `tenon schema` lists all versions."
        ),
        "",
        (
            f"- An object has the version in `{VERSION_FIELD}`. A list and the output of `simulate` have none: theirs "
            "is that of `tenon schema`."
        ),
        (
            "- Every change of a schema raises its version, and is in the changelog. Mostly fields are added, so "
            "readers should ignore fields that they don't know."
        ),
        (
            "- Prices are USD per hour, quantities are Kubernetes', times RFC 3339 in UTC. Fields are always there, "
            "unless they are marked optional."
        ),
    ]
    for command in VERSIONS:
        lines += ["", f"## {command}", "", *_section(command)]
    return "\n".join(lines)


def _section(command: str) -> Iterator[str]:
    schema = schemas.schema(command)
    definitions: Mapping[str, Any] = schema["$defs"]
    yield f"Version {VERSIONS[command]}. `tenon {command} --json` prints {_article(schema)}."
    for name, definition in definitions.items():
        yield from ("", f"**{name}**: {definition.get('description', '').replace('``', '`')}", "")
        required = set(definition.get("required", ()))
        rows = [
            (f"`{field}`", _type(value) + ("" if field in required else ", optional"))
            for field, value in definition["properties"].items()
        ]
        yield from table(("field", "type"), rows)


def _article(schema: Mapping[str, Any]) -> str:
    return f"a {_type(schema)}" if schema.get("type") == "array" else f"one {_type(schema)}"


def _type(schema: Mapping[str, Any]) -> str:
    """The type in words."""
    match schema:
        case {"$ref": str(reference)}:
            words = reference.removeprefix(_REFERENCE)
        case {"anyOf": parts}:
            words = " or ".join(_type(part) for part in parts)
        case {"const": value}:
            words = f"`{value}`"
        case {"enum": values}:
            words = " or ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": items}:
            words = f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": values}:
            words = f"map of {_type(values)}"
        case _:
            words = _FORMATS.get(schema.get("format", ""), schema["type"])
    return words
