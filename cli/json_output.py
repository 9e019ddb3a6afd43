"""What a command prints with ``--json``: a typed value as JSON text, with the version of its schema.

The types are msgspec's, so schemas (cli/schema/schemas.py) follow from them and can't differ from what is printed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from datetime import datetime

VERSION_FIELD = "schemaVersion"
VERSIONS = {
    "catalog": 1,
    "demo": 1,
    "explain": 2,
    "migrate cluster-autoscaler": 1,
    "migrate karpenter": 1,
    "node-groups": 1,
    "nodes": 2,
    "pause": 1,
    "plan": 4,
    "preflight": 1,
    "report": 2,
    "resume": 1,
    "rollback": 1,
    "shadow report": 1,
    "simulate": 1,
    "status": 1,
    "upgrade-check": 1,
    "verify": 1,
}
"""The schema version of each command's output. Any change of a schema raises it."""

WITHOUT_VERSION = frozenset({"simulate"})
"""Commands whose objects have no version: readers of ``tenon simulate`` expect exactly the fields of a decision."""

Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""RFC 3339, in UTC."""


class Output(WireStruct, kw_only=True, rename="camel"):
    """A part of an output; names are camelCase in JSON."""


def moment(at: datetime) -> Time:
    """The time as JSON has it."""
    return at.isoformat()


def text(command: str, output: object) -> str:
    """The output of a command as JSON; an object begins with the version of its schema, a list has none."""
    values: Any = msgspec.to_builtins(output)
    if isinstance(values, dict) and command not in WITHOUT_VERSION:
        values = {VERSION_FIELD: VERSIONS[command], **values}
    return json.dumps(values).replace("\x7f", "\\u007f")  # the only character of no text that it leaves
