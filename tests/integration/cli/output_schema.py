"""Whether what a command has printed follows the schema that `tenon schema` prints, without a field more."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from cli.json_output import VERSIONS
from cli.schema import schemas

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 20
"""Entries of a list that are validated; those after them have the same types."""


def assert_follows_schema(arguments: Sequence[str], printed: str) -> None:
    """The output of a command with these arguments follows its schema, if it was called with --json."""
    command = next((c for c in VERSIONS if list(arguments[: c.count(" ") + 1]) == c.split()), None)
    if command is None or "--json" not in arguments or not printed.strip():
        return
    value = json.loads(printed)
    _validator(command).validate(value[:LONGEST] if isinstance(value, list) else value)


@cache
def _validator(command: str) -> Draft202012Validator:
    return Draft202012Validator(_strict(schemas.schema(command)))


def _strict(schema: Any) -> Any:
    """The schema with every field refused that it doesn't name. Readers must not do so: fields are added."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _strict(part) for key, part in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        closed["additionalProperties"] = False
    return closed
