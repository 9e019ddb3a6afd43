"""The schemas of `--json` as they were when their versions were raised, one file a version.

``python -m tests.unit.json_output.snapshots`` writes those of new versions. It never changes a file: whoever changes an
output raises its version in cli/json_output.py first. Descriptions may change without another version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli.json_output import VERSIONS
from cli.schema import schemas

FOLDER = Path(__file__).with_name("versions")


def path(command: str) -> Path:
    """The file of a command's current version."""
    return FOLDER / f"{command.replace(' ', '-')}-v{VERSIONS[command]}.json"


def text(command: str) -> str:
    """The command's schema now, without descriptions."""
    return json.dumps(_undescribed(schemas.schema(command)), indent=1) + "\n"


def _undescribed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_undescribed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _undescribed(part) for key, part in schema.items() if not _is_description(key, part)}


def _is_description(key: str, value: object) -> bool:
    """A field may be called description, too; its value is a schema then."""
    return key == "description" and isinstance(value, str)


def write() -> None:
    """Write the snapshots of versions that have none, and remove those of former versions."""
    FOLDER.mkdir(exist_ok=True)
    current = {path(command): command for command in VERSIONS}
    for file, command in current.items():
        if not file.exists():
            file.write_text(text(command), encoding="utf-8")
    for file in set(FOLDER.glob("*.json")) - set(current):
        file.unlink()


if __name__ == "__main__":
    write()
