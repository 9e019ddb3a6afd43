"""EventBridge's input transformers: the text that a target gets instead of the event.

A placeholder ``<name>`` stands for the value at its path: as JSON, or as plain text within quotes, as EventBridge does
("Amazon EventBridge input transformation"). moto puts plain text everywhere.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUOTED_OR_PLACEHOLDER = re.compile(r'"(?:[^"\\]|\\.)*"|<[\w.-]+>')
_PLACEHOLDER = re.compile(r"<([\w.-]+)>")


def transformed(transformer: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
    """The event as the target gets it."""
    values = {name: _value(event, path) for name, path in transformer.get("InputPathsMap", {}).items()}

    def text(match: re.Match[str]) -> str:
        value = values.get(match[1])
        return value if isinstance(value, str) else json.dumps(value)

    def replaced(match: re.Match[str]) -> str:
        if match[0].startswith("<"):
            return json.dumps(values.get(match[0][1:-1]))
        return json.dumps(_PLACEHOLDER.sub(text, json.loads(match[0])))

    return json.loads(_QUOTED_OR_PLACEHOLDER.sub(replaced, transformer["InputTemplate"]))


def _value(event: Mapping[str, Any], path: str) -> Any:
    """The value at a path such as ``$.detail.name``; None if there is none."""
    value: Any = event
    for key in path.removeprefix("$").split(".")[1:]:
        value = value.get(key) if isinstance(value, dict) else None
    return value
